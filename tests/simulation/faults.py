"""The troubles of a simulated world, each at random times until the active phase is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.shards import CLUSTER_SHARD, short_name
from diskless_core.snapshot.format import SnapshotError
from tests.simulation.broker import Broker, Disk
from tests.simulation.bucket import Bucket
from tests.simulation.garbling import Garbler
from tests.simulation.history import History
from tests.simulation.logs import WorldLog
from tests.simulation.network import Network
from tests.simulation.scenario import Scenario

PAUSE_TO_MOVE_S = 1.0
"""How long after a broker stopped others are hinted to lead in its place, at least."""

KILLED_WITHIN_S = 0.5

MOST_GUESTS = 2
"""Brokers beside those of the beginning, at any time."""

LEAVES_WITHIN_S = 15.0

_BACKEND_ERRORS = (CoordinatorError, CoordinatorLogError, CoordinatorStoreError, SnapshotError, WalObjectStoreError)


class Afflicted(Protocol):
    """What troubles need of the world."""

    scenario: Scenario
    history: History
    network: Network
    log: WorldLog
    bucket: Bucket
    shard_ids: Sequence[ShardId]
    brokers: dict[int, Broker]
    disks: dict[int, Disk]
    lagging: set[int]
    garbler: Garbler
    active: bool

    def start_broker(self, node_id: int) -> None: ...


class Troubles:
    """Everything that goes wrong, and how it is made good in the end."""

    def __init__(self, world: Afflicted, source: random.Random) -> None:
        self._world = world
        self._random = source
        self._guests = 0

    def all(self) -> list[Coroutine[Any, Any, None]]:
        scenario = self._world.scenario
        troubles: list[tuple[float, Callable[[], Coroutine[Any, Any, None]]]] = [
            (scenario.kill_every_s, self._kill),
            (scenario.pause_every_s, self._pause),
            (scenario.cut_every_s, self._cut),
            (scenario.lag_every_s, self._lag),
            (scenario.come_and_go_every_s, self._come_and_go),
            (scenario.move_leader_every_s, self._move_leader),
            (scenario.bucket_outage_every_s, self._bucket_outage),
            (scenario.snapshot_every_s, self._snapshot),
            (scenario.scan_every_s, self._scan),
            (scenario.compact_every_s, self._compact),
        ]
        return [self._again_and_again(every_s, trouble) for every_s, trouble in troubles if every_s]

    async def _again_and_again(self, every_s: float, trouble: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while self._world.active:
            await asyncio.sleep(self._random.uniform(0.2, 1.8) * every_s)
            if self._world.active:
                await trouble()

    def _note(self, what: str) -> None:
        self._world.history.note("trouble", what)

    # --- brokers -------------------------------------------------------------------------------------------------

    async def _kill(self) -> None:
        """End a process, and start the next one with its store, with an older one, or with none."""
        broker = self._victim()
        if broker is None:
            return
        disk = self._world.disks[broker.node_id]
        disk_fate = self._random.choice(["kept", "kept", "set back", "lost"])
        self._note(f"kill {broker.process.name}, its store is {disk_fate}")
        await broker.process.freeze_after(self._random.randint(1, 300), KILLED_WITHIN_S)
        if self._world.brokers.get(broker.node_id) is not broker:
            return
        del self._world.brokers[broker.node_id]
        if disk_fate == "set back":
            disk.set_back()
        elif disk_fate == "lost":
            disk.lose()
        asyncio.get_running_loop().call_later(
            self._random.uniform(PAUSE_TO_MOVE_S, 3), self._lead_elsewhere, broker.node_id
        )
        if self._is_guest(broker.node_id):
            self._note(f"{broker.node_id} never comes back")
            del self._world.disks[broker.node_id]
        await asyncio.sleep(self._random.choice([0.05, 2.0, 5.0]))
        self._start_again(broker.node_id)

    async def _pause(self) -> None:
        """Stop a process for a while. It comes back believing what it believed."""
        broker = self._victim()
        if broker is None:
            return
        seconds = self._random.choice([0.3, 3.0, 9.0, 9.0, 30.0])
        self._note(f"pause {broker.process.name} for {seconds} s")
        await broker.process.freeze_after(self._random.randint(1, 300), KILLED_WITHIN_S)
        asyncio.get_running_loop().call_later(PAUSE_TO_MOVE_S, self._lead_elsewhere, broker.node_id)
        await asyncio.sleep(seconds)
        if self._world.brokers.get(broker.node_id) is not broker:
            return
        broker.process.thaw()
        self._note(f"{broker.process.name} goes on")

    async def _come_and_go(self) -> None:
        """A broker joins, or one leaves as it should; those of the beginning come back after a while."""
        guests = len(self._world.disks) - self._world.scenario.brokers
        if guests < MOST_GUESTS and self._random.random() < 0.4:
            self._guests += 1
            node_id = self._world.scenario.brokers + self._guests
            self._note(f"{node_id} joins")
            self._world.disks[node_id] = Disk()
            self._world.start_broker(node_id)
            return
        broker = self._victim()
        if broker is not None and broker.started:
            await self._leave(broker)

    async def _leave(self, broker: Broker) -> None:
        node_id = broker.node_id
        self._note(f"{broker.process.name} is to leave")
        broker.process.start(broker.leave())
        end_s = asyncio.get_running_loop().time() + LEAVES_WITHIN_S
        while not broker.has_left and asyncio.get_running_loop().time() < end_s:
            await asyncio.sleep(0.1)
            if self._world.brokers.get(node_id) is not broker:
                return
        self._note(f"{broker.process.name} {'has left' if broker.has_left else 'is ended while it leaves'}")
        broker.process.freeze()
        del self._world.brokers[node_id]
        if self._is_guest(node_id):
            del self._world.disks[node_id]
            return
        await asyncio.sleep(self._random.choice([0.05, 2.0, 8.0]))
        self._start_again(node_id)

    def _is_guest(self, node_id: int) -> bool:
        return node_id > self._world.scenario.brokers

    def _start_again(self, node_id: int) -> None:
        if node_id not in self._world.brokers and node_id in self._world.disks:
            self._world.start_broker(node_id)

    def _victim(self) -> Broker | None:
        """One that runs: as often as not the controller. None if nobody else would run."""
        any_running = self._any_running()
        controller = self._leader(CLUSTER_SHARD) if self._random.random() < 0.5 else None
        return any_running and (controller or any_running)

    def _any_running(self) -> Broker | None:
        running = [one for one in self._world.brokers.values() if not one.process.is_frozen]
        return self._random.choice(running) if len(running) > 1 else None

    # --- leadership ----------------------------------------------------------------------------------------------

    def _lead_elsewhere(self, node_id: int) -> None:
        """Hint at others for what a node that does not answer led."""
        if not self._world.active or self._world.log.notices_the_dead:
            return
        for shard in self._nominated_by_the_log():
            if self._world.log.nominates(shard, node_id):
                self._hint(shard, self._up(but=node_id))

    async def _move_leader(self) -> None:
        """Nominate another leader; at times only some hear of it."""
        shard = self._random.choice(self._world.shard_ids)
        if shard in self._nominated_by_the_log():
            self._hint(shard, self._up())
        else:
            await self._depose(shard)

    async def _depose(self, shard: ShardId) -> None:
        controller = self._leader(CLUSTER_SHARD)
        if controller is not None:
            await self._maintain(controller, f"another leader of {short_name(shard)}", lambda: controller.depose(shard))

    def _nominated_by_the_log(self) -> Sequence[ShardId]:
        return self._world.shard_ids if self._world.log.nominates_all_shards else [CLUSTER_SHARD]

    def _hint(self, shard: ShardId, candidates: Sequence[int]) -> None:
        if not candidates:
            return
        leader = self._random.choice(candidates)
        some = [node_id for node_id in self._node_ids() if self._random.random() < 0.6]
        seen_by = some if self._random.random() < 0.3 else None
        self._note(
            f"{short_name(shard)} is said to be led by {leader}" + (f", to {some}" if seen_by is not None else "")
        )
        self._world.log.nominate(shard, leader, seen_by=seen_by)

    def _up(self, but: int | None = None) -> list[int]:
        return [
            node_id
            for node_id, one in sorted(self._world.brokers.items())
            if node_id != but and not one.process.is_frozen
        ]

    # --- what is between them ------------------------------------------------------------------------------------

    async def _cut(self) -> None:
        one, other = self._random.sample([Network.CLIENT, *self._node_ids()], 2)
        others = [other]
        controller = self._leader(CLUSTER_SHARD)
        if controller is not None and self._random.random() < 0.5:
            one = controller.node_id
            others = [node_id for node_id in self._node_ids() if node_id != one]
        self._note(f"cut {one} off from {', '.join(map(str, others))}")
        for other in others:
            self._world.network.cut(one, other)
        await asyncio.sleep(self._random.uniform(0.5, 8))
        self._world.network.heal()
        self._note("all reach each other")

    async def _lag(self) -> None:
        """A replica gets nothing new for a while, from the log or from anybody."""
        node_id = self._random.choice(self._node_ids())
        is_deaf = self._random.random() < 0.7
        self._note(f"{node_id} lags" if is_deaf else f"{node_id} gets nothing new from the log")
        self._world.log.pause_reads(node_id)
        if is_deaf:
            self._world.lagging.add(node_id)
        deposed = await self._depose_unheard(node_id) if self._random.random() < 0.8 else {}
        await asyncio.sleep(self._random.uniform(0.2, 6))
        self._world.log.resume_reads(node_id)
        self._world.lagging.discard(node_id)
        for shard, leader in deposed.items():
            if self._world.active:
                self._world.log.nominate(shard, leader)

    async def _depose_unheard(self, node_id: int) -> dict[ShardId, int]:
        """Nominate others for what a node leads, of which it does not hear. Who leads then, where the log says so."""
        others = self._up(but=node_id)
        shards = self._nominated_by_the_log()
        led = [shard for shard in shards if self._world.log.nominates(shard, node_id)]
        broker = self._world.brokers.get(node_id)
        if broker is not None and broker.started:
            for shard in self._world.shard_ids:
                if shard not in shards and broker.shard(shard).leading:
                    await self._depose(shard)
        deposed = {shard: self._random.choice(others) for shard in led} if others else {}
        for shard, leader in deposed.items():
            self._note(f"{short_name(shard)} is said to be led by {leader}, to all but {node_id}")
            self._world.log.nominate(shard, leader, seen_by=[one for one in self._node_ids() if one != node_id])
        return deposed

    def _node_ids(self) -> list[int]:
        return sorted(self._world.disks)

    async def _bucket_outage(self) -> None:
        self._note("the object store is down")
        self._world.bucket.down = True
        await asyncio.sleep(self._random.uniform(0.5, 6))
        self._world.bucket.down = False

    # --- maintenance ---------------------------------------------------------------------------------------------

    async def _snapshot(self) -> None:
        """Take a snapshot of a shard where it is led, prune the log; keep a copy of that broker's store."""
        shard = self._random.choice(self._world.shard_ids)
        broker = self._leader(shard)
        if broker is not None:
            self._world.disks[broker.node_id].keep()
            await self._maintain(broker, f"snapshot of {short_name(shard)}", lambda: broker.take_snapshot(shard))

    async def _scan(self) -> None:
        """Look for orphans where the broker does, which is where the topics are."""
        broker = self._leader(CLUSTER_SHARD)
        if broker is not None:
            await self._maintain(broker, "scan for orphans", broker.scan_for_orphans)

    async def _compact(self) -> None:
        broker = self._any_running()
        if broker is not None and broker.started:
            await self._maintain(broker, "compaction", broker.compact)

    def _leader(self, shard: ShardId) -> Broker | None:
        """One that runs and believes to lead a shard."""
        for _, broker in sorted(self._world.brokers.items()):
            if broker.started and not broker.process.is_frozen and broker.shard(shard).leading:
                return broker
        return None

    async def _maintain(self, broker: Broker, what: str, work: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            try:
                await work()
            except _BACKEND_ERRORS as error:
                self._note(f"{what} on {broker.node_id} failed: {error}")
            else:
                self._note(f"{what} on {broker.node_id}")

        broker.process.start(run())

    # --- the end -------------------------------------------------------------------------------------------------

    def make_peace(self) -> None:
        """Nothing fails from now on, and all are up."""
        world = self._world
        self._note("peace")
        world.network.heal()
        world.network.loss_rate = world.network.slow_rate = world.garbler.rate = 0.0
        world.log.error_rate = world.log.slow_rate = 0.0
        world.bucket.down = False
        world.bucket.calm()
        for node_id in self._node_ids():
            world.log.resume_reads(node_id)
            world.lagging.discard(node_id)
            if node_id in world.brokers:
                world.brokers[node_id].process.thaw()
            else:
                world.start_broker(node_id)
        if not world.log.notices_the_dead:
            for shard in world.shard_ids:
                world.log.nominate(shard, 1 + shard.index % world.scenario.brokers)
