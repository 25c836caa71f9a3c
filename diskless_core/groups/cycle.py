"""How a classic group gets from one generation to the next. Here the state moves; `classic` is what clients may ask.

    Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶ CompletingRebalance ──assignment stored──▶ Stable
      ▲                  │    ▲                                              │                                     │
      └──nobody is left──┘    └── a member joins, changes, leaves, fails ────┴─────────────────────────────────────┘

Dead is where a group goes that is no longer coordinated here; nothing leads out of it. What has to be done about an
event collects as effects, which the shell takes and carries out in order before the next event. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from diskless_core.groups.effects import (
    NO_MEMBER_ID,
    Answered,
    CancelTimer,
    Effect,
    GroupState,
    JoinAnswer,
    JoinedMember,
    Moved,
    Persist,
    SetTimer,
    SyncAnswer,
    Timer,
    TimerKind,
)
from diskless_core.groups.model import PersistedGroup
from diskless_core.groups.roster import Member, Roster
from diskless_core.groups.settings import GroupSettings
from diskless_core.groups.snapshot import persisted_members
from diskless_core.protocol.errors import ErrorCode

_JOIN_TIMER = Timer(TimerKind.JOIN)
SYNC_TIMER = Timer(TimerKind.SYNC)


def session_timer(member_id: str) -> Timer:
    return Timer(TimerKind.SESSION, member_id)


@dataclass(slots=True)
class _InitialDelay:
    """The wait of a group that was empty: prolonged while members keep coming, up to the rebalance timeout."""

    delay_ms: int
    remaining_ms: int
    new_member_came: bool = False


class GenerationCycle:
    """A group's state, its members, and the rebalances that lead from generation to generation.

    Attributes:
        state: where it stands.
        generation: of the members' present assignment; it goes up with each rebalance that completes.
        protocol_type: what kind of group the first member made it, None before.
        protocol: the protocol that the members agreed on, None while there are none.
        roster: its members.
    """

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.roster = Roster()
        self._settings = settings
        self._initial: _InitialDelay | None = None
        self._pending_sync: set[str] = set()
        self._assigning_generation: int | None = None
        self._tokens = 0
        self._when_persisted: dict[int, Callable[[], None]] = {}
        self._effects: list[Effect] = []

    def take_effects(self) -> Sequence[Effect]:
        """What is to be done, in order, since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def expired(self, timer: Timer) -> None:
        """A timer that was set, and neither set anew nor cancelled since, has run out."""
        match timer.kind:
            case TimerKind.SESSION:
                self._session_expired(timer.member_id)
            case TimerKind.JOIN:
                self._join_expired()
            case TimerKind.SYNC:
                self._sync_expired()

    def persisted(self, token: int) -> None:
        """The write of that `Persist` is committed."""
        self._when_persisted.pop(token)()

    def close(self, error: ErrorCode) -> None:
        """Stop coordinating the group: everybody who waits is told `error`, and no later event changes anything."""
        for member in self.roster:
            self._answer_join(member, JoinAnswer(error=error, member_id=member.member_id))
            self._answer_sync(member, SyncAnswer(error=error))
            self._effects.append(CancelTimer(session_timer(member.member_id)))
        self._effects += [CancelTimer(session_timer(member_id)) for member_id in sorted(self.roster.expected)]
        self._effects += [CancelTimer(_JOIN_TIMER), CancelTimer(SYNC_TIMER)]
        self._move(GroupState.DEAD, "the group is no longer coordinated here")

    # --- rebalancing ---------------------------------------------------------------------------------------------

    def _rebalance(self, reason: str) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_if_ready()
        else:
            self._prepare_rebalance(reason)

    def _prepare_rebalance(self, reason: str) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._assign_nothing(ErrorCode.REBALANCE_IN_PROGRESS)
        self._pending_sync.clear()
        self._effects.append(CancelTimer(SYNC_TIMER))
        was_empty = self.state is GroupState.EMPTY
        self._move(GroupState.PREPARING_REBALANCE, reason)
        if was_empty:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._initial = _InitialDelay(delay_ms, max(self.roster.rebalance_timeout_ms - delay_ms, 0))
            self._effects.append(SetTimer(_JOIN_TIMER, delay_ms))
        elif self.roster.has_everybody_joined:
            self._complete_join()
        else:
            self._effects.append(SetTimer(_JOIN_TIMER, self.roster.rebalance_timeout_ms))

    def _complete_join_if_ready(self) -> None:
        is_waiting = self.state is GroupState.PREPARING_REBALANCE and self._initial is None
        if is_waiting and self.roster.has_everybody_joined:
            self._complete_join()

    def _join_expired(self) -> None:
        initial = self._initial
        if initial is None or not (initial.new_member_came and initial.remaining_ms):
            self._complete_join()
            return
        delay_ms = min(self._settings.initial_rebalance_delay_ms, initial.remaining_ms)
        self._initial = _InitialDelay(delay_ms, max(initial.remaining_ms - initial.delay_ms, 0))
        self._effects.append(SetTimer(_JOIN_TIMER, delay_ms))

    def _complete_join(self) -> None:
        self._effects.append(CancelTimer(_JOIN_TIMER))
        self._initial = None
        for member in self.roster:
            if member.awaiting_join is None and member.instance_id is None:
                self._remove(member.member_id)
        if not len(self.roster):
            self._become_empty()
        elif self.roster.elect_joined_leader():
            self._begin_generation()
        else:
            # Only static members are left and none came: their sessions decide, not this rebalance.
            self._effects.append(SetTimer(_JOIN_TIMER, self.roster.rebalance_timeout_ms))

    def _become_empty(self) -> None:
        self.generation += 1
        self.protocol = None
        self._move(GroupState.EMPTY, "nobody is left")
        self._persist({}, _nothing)

    def _begin_generation(self) -> None:
        self.generation += 1
        self.protocol = self.roster.vote()
        self._move(GroupState.COMPLETING_REBALANCE, "all members joined")
        for member in self.roster:
            self._answer_join(member, self._join_answer(member))
            self._renew_session(member)
            member.is_new = False
            self._pending_sync.add(member.member_id)
        self._effects.append(SetTimer(SYNC_TIMER, self.roster.rebalance_timeout_ms))

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        # A leader that asks once more meets the assignment that is being stored already.
        if self._assigning_generation != self.generation:
            self._assigning_generation = self.generation
            self._persist(assignments, partial(self._assigned, self.generation, assignments))

    def _assigned(self, generation: int, assignments: Mapping[str, bytes]) -> None:
        if self.state is not GroupState.COMPLETING_REBALANCE or generation != self.generation:
            return
        self._move(GroupState.STABLE, "the assignment is stored")
        for member in self.roster:
            member.assignment = assignments.get(member.member_id, b"")
            if self._answer_sync(member, self._sync_answer(member)):
                self._renew_session(member)

    def _assign_nothing(self, error: ErrorCode) -> None:
        for member in self.roster:
            member.assignment = b""
            if self._answer_sync(member, SyncAnswer(error=error)):
                self._renew_session(member)

    def _sync_expired(self) -> None:
        for member_id in sorted(self._pending_sync):
            self._remove(member_id)
        self._prepare_rebalance("members did not ask for their assignment in time")

    def _session_expired(self, member_id: str) -> None:
        member = self.roster.get(member_id)
        if member is not None and member.keeps_session:
            return
        self._remove(member_id)
        if self.state is GroupState.PREPARING_REBALANCE and self.roster.has_everybody_joined:
            self._complete_join()
        elif member is not None and self.state is not GroupState.PREPARING_REBALANCE:
            self._prepare_rebalance(f"member {member_id} failed: its session timed out")

    def _remove(self, member_id: str) -> None:
        """Take out a member, or one that is expected. Whoever still waits is told to join as a new one."""
        member = self.roster.remove(member_id)
        if member is not None:
            self._answer_join(member, JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=NO_MEMBER_ID))
            self._answer_sync(member, SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID))
        if member_id != NO_MEMBER_ID:
            self._effects.append(CancelTimer(session_timer(member_id)))

    # --- effects -------------------------------------------------------------------------------------------------

    def _member(self, member_id: str) -> Member:
        member = self.roster.get(member_id)
        if member is None:
            raise KeyError(member_id)
        return member

    def _move(self, state: GroupState, reason: str) -> None:
        self.state = state
        self._effects.append(Moved(state, self.generation, reason))

    def _renew_session(self, member: Member) -> None:
        self._effects.append(SetTimer(session_timer(member.member_id), member.session_timeout_ms))

    def _persist(self, assignments: Mapping[str, bytes], then: Callable[[], None]) -> None:
        self._tokens += 1
        self._when_persisted[self._tokens] = then
        content = PersistedGroup(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.roster.leader,
            members=persisted_members(self.roster, self.protocol, assignments),
        )
        self._effects.append(Persist(self._tokens, content))

    # --- answers -------------------------------------------------------------------------------------------------

    def _answer_join(self, member: Member, answer: JoinAnswer) -> None:
        if member.awaiting_join is not None:
            self._effects.append(Answered(member.awaiting_join, answer))
            member.awaiting_join = None

    def _answer_sync(self, member: Member, answer: SyncAnswer) -> bool:
        if member.awaiting_sync is None:
            return False
        self._effects.append(Answered(member.awaiting_sync, answer))
        member.awaiting_sync = None
        return True

    def _join_answer(self, member: Member, *, skip_assignment: bool = False, leader: str | None = None) -> JoinAnswer:
        is_leader = leader is None and member.member_id == self.roster.leader
        return JoinAnswer(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=leader or self.roster.leader or NO_MEMBER_ID,
            skip_assignment=skip_assignment,
            members=tuple(
                JoinedMember(member_id=one.member_id, instance_id=one.instance_id, metadata=one.metadata(self.protocol))
                for one in self.roster
            )
            if is_leader
            else (),
        )

    def _sync_answer(self, member: Member) -> SyncAnswer:
        return SyncAnswer(protocol_type=self.protocol_type, protocol=self.protocol, assignment=member.assignment)


def _nothing() -> None:
    return None
