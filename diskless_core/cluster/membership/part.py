"""Membership on one node, as a part: the broker as a member, what it knows of the others, its side as controller."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from diskless_core.background import Background
from diskless_core.clock import Clock
from diskless_core.cluster.membership.brokers import Brokers
from diskless_core.cluster.membership.member import Member
from diskless_core.cluster.membership.model import BrokerSpec
from diskless_core.cluster.membership.operations import Objection, no_objection
from diskless_core.cluster.membership.reachability import Reachability
from diskless_core.cluster.membership.registrar import Registrar
from diskless_core.cluster.membership.service import MembershipService
from diskless_core.cluster.membership.sessions import Health, Predecessor, SessionTimes
from diskless_core.cluster.shard import ClusterShard
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.calls import PeerCalls
from diskless_core.coordinator.peers import AskOnce, PeerTransport
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.metrics import Metrics
from diskless_core.plugin.shard import ShardId

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    """What an operator says of it.

    Attributes:
        listener: the name of the inter-broker listener; None where there is none.
        allocation_id: what the node id was asked for with; None where it was configured.
    """

    times: SessionTimes
    listener: str | None
    allocation_id: uuid.UUID | None = None

    @classmethod
    def of(cls, config: BrokerConfig, allocation_id: uuid.UUID | None) -> MembershipSettings:
        """Those of a broker."""
        times = SessionTimes(
            session_s=config.broker_session_timeout_ms / 1000, heartbeat_s=config.broker_heartbeat_interval_ms / 1000
        )
        return cls(times=times, listener=config.inter_broker_listener_name, allocation_id=allocation_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipNeighbours:
    """What membership stands on.

    Attributes:
        shard: the cluster shard, which has been started.
        shards: all shards of this node, the cluster shard among them.
        hands_over: whether the controller nominates leaders: a broker that stops waits until others lead its shards.
        is_shared: whether other brokers can have the same log.
        transport: to other brokers, for nothing but membership.
        ask_once: asks whoever listens at an address.
        spec: what this process says of itself.
        log_is_ok: whether the coordinator log answers.
        objection: why a broker may not register, while this node leads the cluster shard.
    """

    cluster_id: str
    shard: ClusterShard
    shards: Sequence[CoordinatorShard[Any]]
    is_shared: bool
    hands_over: bool
    transport: PeerTransport
    ask_once: AskOnce
    spec: BrokerSpec
    log_is_ok: Callable[[], bool]
    clock: Clock
    metrics: Metrics
    objection: Objection = no_objection


class Membership:
    """See the module.

    Attributes:
        brokers: the brokers of the cluster.
        registrar: what this node does while it leads the cluster shard.
        bucket_is_ok: whether the WAL object store takes what this broker writes, and answers what it reads; to be set
            when that is known.
        has_clients: whether this broker, when it stops, waits for clients to go to others. It is not fenced meanwhile.
    """

    def __init__(self, settings: MembershipSettings, neighbours: MembershipNeighbours) -> None:
        shard, self._times, self._clock = neighbours.shard, settings.times, neighbours.clock
        spec = neighbours.spec
        self._node_id = spec.node_id
        self._shard = shard
        self._shards = neighbours.shards
        self._is_shared = neighbours.is_shared
        self._handed_over = [one for one in neighbours.shards if neighbours.hands_over and one is not shard]
        self._log_is_ok = neighbours.log_is_ok
        self.bucket_is_ok: Callable[[], bool] = lambda: True
        self.has_clients: Callable[[], bool] = lambda: False
        self.brokers = Brokers(shard, spec.node_id)
        self._incarnation_id = spec.incarnation_id
        self._reachability = Reachability(
            settings.listener,
            neighbours.ask_once,
            settings.times,
            neighbours.clock,
            cluster_id=neighbours.cluster_id,
        )
        self.registrar = Registrar(
            shard,
            settings.times,
            neighbours.clock,
            node_id=spec.node_id,
            incarnation_id=spec.incarnation_id,
            leads=self._leads,
            predecessor=self._predecessor,
            reachability=self._reachability,
            objection=neighbours.objection,
        )
        timeout_ms = int(settings.times.session_s * 500)  # two fit into a session
        calls = PeerCalls(neighbours.transport, timeout_ms=timeout_ms, transfer_s=0)
        self.service = MembershipService(
            self.registrar, spec, cluster_id=neighbours.cluster_id, shards=[one.id for one in neighbours.shards]
        )
        self._member = Member(
            spec,
            shard,
            self.service,
            calls,
            settings.times,
            neighbours.clock,
            cluster_id=neighbours.cluster_id,
            allocation_id=settings.allocation_id,
            health=self._health,
            has_clients=lambda: self.has_clients(),
            leads=self._led_here,
        )
        self._loops = Background()
        neighbours.metrics.watch_brokers(self.brokers.count)
        neighbours.metrics.watch_clocks(shard.clock_watch)

    async def start(self) -> None:
        """Become a member, and unfenced once this node's copies of all shards have read what was in the log.

        The controller asks for this broker at its inter-broker listener before that, which has to answer by now.

        Raises:
            MembershipRefusedError: the cluster does not take this broker.
            CoordinatorError: a shard cannot be used on this node.
        """
        self._loops.run(self.registrar.run, "brokers' sessions")
        self._loops.run(self._member.run, "membership")
        await self._member.until_registered()
        for shard in self._shards:
            await shard.until_caught_up()
        await self._member.until_unfenced()

    async def leave(self, limit_s: float) -> None:
        """Shut down in an orderly way, `limit_s` at most: the controller moves what this broker leads.

        A controller does so first with what it leads beside the cluster shard, and then gives that up too. It goes on
        when another node has claimed it, for otherwise nobody would nominate leaders or fence brokers meanwhile. A
        broker whose log is its own has nobody to leave it to.
        """
        if not self._is_shared:
            return
        give_up_s = self._clock.monotonic() + limit_s
        await self._member.leave(limit_s)
        was_controller = self._shard.leading
        self._shard.withdraw()
        if was_controller and self.somebody_stays:
            await self._until_replaced(max(0.0, give_up_s - self._clock.monotonic()))

    @property
    def somebody_stays(self) -> bool:
        """Whether another broker goes on when this one stops, as far as it knows."""
        others = (one for one in self.brokers.live() if one.spec.node_id != self._node_id)
        return any(not one.is_shutting_down for one in others)

    async def _until_replaced(self, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._shard.until_leadership(lambda: self._shard.claimed_by != self._node_id)
        except TimeoutError:
            _log.warning("the broker was the controller and stops before another one is known")

    async def stop(self) -> None:
        """Send no more heartbeats."""
        await self._loops.stop()
        await self._reachability.stop()

    def is_member(self) -> bool:
        """Whether it is this process that is registered with the node id."""
        return self.epoch is not None

    async def until_retired(self) -> None:
        """Wait until the cluster has retired this broker's node id, if it ever does."""
        await self._member.until_retired()

    @property
    def epoch(self) -> int | None:
        """The number of this process's registration; None while it is not known to be registered."""
        known = self.brokers.get(self._node_id)
        return known.epoch if known is not None and known.spec.incarnation_id == self._incarnation_id else None

    @property
    def is_fenced(self) -> bool:
        """Whether the controller keeps this broker fenced, as far as it knows."""
        known = self.brokers.get(self._node_id)
        return known is None or known.is_fenced

    @property
    def is_leaving(self) -> bool:
        """Whether no client is told any more to write to or read from this broker, as far as it knows."""
        known = self.brokers.get(self._node_id)
        return known is None or known.is_fenced or known.is_shutting_down

    @property
    def unreachable_because(self) -> str | None:
        """Why the controller, which does not reach this broker, keeps it fenced, and what to do; None where it does."""
        return self._member.unreachable_because

    def connection_lost(self, node_id: int) -> None:
        """The connection of `transport` to a node broke."""
        self._member.connection_lost(node_id)

    def _leads(self, node_id: int) -> bool:
        """Whether a broker leads, or is to lead, a shard that the controller moves, as far as this node has read.

        The cluster shard it can't move.
        """
        return any(node_id in (shard.leader_hint, shard.claimed_by) for shard in self._handed_over)

    def _led_here(self) -> list[str]:
        """What this node leads, or is to lead, and another node could, as far as this one knows."""
        return [str(one.id) for one in self._handed_over if self._node_id in (one.leader_hint, one.claimed_by)]

    def _predecessor(self) -> Predecessor | None:
        """By the log, if this process has read the claim before its own there; else as it knew before."""
        node_id, member = self._shard.predecessor, self._member
        if node_id is None:
            node_id = member.last_controller
        if node_id is None:
            return None
        is_known = node_id == member.last_controller and member.answered_s is not None
        silent_s = self._clock.monotonic() - (member.answered_s or 0.0) if is_known else 0.0
        return Predecessor(node_id=node_id, is_gone=member.unreachable == node_id, silent_s=silent_s)

    def _health(self) -> Health:
        knows_the_cluster = self._shard.failure is None
        return Health(
            log_is_ok=self._log_is_ok() and knows_the_cluster,
            bucket_is_ok=self.bucket_is_ok(),
            barred=barred(self._shards, self._shard),
            doubtful=doubtful(self._shards, self._node_id),
            ready=frozenset(shard.id for shard in self._handed_over if shard.is_caught_up),
            led=frozenset(shard.id for shard in self._handed_over if shard.claimed_by == self._node_id),
        )


def barred(shards: Sequence[CoordinatorShard[Any]], cluster: CoordinatorShard[Any]) -> frozenset[ShardId]:
    """The shards that a node cannot lead now, of all that it has.

    All of them where its copy of the cluster shard stands still: it would not read that it is nominated.
    """
    if cluster.failure is not None:
        return frozenset(shard.id for shard in shards)
    return frozenset(shard.id for shard in shards if shard.cannot_lead)


def doubtful(shards: Sequence[CoordinatorShard[Any]], node_id: int) -> frozenset[ShardId]:
    """The shards that another node should rather lead, since the log does not take this one's claims.

    Those that it does not lead are among them: it will most likely be so there too.
    """
    if not any(shard.claims_fail for shard in shards):
        return frozenset()
    return frozenset(shard.id for shard in shards if shard.claims_fail or shard.claimed_by != node_id)
