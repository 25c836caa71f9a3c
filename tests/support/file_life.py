"""Shards on fakes with all that happens to their objects: retention, trimming, deletion; to be killed at any step."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from diskless_core.coordinator.commands import CommitBatch, PartitionKey, Run
from diskless_core.coordinator.runs import PAGE_RUNS
from diskless_core.coordinator.schema import DEAD_FILES, FILES, LIVE_FILES
from diskless_core.coordinator.state import DisklessMachine
from diskless_core.files.deletion import DeletionServices
from diskless_core.files.retention import RetentionRules
from diskless_core.files.retention_worker import RetentionSchedule
from diskless_core.files.service import FileMaintenance
from diskless_core.metrics import Metrics
from diskless_core.plugin.shard import ShardId, ShardKind
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.shards import TOPIC, ShardNode, commit_of
from tests.support.virtual_time import VirtualClock

DELAY_MS = 60_000
NEVER = RetentionRules(retention_ms=-1, retention_bytes=-1)
MONTH_MS = 30 * 86_400_000


class FileLife:
    """One node with `shards` shards and an object store. Partition `n` of a topic belongs to shard `n % shards`.

    Use it as an asynchronous context manager. Nothing happens to objects by itself before `run_in_background`.
    """

    def __init__(
        self,
        shards: int = 1,
        *,
        delay_ms: int = DELAY_MS,
        schedule: RetentionSchedule | None = None,
        clock: VirtualClock | None = None,
    ) -> None:
        self.clock = clock or VirtualClock(asyncio.get_running_loop())
        self.shared = SharedLog()
        self.objects = MemoryWalObjectStore(self.clock)
        self.nodes = [
            ShardNode(self.shared, self.clock, shard_id=ShardId(ShardKind.DISKLESS, index)) for index in range(shards)
        ]
        self.rules = NEVER
        self.forgotten_by_cache: list[str] = []
        self.metrics = Metrics()
        self.maintenance: FileMaintenance
        self._delay_ms = delay_ms
        self._schedule = schedule or RetentionSchedule(initial_delay_ms=0, interval_ms=MONTH_MS)

    async def __aenter__(self) -> FileLife:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.maintenance.stop()
        for node in self.nodes:
            await node.stop()

    # --- the node ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        for node in self.nodes:
            await node.start()
        services = DeletionServices(
            objects=self.objects,
            shards={index: node.shard for index, node in enumerate(self.nodes)},
            delete_delay_ms=self._delay_ms,
            clock=self.clock,
            metrics=self.metrics,
            on_deleted=self.forgotten_by_cache.append,
        )
        self.maintenance = FileMaintenance(services, lambda _: self.rules, self._schedule)

    def run_in_background(self) -> None:
        self.maintenance.start()

    async def kill(self) -> None:
        """The process ends here and now."""
        await self.maintenance.stop()
        for node in self.nodes:
            await node.kill()

    async def restart(self, *, with_empty_stores: bool = False) -> None:
        """Kill the process and start another one."""
        await self.kill()
        if with_empty_stores:
            for node in self.nodes:
                node.store.memory = MemoryCoordinatorStore()
        await self.start()

    # --- what clients do -----------------------------------------------------------------------------------------

    def shard_index(self, partition: int) -> int:
        return partition % len(self.nodes)

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
        request = commit_of(key, *batches)
        self.objects.objects[key] = bytes(request.file_size)
        by_shard: dict[int, list[CommitBatch]] = {}
        for one in request.batches:
            by_shard.setdefault(self.shard_index(one.partition), []).append(one)
        for index, part in by_shard.items():
            await self.nodes[index].commit(replace(request, batches=part, owner_ids=tuple(by_shard)))

    async def put_part(self, key: str, index: int, owner_ids: Sequence[int], *batches: CommitBatch) -> None:
        """Upload an object, but commit it with one of its shards only."""
        request = commit_of(key, *batches)
        self.objects.objects[key] = bytes(request.file_size)
        await self.nodes[index].commit(replace(request, owner_ids=owner_ids))

    async def delete_records(self, offset: int = -1, partition: int = 0, topic: bytes = TOPIC) -> None:
        shard = self.node_of(partition).shard
        deleted = await shard.delete_records(PartitionKey(topic, partition), offset)
        assert deleted.error is ErrorCode.NONE, deleted

    # --- what happens to objects ---------------------------------------------------------------------------------

    async def trim(self) -> None:
        for trimmer in self.maintenance.trimmers:
            await trimmer.trim()

    async def delete_dead(self) -> None:
        for deleter in self.maintenance.deleters:
            await deleter.round()

    async def check_retention(self) -> None:
        await self.maintenance.retention.check()

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

    async def rows(self, index: int = 0) -> dict[str, list[Any]]:
        """All that a shard's store has, once memory has given it everything; times of death left out."""
        shard = self.nodes[index].shard.shard
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
