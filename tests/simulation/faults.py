"""The troubles of a simulated world, each at random times until the active phase is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
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
from tests.simulation.metadata_log import MetadataLog
from tests.simulation.network import Network
from tests.simulation.scenario import Scenario

PAUSE_TO_MOVE_S = 1.0
"""How long after a broker stopped others are hinted to lead in its place, at least."""

KILLED_WITHIN_S = 0.5

_BACKEND_ERRORS = (CoordinatorError, CoordinatorLogError, CoordinatorStoreError, SnapshotError, WalObjectStoreError)


class Afflicted(Protocol):
    """What troubles need of the world."""

    scenario: Scenario
    history: History
    network: Network
    log: MetadataLog
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

    def all(self) -> list[Coroutine[Any, Any, None]]:
        scenario = self._world.scenario
        troubles: list[tuple[float, Callable[[], Coroutine[Any, Any, None]]]] = [
            (scenario.kill_every_s, self._kill),
            (scenario.pause_every_s, self._pause),
            (scenario.cut_every_s, self._cut),
            (scenario.lag_every_s, self._lag),
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
        broker = self._any_running()
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
        await asyncio.sleep(self._random.choice([0.05, 2.0, 5.0]))
        if broker.node_id not in self._world.brokers:
            self._world.start_broker(broker.node_id)

    async def _pause(self) -> None:
        """Stop a process for a while. It comes back believing what it believed."""
        broker = self._any_running()
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

    def _any_running(self) -> Broker | None:
        running = [one for one in self._world.brokers.values() if not one.process.is_frozen]
        return self._random.choice(running) if len(running) > 1 else None

    # --- leadership ----------------------------------------------------------------------------------------------

    def _lead_elsewhere(self, node_id: int) -> None:
        """Hint at others for what a node that does not answer led."""
        if not self._world.active:
            return
        for shard in self._world.shard_ids:
            if self._world.log.hint(shard, node_id).node_id == node_id:
                self._hint(shard, self._up(but=node_id))

    async def _move_leader(self) -> None:
        """Hint at another leader; at times only some hear of it."""
        self._hint(self._random.choice(self._world.shard_ids), self._up())

    def _hint(self, shard: ShardId, candidates: Sequence[int]) -> None:
        if not candidates:
            return
        leader = self._random.choice(candidates)
        node_ids = range(1, self._world.scenario.brokers + 1)
        some = [node_id for node_id in node_ids if self._random.random() < 0.6]
        seen_by = some if self._random.random() < 0.3 else None
        self._note(
            f"{short_name(shard)} is said to be led by {leader}" + (f", to {some}" if seen_by is not None else "")
        )
        self._world.log.set_leader(shard, leader, seen_by=seen_by)

    def _up(self, but: int | None = None) -> list[int]:
        return [
            node_id
            for node_id, one in sorted(self._world.brokers.items())
            if node_id != but and not one.process.is_frozen
        ]

    # --- what is between them ------------------------------------------------------------------------------------

    async def _cut(self) -> None:
        node_ids = range(1, self._world.scenario.brokers + 1)
        one, other = self._random.sample([Network.CLIENT, *node_ids], 2)
        self._note(f"cut {one} off from {other}")
        self._world.network.cut(one, other)
        await asyncio.sleep(self._random.uniform(0.5, 8))
        self._world.network.heal()
        self._note("all reach each other")

    async def _lag(self) -> None:
        """A replica gets nothing new for a while, from the log or from anybody."""
        node_id = self._random.randint(1, self._world.scenario.brokers)
        is_deaf = self._random.random() < 0.7
        self._note(f"{node_id} lags" if is_deaf else f"{node_id} gets nothing new from the log")
        self._world.log.pause_reads(node_id)
        if is_deaf:
            self._world.lagging.add(node_id)
        deposed = self._depose_unheard(node_id) if self._random.random() < 0.8 else {}
        await asyncio.sleep(self._random.uniform(0.2, 6))
        self._world.log.resume_reads(node_id)
        self._world.lagging.discard(node_id)
        for shard, leader in deposed.items():
            if self._world.active:
                self._world.log.set_leader(shard, leader)

    def _depose_unheard(self, node_id: int) -> dict[ShardId, int]:
        """Hint at others for what a node leads, of which it does not hear. Who leads then, by shard."""
        others = self._up(but=node_id)
        led = [shard for shard in self._world.shard_ids if self._world.log.hint(shard, node_id).node_id == node_id]
        deposed = {shard: self._random.choice(others) for shard in led} if others else {}
        for shard, leader in deposed.items():
            self._note(f"{short_name(shard)} is said to be led by {leader}, to all but {node_id}")
            self._world.log.set_leader(shard, leader, seen_by=[one for one in self._node_ids() if one != node_id])
        return deposed

    def _node_ids(self) -> range:
        return range(1, self._world.scenario.brokers + 1)

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
            await self._maintain(broker, f"snapshot of {short_name(shard)}", broker.take_snapshot(shard))

    async def _scan(self) -> None:
        """Look for orphans where the broker does, which is where the topics are."""
        broker = self._leader(CLUSTER_SHARD)
        if broker is not None:
            await self._maintain(broker, "scan for orphans", broker.scan_for_orphans())

    async def _compact(self) -> None:
        broker = self._any_running()
        if broker is not None and broker.started:
            await self._maintain(broker, "compaction", broker.compact())

    def _leader(self, shard: ShardId) -> Broker | None:
        """One that runs and believes to lead a shard."""
        for _, broker in sorted(self._world.brokers.items()):
            if broker.started and not broker.process.is_frozen and broker.shard(shard).leading:
                return broker
        return None

    async def _maintain(self, broker: Broker, what: str, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await work
            except _BACKEND_ERRORS as error:
                self._note(f"{what} on {broker.node_id} failed: {error}")
            else:
                self._note(f"{what} on {broker.node_id}")

        broker.process.start(run())

    # --- the end -------------------------------------------------------------------------------------------------

    def make_peace(self) -> None:
        """Nothing fails from now on, all are up and agree on who leads."""
        world = self._world
        self._note("peace")
        world.network.heal()
        world.network.loss_rate = world.network.slow_rate = world.garbler.rate = 0.0
        world.log.error_rate = world.log.slow_rate = 0.0
        world.bucket.down = False
        world.bucket.calm()
        for node_id in range(1, world.scenario.brokers + 1):
            world.log.resume_reads(node_id)
            world.lagging.discard(node_id)
            if node_id in world.brokers:
                world.brokers[node_id].process.thaw()
            else:
                world.start_broker(node_id)
        for shard in world.shard_ids:
            world.log.set_leader(shard, 1 + shard.index % world.scenario.brokers)
