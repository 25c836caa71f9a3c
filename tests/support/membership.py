"""Brokers as members only, on virtual time: their shards on one log, and a network that breaks when it is told.

A process that is killed answers nobody, and its connections are reset; one that is paused keeps them, and is silent.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from diskless_core.cluster.membership.model import BrokerListener, BrokerSpec
from diskless_core.cluster.membership.operations import Objection, no_objection
from diskless_core.cluster.membership.part import Membership, MembershipNeighbours, MembershipSettings
from diskless_core.cluster.membership.peers import RegisteredPeers
from diskless_core.cluster.membership.sessions import SessionTimes
from diskless_core.cluster.shard import ClusterShard
from diskless_core.coordinator.peers import (
    AnswerLostError,
    PeerAddress,
    PeerGoneError,
    PeerRequest,
    PeerUnavailableError,
)
from diskless_core.coordinator.shard import ShardServices
from diskless_core.groups.shard import GroupsShard
from diskless_core.metrics import Metrics
from diskless_core.protocol.feature_levels import LevelRange
from diskless_core.shards import CLUSTER_SHARD, GROUPS
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.virtual_time import VirtualClock, run

BROKERS = "BROKERS"
CLUSTER_ID = "c"
SESSION_S, HEARTBEAT_S = 9.0, 2.0
TIMES = SessionTimes(session_s=SESSION_S, heartbeat_s=HEARTBEAT_S)
DELAY_S = 0.001


class FakeLink:
    """A connection, as the side sees it that was connected to."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []
        self.is_lost = False

    def on_lost(self, listener: Callable[[], None]) -> None:
        if self.is_lost:
            listener()
        else:
            self._listeners.append(listener)

    def lose(self) -> None:
        self.is_lost = True
        for listener in self._listeners:
            listener()


class MemberProcess:
    """One process of a broker. `port` tells it from others of the same node id.

    Args:
        advertised: the port that it says it has for other brokers, if that is another one.
    """

    def __init__(
        self,
        world: MemberWorld,
        node_id: int,
        port: int,
        *,
        seed: int,
        objection: Objection = no_objection,
        log_node_id: int | None = None,
        allocation_id: uuid.UUID | None = None,
        advertised: int | None = None,
    ) -> None:
        self.node_id = node_id
        self.port = port
        self.is_dead = False
        self.is_paused = False
        self.log_is_ok = True
        self.links: dict[int, tuple[MemberProcess, FakeLink]] = {}
        self.metrics = Metrics()
        self._world = world
        self._log = world.shared.node(log_node_id or node_id)
        self._objection = objection
        clock = VirtualClock(asyncio.get_running_loop(), seed=seed)
        services = ShardServices(
            node_id=log_node_id or node_id, clock=clock, log=self._log, store=MemoryCoordinatorStore()
        )
        self._clock = clock
        self.shard = ClusterShard(CLUSTER_SHARD, services)
        self.groups = GroupsShard(GROUPS.shard(0), services)
        self.peers = RegisteredPeers(node_id, BROKERS)
        self.peers.follow(self.shard)
        self.membership = Membership(
            MembershipSettings(times=TIMES, listener=BROKERS, allocation_id=allocation_id),
            MembershipNeighbours(
                cluster_id=CLUSTER_ID,
                shard=self.shard,
                shards=[self.shard, self.groups],
                is_shared=True,
                hands_over=True,
                transport=self,
                ask_once=self.ask_once,
                spec=BrokerSpec(
                    node_id=node_id,
                    incarnation_id=clock.new_uuid(),
                    listeners=(
                        BrokerListener("CLIENTS", "h", port + 1000),
                        BrokerListener(BROKERS, "h", advertised or port),
                    ),
                    rack=f"rack-{node_id}",
                    features={"diskless.version": LevelRange(1, 1)},
                ),
                log_is_ok=lambda: self.log_is_ok,
                clock=clock,
                metrics=self.metrics,
                objection=objection,
            ),
        )

    async def boot(self) -> None:
        """Follow the log."""
        await self._log.start()
        for shard in (self.shard, self.groups):
            await shard.start()
        await self.shard.until_serving()

    async def join(self) -> None:
        """Become a member, as a start of a broker does."""
        await self.boot()
        await self.membership.start()

    async def stop(self) -> None:
        if not self.is_dead:
            await self.membership.stop()
            for shard in (self.shard, self.groups):
                await shard.stop()
            await self._log.stop()

    async def kill(self) -> None:
        """As by kill -9: the machine resets its connections."""
        self.is_dead = True
        await self.membership.stop()
        tasks = [*self.shard._tasks, *self.groups._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._log.stop()
        self._world.processes.remove(self)
        self._world.reset(self)

    # --- the transport -----------------------------------------------------------------------------------------------

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        address = self.peers.address_of(node_id)
        target = self._world.at(address.port) if address is not None else None
        if target is None:
            raise PeerGoneError(f"nobody listens for {node_id}")
        _, link = self.links.setdefault(target.port, (target, FakeLink()))
        if link.is_lost:
            link = FakeLink()
            self.links[target.port] = (target, link)
        await asyncio.sleep(DELAY_S)
        if self.is_paused or target.is_paused:
            await asyncio.sleep(timeout_s)
            raise AnswerLostError("no answer in time")
        answer = await target.membership.service.answer(request, link)
        await asyncio.sleep(DELAY_S)
        if link.is_lost:
            raise AnswerLostError("the connection broke")
        return answer

    async def ask_once(self, address: PeerAddress, request: PeerRequest, timeout_s: float) -> bytes:
        began_s = asyncio.get_running_loop().time()
        self._world.asked.append(address.port)
        while address.port in self._world.dropping:
            await asyncio.sleep(DELAY_S)
            if asyncio.get_running_loop().time() - began_s >= timeout_s:
                raise PeerUnavailableError(f"no connection to {address.host}:{address.port}")
        target = self._world.at(address.port)
        if target is None:
            raise PeerGoneError(f"nobody listens at {address.host}:{address.port}")
        await asyncio.sleep(2 * DELAY_S)
        if target.is_paused:
            await asyncio.sleep(timeout_s)
            raise AnswerLostError("no answer in time")
        answer = await target.membership.service.answer(request)
        await asyncio.sleep(DELAY_S)
        return answer

    # --- what is asserted --------------------------------------------------------------------------------------------

    @property
    def live(self) -> list[int]:
        """The node ids of live brokers, as this process knows."""
        return [one.spec.node_id for one in self.membership.brokers.live()]

    @property
    def known(self) -> list[int]:
        return [one.spec.node_id for one in self.membership.brokers.all()]


class MemberWorld:
    """Processes on one log. The first node leads the cluster's and the groups' shards until somebody else is to.

    Attributes:
        dropping: ports that a firewall keeps others from, without a word.
        asked: the ports that somebody has asked by a connection for that alone.
    """

    def __init__(self) -> None:
        self.dropping: set[int] = set()
        self.asked: list[int] = []
        self.shared = SharedLog()
        self.processes: list[MemberProcess] = []
        self._ports = 9000
        self.lead(1)
        self.coordinate_groups(1)

    def lead(self, node_id: int) -> None:
        """From now on this node is to be the controller."""
        self.shared.set_leader(CLUSTER_SHARD, node_id)

    def let_candidates_lead(self) -> None:
        """From now on the first node that stands is to be the controller."""
        state = self.shared.state(CLUSTER_SHARD)
        state.hints.clear()
        state.notify()

    def coordinate_groups(self, node_id: int) -> None:
        """From now on this node is to lead the groups' shard."""
        self.shared.set_leader(GROUPS.shard(0), node_id)

    def process(self, node_id: int, *, port: int | None = None, **arguments: Any) -> MemberProcess:
        """A new process, which has not been started."""
        self._ports += 1
        made = MemberProcess(self, node_id, port or self._ports, seed=self._ports, **arguments)
        self.processes.append(made)
        return made

    async def join(self, *node_ids: int) -> list[MemberProcess]:
        """New processes that are members."""
        made = [self.process(node_id) for node_id in node_ids]
        await asyncio.gather(*(one.join() for one in made))
        return made

    def at(self, port: int) -> MemberProcess | None:
        return next((one for one in self.processes if one.port == port), None)

    def reset(self, process: MemberProcess) -> None:
        """Reset all connections from and to a process."""
        for other in [process, *self.processes]:
            for port, (target, link) in list(other.links.items()):
                if process in (other, target) and not link.is_lost:
                    link.lose()
                    del other.links[port]
                    if not other.is_dead:
                        other.membership.connection_lost(target.node_id)

    async def stop(self) -> None:
        for process in self.processes:
            await process.stop()


def in_world(scene: Callable[[MemberWorld], Awaitable[None]]) -> None:
    """Play a scene on virtual time."""

    async def play() -> None:
        world = MemberWorld()
        try:
            await scene(world)
        finally:
            await world.stop()

    run(play)


async def until(condition: Callable[[], bool], limit_s: float = 60.0) -> float:
    """Wait until something holds; how long that took, in seconds."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while not condition():
        assert loop.time() - began_s < limit_s, "it does not come to hold"
        await asyncio.sleep(0.005)
    return loop.time() - began_s


def begun(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Work that goes on beside the scene."""
    return asyncio.create_task(work)
