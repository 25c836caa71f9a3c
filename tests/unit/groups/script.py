"""A script of one classic group: what the tests of the pure protocol read as."""

from __future__ import annotations

from itertools import count

from diskless_core.groups.classic import ClassicGroup
from diskless_core.groups.effects import (
    Answered,
    CancelTimer,
    GroupState,
    Identity,
    Join,
    JoinAnswer,
    Moved,
    Persist,
    SetTimer,
    Sync,
    SyncAnswer,
    Timer,
    TimerKind,
)
from diskless_core.groups.model import PersistedGroup
from diskless_core.groups.settings import GroupSettings
from diskless_core.protocol.errors import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000


class Script:
    """Drives one group and carries its effects out on paper."""

    def __init__(self, settings: GroupSettings | None = None, group: ClassicGroup | None = None) -> None:
        self.settings = settings or GroupSettings(initial_rebalance_delay_ms=DELAY_MS)
        self.group = group or ClassicGroup("g", self.settings)
        self.answers: dict[int, JoinAnswer | SyncAnswer] = {}
        self.timers: dict[Timer, int] = {}
        self.unstored: list[Persist] = []
        self.stored: list[PersistedGroup] = []
        self.states: list[GroupState] = []
        self._ids = count(1)
        self._names = count(1)
        self.settle()

    def settle(self) -> None:
        for effect in self.group.take_effects():
            match effect:
                case Answered(request_id, answer):
                    assert request_id not in self.answers, "a request is answered once"
                    self.answers[request_id] = answer
                case SetTimer(timer, delay_ms):
                    self.timers[timer] = delay_ms
                case CancelTimer(timer):
                    self.timers.pop(timer, None)
                case Persist():
                    self.unstored.append(effect)
                case Moved(state):
                    self.states.append(state)

    # --- events --------------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        needs_id: bool = False,
        can_skip: bool = False,
    ) -> int:
        request_id = next(self._ids)
        self.group.join(
            Join(
                id=request_id,
                member_id=member_id,
                instance_id=instance,
                new_member_id=f"{instance or 'm'}-{next(self._names)}" if member_id == "" else "unused",
                client_id="client",
                client_host="/127.0.0.1",
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                protocol_type=protocol_type,
                protocols=tuple(({"range": b"meta"} if protocols is None else protocols).items()),
                needs_member_id=needs_id,
                can_skip_assignment=can_skip,
            )
        )
        self.settle()
        return request_id

    def sync(
        self,
        member_id: str,
        generation: int,
        *,
        instance: str | None = None,
        assign: dict[str, bytes] | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> int:
        request_id = next(self._ids)
        self.group.sync(
            Sync(
                id=request_id,
                member_id=member_id,
                instance_id=instance,
                generation=generation,
                protocol_type=protocol_type,
                protocol=protocol,
                assignments=tuple((assign or {}).items()),
            )
        )
        self.settle()
        return request_id

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        error = self.group.heartbeat(member_id, instance, generation)
        self.settle()
        return error

    def leave(self, *members: str | Identity) -> list[ErrorCode]:
        identities = [one if isinstance(one, Identity) else Identity(member_id=one) for one in members]
        errors = list(self.group.leave(identities))
        self.settle()
        return errors

    def commit(self, member_id: str = "", generation: int = -1, instance: str | None = None) -> ErrorCode:
        error = self.group.check_commit(member_id, instance, generation)
        self.settle()
        return error

    def expire(self, timer: Timer) -> None:
        del self.timers[timer]
        self.group.expired(timer)
        self.settle()

    def expire_session(self, member_id: str) -> None:
        self.expire(Timer(TimerKind.SESSION, member_id))

    def end_join_phase(self) -> None:
        self.expire(Timer(TimerKind.JOIN))

    def store(self) -> None:
        """Commit everything that was to be written."""
        while self.unstored:
            effect = self.unstored.pop(0)
            self.stored.append(effect.group)
            self.group.persisted(effect.token)
            self.settle()

    # --- looking -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        return self.group.state

    def joined(self, request_id: int) -> JoinAnswer:
        answer = self.answers[request_id]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, request_id: int) -> SyncAnswer:
        answer = self.answers[request_id]
        assert isinstance(answer, SyncAnswer)
        return answer

    def session_ms(self, member_id: str) -> int | None:
        return self.timers.get(Timer(TimerKind.SESSION, member_id))

    # --- longer ways ---------------------------------------------------------------------------------------------

    def stable(self, members: int = 2, *, static: bool = False, protocols: dict[str, bytes] | None = None) -> list[str]:
        """Bring the group from empty to stable; the ids, the leader's first."""
        requests = [
            self.join(instance=f"i{number}" if static else None, protocols=protocols) for number in range(members)
        ]
        while all(one not in self.answers for one in requests):
            self.end_join_phase()
        ids = [self.joined(one).member_id for one in requests]
        ids.sort(key=lambda one: one != self.group.roster.leader)
        assign = {one: f"assigned to {one}".encode() for one in ids}
        for number, one in enumerate(ids):
            instance = self.group.roster.get(one).instance_id
            self.sync(one, self.group.generation, instance=instance, assign=assign if number == 0 else None)
        self.store()
        assert self.state is GroupState.STABLE
        return ids
