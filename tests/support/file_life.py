"""Shards on fakes with all that happens to their objects: retention, trimming, deletion; to be killed at any step."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.commands import BatchResult, CommitBatch, CommitFile, PartitionKey
from diskless_core.diskless.file_stages import Stage, ending_files, stage_of
from diskless_core.diskless.operations import HORIZON_AGE_MS
from diskless_core.diskless.run_lookup import PAGE_RUNS
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.diskless.tables import DEAD_FILES, FILES, LIVE_FILES
from diskless_core.files.part import Files, FilesNeighbours, FilesSettings
from diskless_core.files.retention import RetentionRules
from diskless_core.files.retention_worker import RetentionSchedule
from diskless_core.metrics import Metrics
from diskless_core.protocol.errors import ErrorCode
from diskless_core.shards import DISKLESS
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.wal.runs import Run
from tests.support.detection import listing_detection
from tests.support.hand_over_post import Letterbox, Post
from tests.support.shards import TOPIC, ShardNode, commit_of
from tests.support.virtual_time import VirtualClock

DELAY_MS = 60_000
NEVER = RetentionRules(retention_ms=-1, retention_bytes=-1)
MONTH_MS = 30 * 86_400_000


class LifeProcess:
    """One node: a replica of each shard, and all that works on objects. What it leads, the log says."""

    def __init__(self, life: FileLife, node_id: int, shards: int) -> None:
        self.node_id = node_id
        self.maintenance: Files
        self.is_running = False
        self.replicas = [
            ShardNode(life.shared, life.clock, node_id, shard_id=DISKLESS.shard(index)) for index in range(shards)
        ]
        self._life = life

    async def start(self) -> None:
        for replica in self.replicas:
            await replica.start(lead=False)
        self.is_running = True
        for replica in self.replicas:
            if self._life.shared.hint(replica.shard_id, self.node_id).node_id == self.node_id:
                await replica.shard.until_leading()
        self.maintenance = self._life.new_maintenance(self)

    async def stop(self) -> None:
        self.is_running = False
        await self.maintenance.stop()
        for replica in self.replicas:
            await replica.stop()

    async def kill(self) -> None:
        self.is_running = False
        await self.maintenance.stop()
        for replica in self.replicas:
            await replica.kill()

    async def restart(self, *, with_empty_stores: bool = False) -> None:
        await self.kill()
        if with_empty_stores:
            for replica in self.replicas:
                replica.store.disk = replica.store.disk.empty()
        await self.start()


class FileLife:
    """`nodes` nodes with `shards` shards and an object store. Partition `n` of a topic belongs to shard `n % shards`.

    Use it as an asynchronous context manager. Nothing happens to objects by itself before `run_in_background`. Shard
    `n` is led by the node `n % nodes` at first.
    """

    def __init__(
        self,
        shards: int = 1,
        *,
        nodes: int = 1,
        delay_ms: int = DELAY_MS,
        schedule: RetentionSchedule | None = None,
        clock: VirtualClock | None = None,
    ) -> None:
        self.clock = clock or VirtualClock(asyncio.get_running_loop())
        self.shared = SharedLog()
        self.objects = MemoryWalObjectStore(self.clock)
        self.rules = NEVER
        self.forgotten_by_cache: list[str] = []
        self.metrics = Metrics()
        self.post = Post(self.leader_of)
        self.processes = [LifeProcess(self, node_id, shards) for node_id in range(1, nodes + 1)]
        self._delay_ms = delay_ms
        self._schedule = schedule or RetentionSchedule(initial_delay_ms=0, interval_ms=MONTH_MS)
        for index, replica in enumerate(self.processes[0].replicas):
            self.shared.set_leader(replica.shard_id, index % nodes + 1)

    async def __aenter__(self) -> FileLife:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes:
            await process.stop()

    # --- the nodes -----------------------------------------------------------------------------------------------

    @property
    def shards(self) -> int:
        return len(self.processes[0].replicas)

    def leading(self, index: int) -> ShardNode | None:
        """The replica that leads a shard now."""
        for process in self.processes:
            if process.is_running and process.replicas[index].shard.leading:
                return process.replicas[index]
        return None

    def leader_of(self, index: int) -> DisklessShard | None:
        replica = self.leading(index)
        return replica.shard if replica is not None else None

    @property
    def nodes(self) -> list[ShardNode]:
        """Of each shard the replica that leads it, or that of the first node while none does."""
        return [self.leading(index) or self.processes[0].replicas[index] for index in range(self.shards)]

    @property
    def maintenance(self) -> Files:
        """The first node's."""
        return self.processes[0].maintenance

    def new_maintenance(self, process: LifeProcess) -> Files:
        shards = {index: replica.shard for index, replica in enumerate(process.replicas)}
        return Files(
            FilesSettings(
                retention=self._schedule,
                delete_delay_ms=self._delay_ms,
                object_prefix="wal",
                snapshot_prefix="wal-snapshots",
                orphan_grace_period_ms=MONTH_MS,
                orphan_scan_interval_ms=MONTH_MS,
            ),
            FilesNeighbours(
                objects=self.objects,
                objects_source=lambda: self.objects,
                detection=listing_detection(),
                shards=shards,
                coordinators={index: Letterbox(self.post, index) for index in shards},
                shards_in_use=self._shard_indexes,
                scans_here=lambda: False,
                rules_of=lambda _: self.rules,
                on_deleted=self.forgotten_by_cache.append,
                clock=self.clock,
                clock_watch=shards[0].clock_watch,
                metrics=self.metrics,
            ),
        )

    async def _shard_indexes(self) -> range:
        return range(self.shards)

    async def start(self) -> None:
        for process in self.processes:
            await process.start()

    def run_in_background(self) -> None:
        for process in self.processes:
            process.maintenance.start()

    async def restart(self, *, with_empty_stores: bool = False) -> None:
        """Kill all processes and start others."""
        for process in self.processes:
            await process.kill()
        for process in self.processes:
            if with_empty_stores:
                for replica in process.replicas:
                    replica.store.disk = replica.store.disk.empty()
            await process.start()

    async def let_lead(self, process: LifeProcess, index: int) -> None:
        """Make a node the leader of a shard."""
        replica = process.replicas[index]
        self.shared.set_leader(replica.shard_id, process.node_id)
        await replica.shard.until_leading()

    # --- what clients do -----------------------------------------------------------------------------------------

    def shard_index(self, partition: int) -> int:
        return partition % self.shards

    def node_of(self, partition: int) -> ShardNode:
        return self.nodes[self.shard_index(partition)]

    async def create_topic(self, partitions: int = 2, topic: bytes = TOPIC) -> None:
        for partition in range(partitions):
            await self.node_of(partition).shard.create_partitions(uuid.UUID(bytes=topic), "t", [partition])

    async def delete_topic(self, topic: bytes = TOPIC) -> None:
        for node in self.nodes:
            await node.shard.delete_topic(uuid.UUID(bytes=topic))

    async def put(self, key: str, *batches: CommitBatch) -> None:
        """Upload an object and commit it with all shards that have batches in it."""
        for index, request in self.upload(key, *batches).items():
            await self.commit(index, request)

    def upload(self, key: str, *batches: CommitBatch) -> dict[int, CommitFile]:
        """Upload an object; what has to be asked of each of its owners, the first one first."""
        request = commit_of(key, *batches)
        self.objects.objects[key] = bytes(request.file_size)
        by_shard: dict[int, list[CommitBatch]] = {}
        for one in request.batches:
            by_shard.setdefault(self.shard_index(one.partition), []).append(one)
        return {index: replace(request, batches=part, owner_ids=tuple(by_shard)) for index, part in by_shard.items()}

    async def put_part(self, key: str, index: int, owner_ids: Sequence[int], *batches: CommitBatch) -> None:
        """Upload an object, but commit it with one of its shards only."""
        request = commit_of(key, *batches, owner_ids=tuple(owner_ids))
        self.objects.objects[key] = bytes(request.file_size)
        await self.commit(index, request)

    async def commit(self, index: int, request: CommitFile) -> list[BatchResult]:
        """Commit with whoever leads the shard: the same request again until there is an answer."""
        while True:
            try:
                return await self.nodes[index].shard.commit_file(request)
            except CoordinatorError:
                await asyncio.sleep(0.05)

    async def delete_records(self, offset: int = -1, partition: int = 0, topic: bytes = TOPIC) -> None:
        shard = self.node_of(partition).shard
        deleted = await shard.delete_records(PartitionKey(topic, partition), offset)
        assert deleted.error is ErrorCode.NONE, deleted

    async def raise_horizons(self) -> None:
        """As the scan for orphans does: what is older than half a minute is committed now or never."""
        for node in self.nodes:
            await node.shard.raise_horizon(node.shard.clock_watch.passed().before(HORIZON_AGE_MS))

    # --- what happens to objects ---------------------------------------------------------------------------------

    async def trim(self) -> None:
        for process in self.processes:
            for trimmer in process.maintenance.trimmers:
                await trimmer.trim()

    async def delete_dead(self) -> None:
        """A round of each shard's leader; returns when all that was due has been handed over."""
        for process in self.processes:
            for replica, deleter in zip(process.replicas, process.maintenance.deleters, strict=True):
                if replica.shard.leading:
                    await deleter.round()
                    await deleter.hand_overs.idle()

    async def check_retention(self) -> None:
        for process in self.processes:
            await process.maintenance.retention.check()

    # --- what is left --------------------------------------------------------------------------------------------

    @property
    def stored(self) -> set[str]:
        """Keys of the objects that are in the object store."""
        return set(self.objects.objects)

    async def live_runs(self) -> list[Run]:
        """Every run of every partition that a consumer may read."""
        runs: list[Run] = []
        for node in self.nodes:
            for partition, head in node.shard.heads().items():
                offset = head.log_start_offset
                while page := await node.shard.runs_from(partition, offset):
                    runs += page
                    offset = page[-1].last_offset + 1
                    if len(page) < PAGE_RUNS:
                        break
        return runs

    async def rows(self, index: int = 0, process: LifeProcess | None = None) -> dict[str, list[Any]]:
        """All that a shard's store has, once memory has given it everything; times of death left out.

        That of the node that leads, unless another one's is asked for.
        """
        shard = (process.replicas[index] if process is not None else self.nodes[index]).shard
        await shard.flush()
        found: dict[str, list[Any]] = {}
        for table in DisklessMachine.tables:
            found[table.name] = await shard.with_store(lambda store, table=table: store.scan(table.name))
        found[DEAD_FILES.name] = [row[:1] + row[2:] for row in found[DEAD_FILES.name]]
        return found

    async def known_files(self, index: int = 0) -> dict[str, set[str]]:
        """The keys of the objects that a shard knows, as live, as dead, and at all."""
        rows = await self.rows(index)
        tables = {"live": LIVE_FILES, "dead": DEAD_FILES, "known": FILES}
        return {word: {row[0] for row in rows[table.name]} for word, table in tables.items()}

    async def stages(self, index: int = 0) -> dict[str, Stage]:
        """The stage of each object that a shard knows."""
        shard = self.nodes[index].shard
        await shard.flush()
        ending = await shard.with_store(lambda store: ending_files(store, "", 10_000))
        live = (await self.known_files(index))["live"]
        return dict.fromkeys(live, Stage.LIVE) | {file.object_key: stage_of(index, file) for file in ending}
