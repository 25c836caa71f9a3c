"""The leader's side of membership: it registers brokers, hears their heartbeats, and fences who is silent.

Whoever leads the cluster shard does this, as Kafka's controller does. (KIP-631, "Broker registration", "Broker
heartbeats".) Heartbeats are remembered by the leader alone; only what changes a registration is written.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

import structlog

from diskless_core.clock import LEAST_PAUSE_S, Clock
from diskless_core.cluster.membership import node_ids, operations
from diskless_core.cluster.membership.clocks import ControllersClock, controllers_clock
from diskless_core.cluster.membership.fenced import why_fenced
from diskless_core.cluster.membership.heartbeats import Beat, Decision, Surroundings, decide
from diskless_core.cluster.membership.model import BrokerSpec, LiveBroker, Registration
from diskless_core.cluster.membership.node_ids import Idle
from diskless_core.cluster.membership.operations import Duplicate, Objection, no_objection
from diskless_core.cluster.membership.reachability import Reachability
from diskless_core.cluster.membership.sessions import UNKNOWN_HEALTH, Health, Predecessor, Sessions, SessionTimes
from diskless_core.cluster.membership.tables import BROKERS
from diskless_core.cluster.operations import ClusterCommand, Refusal, take_producer_ids
from diskless_core.cluster.shard import ClusterShard
from diskless_core.coordinator.errors import CoordinatorError, NotControllerError
from diskless_core.coordinator.tables import Writes
from diskless_core.protocol.errors import ErrorCode
from diskless_core.side_by_side import side_by_side

LOOK_SHARE = 0.75
"""Of a heartbeat's time, after which sessions are looked at at the latest, as `Sessions.ended` has to be."""

BROKERS_IN_ONE_ENTRY = 256
"""How many brokers one entry of the log fences or retires: some KiB, and some milliseconds on each replica."""

_WANTS_TO_STOP = "it wants to stop"

_log = structlog.get_logger(__name__)

T = TypeVar("T")


class Link(Protocol):
    """The connection by which a broker speaks to the leader."""

    def on_lost(self, listener: Callable[[], None]) -> None:
        """Call `listener` when it is gone; at once, if it is."""
        ...


class Registrar:
    """What the leader of the cluster shard does about members. On other nodes it refuses everything.

    Args:
        leads: whether a broker leads a shard that another one can be nominated for.
        incarnation_id: of this node's own process.
        predecessor: the controller before this node, as far as is known.
        reachability: asks brokers whether they are where they say before they are unfenced.
        objection: why a broker may not register beside what is looked at here, such as the levels of its features.
    """

    def __init__(
        self,
        shard: ClusterShard,
        times: SessionTimes,
        clock: Clock,
        *,
        node_id: int,
        incarnation_id: uuid.UUID,
        leads: Callable[[int], bool],
        predecessor: Callable[[], Predecessor | None],
        reachability: Reachability,
        objection: Objection = no_objection,
    ) -> None:
        self._shard = shard
        self._times = times
        self._clock = clock
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._leads = leads
        self._predecessor = predecessor
        self._reachability = reachability
        self._objection = objection
        self._term: int | None = None
        self._sessions = Sessions(times, clock.monotonic(), (), None)
        self._registered_offsets: dict[int, int] = {}
        self._refused: dict[int, str] = {}
        self._kept: dict[int, str] = {}
        self._links: dict[int, Link] = {}
        self._clocks_ahead_ms: dict[int, int] = {}
        self._watched: set[Link] = set()
        self._listeners: list[Callable[[], None]] = []
        self._wake = asyncio.Event()
        shard.on_commit(self._committed)

    # --- what the controller knows -----------------------------------------------------------------------------------

    def live(self) -> Sequence[LiveBroker]:
        """The brokers that can be given work, by node id: neither fenced nor about to stop. Only the leader knows."""
        return [
            LiveBroker(
                node_id=node_id,
                rack=one.spec.rack,
                is_healthy=health.is_ok,
                barred=health.barred,
                doubtful=health.doubtful,
                ready=health.ready,
                led=health.led,
            )
            for node_id, one in operations.registrations(self._shard.state).items()
            if one.is_live and not one.is_shutting_down
            for health in (self._sessions.health(node_id),)
        ]

    def is_fenced(self, node_id: int) -> bool:
        """Whether a broker is fenced, or none of the cluster's."""
        known = self._shard.state.committed(BROKERS, (node_id,))
        return known is None or not known.is_live

    def fenced(self) -> Mapping[int, str]:
        """Why each fenced broker is, by node id, for people.

        Raises:
            NotControllerError: another node leads the cluster shard.
        """
        sessions, now_s = self._begun(), self._clock.monotonic()
        return {
            node_id: why_fenced(one, sessions, now_s, kept=self._kept.get(node_id), refused=self._refused.get(node_id))
            for node_id, one in operations.registrations(self._shard.state).items()
            if one.is_fenced
        }

    def clock(self) -> ControllersClock:
        """What this node's clock says, and how those of live brokers compare, as far as they have said so."""
        live = {node_id: ms for node_id, ms in self._clocks_ahead_ms.items() if not self.is_fenced(node_id)}
        return controllers_clock(self._clock.now_ms(), live)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever `live` may answer something new. It must be quick."""
        self._listeners.append(listener)

    # --- requests ----------------------------------------------------------------------------------------------------

    async def register(
        self, spec: BrokerSpec, link: Link | None = None, allocation_id: uuid.UUID | None = None
    ) -> Registration | Refusal | Duplicate:
        """Make a broker a member.

        Args:
            allocation_id: what its node id was asked for with; None where it was configured.

        Raises:
            NotControllerError: another node leads the cluster shard.
            CoordinatorError: no answer; it may be asked again.
        """
        sessions = self._begun()

        def is_live(known: Registration) -> bool:
            node_id = known.spec.node_id
            if node_id == self._node_id:  # this very process lives, and no other one with its id
                return known.spec.incarnation_id == self._incarnation_id
            # A process that was let go or fenced, or that had the very listeners that another one has now, has ended,
            # unless this controller has heard of it.
            is_granted = known.is_live and not known.is_shutting_down and known.spec.listeners != spec.listeners
            now_s = self._clock.monotonic()
            return sessions.is_live(node_id, now_s, is_granted=is_granted)

        answer = await self._shard.submit(
            lambda command: operations.register(
                command, spec, is_live=is_live, objection=self._objection, allocation_id=allocation_id
            )
        )
        now_s = self._clock.monotonic()
        if isinstance(answer, Refusal):
            if self._refused.get(spec.node_id) != answer.message:
                self._note_refusal(spec.node_id, answer)
                _log.warning("a broker may not register", broker=spec.node_id, reason=answer.message)
            if answer.code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                return answer
            silent_s = 0.0 if spec.node_id == self._node_id else sessions.silent_s(spec.node_id, now_s)
            return Duplicate(refusal=answer, silent_s=silent_s)
        self._refused.pop(spec.node_id, None)
        self._kept.pop(spec.node_id, None)
        self._registered_offsets[spec.node_id] = self._shard.next_offset
        self._hear(sessions, spec.node_id, link, now_s, UNKNOWN_HEALTH)
        if answer.is_fenced and spec.node_id != self._node_id:
            self._reachability.begin(answer)  # it reads the log meanwhile
        _log.info("a broker has registered", broker=spec.node_id, epoch=answer.epoch, address=spec.address)
        return answer

    def _note_refusal(self, node_id: int, refusal: Refusal) -> None:
        """Remember why a process may not register, within a bound: who asks may make up node ids."""
        self._refused.pop(node_id, None)
        self._refused[node_id] = refusal.message
        if len(self._refused) > node_ids.MAX_BROKERS:
            del self._refused[next(iter(self._refused))]

    async def allocate_node_id(self, allocation_id: uuid.UUID) -> int | Refusal:
        """A node id for a broker that has none: the same one for the same allocation id.

        Raises:
            NotControllerError: another node leads the cluster shard.
            CoordinatorError: no answer; it may be asked again.
        """
        self._begun()
        answer = await self._shard.submit(lambda command: node_ids.allocate(command, allocation_id))
        if isinstance(answer, Refusal):
            _log.warning("a broker gets no node id", reason=answer.message)
        else:
            _log.info("a broker has a node id of the cluster", broker=answer, allocation=str(allocation_id))
        return answer

    async def heartbeat(self, beat: Beat, link: Link | None = None) -> Decision | ErrorCode:
        """Hear of a broker, and do what it asks for if it can be done. What became of it, when that is committed.

        Raises:
            NotControllerError: another node leads the cluster shard.
            CoordinatorError: no answer; it may be asked again.
        """
        sessions = self._begun()
        known = operations.check_epoch(self._shard.state, beat.node_id, beat.epoch)
        if isinstance(known, ErrorCode):
            return known
        was = sessions.health(beat.node_id)
        self._hear(sessions, beat.node_id, link, self._clock.monotonic(), beat.health)
        if beat.compared is not None and beat.compared.controller == self._node_id != beat.node_id:
            self._clocks_ahead_ms[beat.node_id] = beat.compared.ahead_ms
        if was.troubles != beat.health.troubles:
            _log.info(
                "a broker says how its backends are",
                broker=beat.node_id,
                log_is_ok=beat.health.log_is_ok,
                bucket_is_ok=beat.health.bucket_is_ok,
                barred=sorted(map(str, beat.health.barred)),
                doubtful=sorted(map(str, beat.health.doubtful)),
            )
        if was != beat.health:
            self._tell()
        decision = decide(beat, known, self._around(beat.node_id))
        if decision.is_fenced is False and beat.node_id != self._node_id:
            unreachable = await self._reachability.obstacle(known)
            if unreachable is not None:
                decision = replace(
                    decision, is_fenced=None, reason=unreachable.reason, is_unreachable=unreachable.is_certain
                )
        if decision.reason is None:
            self._kept.pop(beat.node_id, None)
        else:
            self._kept[beat.node_id] = decision.reason
        if decision.is_fenced is not None or decision.shuts_down:
            reason = _WANTS_TO_STOP if beat.want_shut_down else "it cannot serve yet"
            await self._change(known, reason, is_fenced=decision.is_fenced, shuts_down=decision.shuts_down)
        return decision

    async def unregister(self, node_id: int) -> Refusal | None:
        """Forget a broker that is fenced.

        Raises:
            NotControllerError: another node leads the cluster shard.
            CoordinatorError: no answer; it may be asked again.
        """
        sessions = self._begun()
        refusal = await self._shard.submit(lambda command: operations.unregister(command, node_id))
        if refusal is None:
            self._forget(sessions, node_id)
            _log.info("a broker is unregistered", broker=node_id)
        return refusal

    async def take_producer_ids(self, node_id: int, epoch: int) -> range | ErrorCode:
        """A block of producer ids for a broker, as long as this is its registration. (KIP-730.)

        Raises:
            NotControllerError: another node leads the cluster shard.
            CoordinatorError: no answer; another block may be asked for.
        """
        self._begun()

        def take(command: ClusterCommand) -> range | ErrorCode:
            known = operations.check_epoch(command.tx, node_id, epoch)
            return known if isinstance(known, ErrorCode) else take_producer_ids(command, node_id, epoch)

        return await self._shard.submit(take)

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fence who is silent for a session, whenever this node leads; for ever."""
        term: int | None = None
        while True:
            term = await self._shard.until_term_changes(term)
            while term is not None and self._shard.term == term:
                try:
                    await self._fence_silent(self._begun())
                except NotControllerError:
                    break
                except CoordinatorError as error:
                    _log.warning("a broker could not be fenced; it is tried again", error=str(error))
                    await asyncio.sleep(self._times.heartbeat_s / 4)

    async def _fence_silent(self, sessions: Sessions) -> None:
        """Fence whose session is over, and sleep until the next one may be.

        A zone may vanish, and an append may take long: all brokers that are due are fenced by one append.
        """
        now_s = self._clock.monotonic()
        live = {node_id: one for node_id, one in operations.registrations(self._shard.state).items() if one.is_live}
        silent = sessions.ended(now_s) - {self._node_id}
        ill = sessions.ill(now_s, live)
        reasons = {node_id: sessions.silence(node_id, now_s) for node_id in live.keys() & silent}
        reasons |= {node_id: sessions.health(node_id).complaint for node_id in live.keys() & (ill - silent)}
        await self._fence([live[node_id] for node_id in sorted(reasons)], reasons)
        await self._retire_idle(sessions, now_s)
        self._wake.clear()
        next_end_s = sessions.next_end_s(live.keys() - silent - {self._node_id})
        pause_s = self._times.heartbeat_s * LOOK_SHARE
        if next_end_s is not None:
            pause_s = min(pause_s, max(LEAST_PAUSE_S, next_end_s - self._clock.monotonic()))
        try:
            async with asyncio.timeout(pause_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _fence(self, brokers: Sequence[Registration], reasons: Mapping[int, str]) -> None:
        async def fence(some: Sequence[Registration]) -> None:
            for node_id in await self._shard.submit(partial(operations.fence, brokers=some)):
                _log.warning("a broker is fenced", broker=node_id, reason=reasons[node_id])

        await side_by_side(fence, _by_entry(brokers))

    async def _retire_idle(self, sessions: Sessions, now_s: float) -> None:
        """Unregister the brokers whose ids the cluster gave them, and that have been away for long."""
        passed = self._shard.clock_watch.passed()
        heard = {
            node_id
            for node_id in operations.registrations(self._shard.state)
            if node_id == self._node_id or sessions.is_live(node_id, now_s, is_granted=True)
        }

        async def retire(due: Sequence[Idle]) -> None:
            for one in await self._shard.submit(partial(node_ids.retire, due=due, passed=passed)):
                self._forget(sessions, one.node_id)
                _log.warning("a broker was away for so long that its node id is retired", broker=one.node_id)

        await side_by_side(retire, _by_entry(node_ids.idle(self._shard.state, passed, heard)))

    def _forget(self, sessions: Sessions, node_id: int) -> None:
        sessions.forget(node_id)
        self._reachability.forget(node_id)
        self._registered_offsets.pop(node_id, None)
        self._clocks_ahead_ms.pop(node_id, None)
        self._kept.pop(node_id, None)
        self._refused.pop(node_id, None)

    def _begun(self) -> Sessions:
        """The sessions of the present term, which begin with the first question or the first look.

        Raises:
            NotControllerError: this node does not lead.
        """
        term = self._shard.term
        if term is None:
            raise NotControllerError(f"node {self._node_id} is not the controller")
        if self._term != term:
            members = operations.registrations(self._shard.state)
            now_s = self._clock.monotonic()
            self._sessions = Sessions(self._times, now_s, members, self._predecessor())
            self._registered_offsets = dict.fromkeys(members, term)
            self._refused.clear()
            self._kept.clear()
            self._links.clear()
            self._clocks_ahead_ms.clear()
            self._reachability.forget_all()
            self._term = term
        return self._sessions

    def _hear(self, sessions: Sessions, node_id: int, link: Link | None, now_s: float, health: Health) -> None:
        sessions.heard(node_id, now_s, health)
        if link is None:
            self._links.pop(node_id, None)
            return
        self._links[node_id] = link
        if link not in self._watched:  # a connection keeps what listens to it
            self._watched.add(link)
            link.on_lost(lambda: self._lost(link))

    def _lost(self, link: Link) -> None:
        """Nobody is heard by this connection any more."""
        self._watched.discard(link)
        for node_id in [node_id for node_id, one in self._links.items() if one is link]:
            del self._links[node_id]
            self._sessions.broke(node_id, self._clock.monotonic())
            self._wake.set()

    # --- changes -----------------------------------------------------------------------------------------------------

    def _around(self, node_id: int) -> Surroundings:
        others = [one for one in self.live() if one.node_id != node_id]
        return Surroundings(
            registered_offset=self._registered_offsets.get(node_id, 0),
            leads=bool(self._sessions.health(node_id).led) or self._leads(node_id),
            others_are_live=bool(others),
            somebody_is_well=any(one.is_healthy for one in others),
        )

    async def _change(
        self, known: Registration, reason: str, *, is_fenced: bool | None = None, shuts_down: bool = False
    ) -> None:
        node_id = known.spec.node_id
        changed = await self._shard.submit(
            lambda command: operations.change(command, node_id, known.epoch, is_fenced=is_fenced, shuts_down=shuts_down)
        )
        if not changed:
            return
        if is_fenced is None:
            _log.info("a broker is about to stop", broker=node_id)
        elif is_fenced:
            log = _log.info if reason == _WANTS_TO_STOP else _log.warning
            log("a broker is fenced", broker=node_id, reason=reason)
        else:
            self._reachability.forget(node_id)
            _log.info("a broker is unfenced", broker=node_id)

    def _committed(self, writes: Writes) -> None:
        if BROKERS in writes:
            self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def _by_entry(brokers: Sequence[T]) -> Sequence[Sequence[T]]:
    return [brokers[first : first + BROKERS_IN_ONE_ENTRY] for first in range(0, len(brokers), BROKERS_IN_ONE_ENTRY)]
