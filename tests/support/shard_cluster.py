"""Replicas of one shard as processes on one virtual-time loop, and all that can be done to them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from diskless_core.coordinator.errors import CoordinatorError, CoordinatorLoadingError, NotCoordinatorError
from diskless_core.coordinator.slices import Slices
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.coordinator.snapshotter import SnapshotRules, Snapshotter
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.trimming import trim_page
from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.snapshot.format import SnapshotError
from diskless_core.testing.fakes.log import SharedLog, SharedShard
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from tests.simulation.processes import ProcessLoop, later_outside
from tests.support.processes import MortalProcess
from tests.support.shards import SHARD_ID, ShardNode
from tests.support.stores import Disk
from tests.support.virtual_time import VirtualClock

T = TypeVar("T")

RESTART_S = 0.2
"""From the death of a process to the start of the next one, and between starts that fail."""

FAILED_STARTS = 5
"""After so many in a row somebody makes room on a full disk: a node that has to restore a snapshot needs it."""

QUIET_S = 3
"""Longer than any append takes."""

RECENT_RUNS = 3
"""So few runs in memory that readers are soon sent to the store."""

BACKENDS_FAIL = (CoordinatorError, CoordinatorStoreError, CoordinatorLogError, WalObjectStoreError, SnapshotError)


class Answered(NamedTuple):
    """An answer, the node that gave it, and whether it may have happened before: earlier attempts got no answer."""

    value: Any
    node: ReplicaNode
    repeated: bool


class Witness:
    """Sees that a process judges each command once, and answers those that change something in that order."""

    def __init__(self, shard: DisklessShard) -> None:
        self.judged: list[str] = []
        self._is_judging = False
        self._judgements = 0
        self._last_answered = 0
        self._submit = shard.submit_in_slices
        shard.submit_in_slices = self.submit

    async def submit(self, operation: Callable[[Any], Slices[T]], prefetch: Sequence[Any] = ()) -> T:
        judgement = changes = 0

        def judge(command: Any) -> Slices[T]:
            nonlocal judgement, changes
            assert not judgement, "a command was judged twice"
            assert not self._is_judging, "a command was judged while another one was"
            self._is_judging = True
            try:
                answer = yield from operation(command)
            finally:
                self._is_judging = False
            self._judgements += 1
            judgement, changes = self._judgements, len(command.records)
            self.judged.append(_task_name())
            return answer

        answer = await self._submit(judge, prefetch=prefetch)
        assert judgement, "a command was answered without being judged"
        if changes:
            assert judgement > self._last_answered, "a later command was answered first"
            self._last_answered = judgement
        return answer


def _task_name() -> str:
    task = asyncio.current_task()
    return task.get_name() if task is not None else ""


class ReplicaNode(ShardNode):
    """A node whose processes can be killed at any step, and are started again until one stays up."""

    def __init__(self, loop: ProcessLoop, shared: SharedLog, node_id: int, snapshots: Snapshots, disk: Disk) -> None:
        self.clock: VirtualClock = VirtualClock(loop, seed=node_id)
        super().__init__(shared, self.clock, node_id, snapshots=snapshots, disk=disk)
        self.kept: list[Disk] = []
        self.witness: Witness
        self.process: MortalProcess
        self.starts_again = True
        self.dies_at: int | None = None
        self.disk_is_lost_at_death = False
        self._failed_starts = 0
        self._taken_snapshots = snapshots
        self._loop = loop
        self._up = asyncio.Event()

    @property
    def is_up(self) -> bool:
        return self._up.is_set()

    def boot(self) -> None:
        """Start a process. It dies at its step `dies_at`, if that is set."""
        self.shared.resume_reads(self.node_id)  # a start needs the log
        self.process = MortalProcess(self._loop, f"node-{self.node_id}", self._died)
        self.process.dies_at, self.dies_at = self.dies_at, None
        self.process.start(self._run())

    async def _run(self) -> None:
        try:
            await self.start(lead=False)
        except BACKENDS_FAIL:
            await asyncio.sleep(RESTART_S)
            self._failed_starts += 1
            if self._failed_starts == FAILED_STARTS:
                self.store.failing = False
            self.process.kill()
        else:
            self._failed_starts = 0
            self.shard._recent._limit = RECENT_RUNS
            self.witness = Witness(self.shard)
            self._up.set()

    def _died(self) -> None:
        self._up.clear()
        self.store.cut_off()
        if self.disk_is_lost_at_death:
            self.store.disk = self.store.disk.empty()
            self.disk_is_lost_at_death = False
        if self.starts_again:
            later_outside(RESTART_S, self.boot)

    def dies_after(self, steps: int | None) -> None:
        """Its process, if it is up, dies before it has made so many more steps; None takes that back."""
        if self.is_up:
            self.process.dies_at = None if steps is None else self.process.steps + steps

    async def restart(self, *, clean: bool, disk: Disk | None, dies_at: int | None) -> None:
        """End the process, in good order if it can be, exchange its disk, and wait until another one is up."""
        self.dies_at = dies_at
        if clean and self.is_up and not self.store.failing and not self.store.unreadable:
            await self.attempt(self.stop())
        self.process.kill()
        if disk is not None:
            self.store.disk = disk.copy()
        self.store.failing = self.store.unreadable = False
        await self._up.wait()

    async def attempt(self, work: Coroutine[Any, Any, None]) -> None:
        """Let the process do something that may come to nothing."""
        with suppress(*BACKENDS_FAIL):
            await self.process.call(work)

    async def ask(self, command: Callable[[DisklessShard], Awaitable[T]], name: str = "") -> T:
        """What the shard on this node answers.

        Raises:
            CoordinatorError: nothing: it is not up, it does not lead, or it died meanwhile.
        """
        if not self.is_up:
            raise NotCoordinatorError(f"node {self.node_id} is down")
        return await self.process.call(_named(command, self.shard, name))

    # --- work that nodes do by themselves --------------------------------------------------------------------------

    async def take_snapshot(self, *, prune: bool) -> None:
        rules = SnapshotRules(least_bytes=0, max_age_ms=0)
        if prune:
            await Snapshotter(self.shard, self.log, self._taken_snapshots, rules, self.clock).take()
        else:
            await self.shard.take_snapshot(self._taken_snapshots)

    async def trim(self, pages: int | None = None) -> None:
        """Trim so many pages, or until nothing is left to trim."""
        await self.shard.flush()
        more, done = True, 0
        while more and done != pages:
            trimmed = await self.shard.with_store(lambda store: trim_page(store, self.clock.now_ms()))
            more, done = trimmed.more, done + 1


async def _named(command: Callable[[DisklessShard], Awaitable[T]], shard: DisklessShard, name: str) -> T:
    task = asyncio.current_task()
    if name and task is not None:
        task.set_name(name)
    return await command(shard)


class ShardCluster:
    """The replicas, the log that they share, and where they put snapshots.

    Attributes:
        leader: the node that should lead, once all of the trouble is over.
    """

    def __init__(self, loop: ProcessLoop, disks: Mapping[int, Disk]) -> None:
        self._loop = loop
        self.shared = SharedLog()
        self.clock = VirtualClock(loop)
        self.objects = MemoryWalObjectStore(self.clock)
        self.snapshots = Snapshots(self.objects, "snapshots", self.clock)
        self.nodes = {node_id: self.new_node(node_id, disk) for node_id, disk in disks.items()}
        self.leader = min(self.nodes)

    def new_node(self, node_id: int, disk: Disk) -> ReplicaNode:
        return ReplicaNode(self._loop, self.shared, node_id, self.snapshots, disk)

    @property
    def log(self) -> SharedShard:
        """The log itself, to be written by strangers."""
        return self.shared.state(SHARD_ID)

    async def start(self) -> None:
        self.nominate(self.leader)
        for node in self.nodes.values():
            node.boot()
        await self.settle()

    async def add(self, node_id: int, disk: Disk) -> ReplicaNode:
        """One more node, when it has read the log to its end."""
        node = self.nodes[node_id] = self.new_node(node_id, disk)
        node.boot()
        await self.settle()
        return node

    async def stop(self) -> None:
        """Stop in good order what is up, and leave what is not."""
        for node in self.nodes.values():
            node.starts_again = False
            node.store.failing = node.store.unreadable = False
            if node.is_up:
                await node.process.call(node.stop())
                node.process.kill()

    def nominate(self, leader: int) -> None:
        """Everybody is told that this node leads; it lags no more."""
        self.leader = leader
        self.shared.resume_reads(leader)
        self.shared.set_leader(SHARD_ID, leader)

    def nominate_everybody(self) -> None:
        """Each node is told that it leads."""
        for node_id in self.nodes:
            self.shared.resume_reads(node_id)
            self.shared.set_leader(SHARD_ID, node_id, seen_by=[node_id])

    async def until_answered(self, command: Callable[[DisklessShard], Awaitable[T]], name: str = "") -> Answered:
        """Ask the node that should lead, and after an error the next one, until one answers."""
        repeated = False
        turns = itertools.cycle([self.leader, *(node_id for node_id in self.nodes if node_id != self.leader)])
        while True:
            node = self.nodes[next(turns)]
            try:
                return Answered(await node.ask(command, name), node, repeated)
            except (NotCoordinatorError, CoordinatorLoadingError):
                pass
            except (CoordinatorError, CoordinatorStoreError):
                repeated = True
            await asyncio.sleep(0.05)

    async def leading(self) -> ReplicaNode:
        """A node that leads now."""
        return (await self.until_answered(lambda shard: shard.barrier())).node

    async def quiet_down(self) -> ReplicaNode:
        """As `settle`, with nothing on its way any more that could depose the leader."""
        self.shared.forget_faults()
        await self.settle()
        await asyncio.sleep(QUIET_S)
        return await self.settle()

    async def settle(self) -> ReplicaNode:
        """One leader, everything up, and everybody has read the log to its end. The leader, then.

        Disks are repaired of those nodes that cannot go on without: a snapshot has to be put there.
        """
        self.nominate(self.leader)
        for node_id in self.nodes:
            self.shared.resume_reads(node_id)
        end = self.shared.state(SHARD_ID)
        while True:
            leader = await self.leading()
            for node in self.nodes.values():
                if node.is_up and (node.shard._replica.restoring or node.shard.held_back):
                    node.store.failing = False
            if all(node.is_up and node.shard.next_offset == end.end for node in self.nodes.values()):
                return leader
            assert not [node.shard.failure for node in self.nodes.values() if node.is_up and node.shard.failure]
            await asyncio.sleep(0.01)
