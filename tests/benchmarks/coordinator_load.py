"""What the coordinator's benchmark works with: a shard on its real backends, commits, and stores filled quickly."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import structlog

from diskless_core.broker.memory import collect_garbage_less_often, freeze_garbage_collector, keep_freed_memory
from diskless_core.clock import SystemClock
from diskless_core.coordinator.entries import ACCEPTANCE
from diskless_core.coordinator.shard import ShardServices
from diskless_core.coordinator.snapshots import NoSnapshots, SnapshotSource
from diskless_core.diskless import time_index
from diskless_core.diskless.commands import CommitFile, PartitionKey
from diskless_core.diskless.operations import CommitRules
from diskless_core.diskless.producer_state import NO_PRODUCER
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.diskless.tables import BATCHES, BLOCKS, PARTITIONS, PartitionHead
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.coordinator_store import CoordinatorStore, ShardStore, TableChanges, TableSpec
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.commit_file import (
    CommitBatch,
    CommitFileRequest,
    CommitFileResponse,
    pack_request,
    pack_response,
    unpack_request,
)
from diskless_core.shards import DISKLESS
from diskless_core.wal.runs import Run
from diskless_local_log.config import LocalLogSettings
from diskless_local_log.local_log import LocalCoordinatorLog
from diskless_policies.config import SequentialSettings
from diskless_policies.sequential import SequentialAssignment
from diskless_sqlite.store import SqliteCoordinatorStore

SHARD_ID = DISKLESS.shard(0)
PARTITIONS_WRITTEN = 640
PARTITIONS_A_TOPIC = 64
BATCH_BYTES = 4_096
RECORDS_A_BATCH = 10
HOUR_MS = 3_600_000

_FILL_ROWS = 20_000
_FILLED_PARTITIONS = 16

_keys = itertools.count()


class RecordingStore(CoordinatorStore):
    """Keeps what is written to it, transaction by transaction, to be written again without the coordinator."""

    def __init__(self, store: CoordinatorStore) -> None:
        self._store = store
        self.writes: list[Mapping[str, TableChanges]] = []

    def open(self, shard: ShardId, tables: Sequence[TableSpec]) -> ShardStore:
        opened: Any = self._store.open(shard, tables)
        write = opened.write

        def recorded(changes: Mapping[str, TableChanges], applied_offset: int) -> None:
            self.writes.append(changes)
            write(changes, applied_offset)

        opened.write = recorded
        return opened  # type: ignore[no-any-return]


def as_in_a_broker() -> None:
    """Let this process keep its memory and collect its garbage as a broker does, and log errors only."""
    keep_freed_memory()
    collect_garbage_less_often()
    freeze_garbage_collector()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


def local_log(context: PluginContext) -> CoordinatorLog:
    """The local log, with its fsync."""
    return LocalCoordinatorLog(context, LocalLogSettings())


@asynccontextmanager
async def running_shard(
    folder: Path, *, store: CoordinatorStore | None = None, snapshots: SnapshotSource | None = None
) -> AsyncIterator[DisklessShard]:
    """A shard that leads, on `folder/log` with fsync and `folder/store`."""
    context = log_context(folder)
    log = local_log(context)
    await log.start()
    try:
        async with shard_on(log, folder, store=store, snapshots=snapshots) as shard:
            yield shard
    finally:
        await log.stop()


def log_context(folder: Path) -> PluginContext:
    """What a log on `folder/log` is made with."""
    return PluginContext(node_id=1, data_dir=folder / "log", log_dir=folder, clock=SystemClock())


@asynccontextmanager
async def shard_on(
    log: CoordinatorLog,
    folder: Path,
    *,
    store: CoordinatorStore | None = None,
    snapshots: SnapshotSource | None = None,
) -> AsyncIterator[DisklessShard]:
    """A shard that leads, on a log that was started and `folder/store`."""
    clock = SystemClock()
    services = ShardServices(
        node_id=1,
        clock=clock,
        log=log,
        store=store or SqliteCoordinatorStore(folder / "store"),
        snapshots=snapshots or NoSnapshots(),
    )
    rules = CommitRules(assignment=SequentialAssignment(log_context(folder), SequentialSettings()))
    shard = DisklessShard(SHARD_ID, services, rules)
    try:
        await shard.start()
        await shard.until_leading()
        yield shard
    finally:
        await shard.stop()


def topic_id(number: int) -> bytes:
    return (number + 1).to_bytes(16, "big")


def requests(files: int, batches: int, *, adjacent: bool, producers: int) -> list[bytes]:
    """CommitFile requests as they come over the wire; the batches of a file go round all partitions.

    Args:
        producers: idempotent ones, which take turns, file by file; 0 for batches without.
    """
    partitions = [
        (topic_id(number // PARTITIONS_A_TOPIC), number % PARTITIONS_A_TOPIC) for number in range(PARTITIONS_WRITTEN)
    ]
    sent: Counter[tuple[bytes, int, int]] = Counter()
    gap = 0 if adjacent else 1
    made = []
    for number in range(files):
        first = number * batches
        chosen = sorted(partitions[(first + index) % PARTITIONS_WRITTEN] for index in range(batches))
        rows = []
        for position, key in enumerate(chosen):
            producer = (NO_PRODUCER, -1, -1, -1)
            if producers:
                who = number % producers
                sequence = sent[*key, who]
                sent[*key, who] += RECORDS_A_BATCH
                producer = (who, 0, sequence, sequence + RECORDS_A_BATCH - 1)
            at = position * (BATCH_BYTES + gap)
            rows.append(CommitBatch(*key, at, BATCH_BYTES, RECORDS_A_BATCH, 1_700_000_000_000 + first, 0, *producer))
        made.append(
            pack_request(
                CommitFileRequest(
                    object_key=f"wal/{next(_keys) % 997:03d}/20261121T120000000Z-{random.randbytes(16).hex()}",
                    object_format=1,
                    file_size=batches * (BATCH_BYTES + gap),
                    owner_ids=(0,),
                    batches=rows,
                    uploader_id=1,
                )
            )
        )
    return made


async def create_partitions(shard: DisklessShard) -> None:
    """Create what `requests` writes to."""
    topics = PARTITIONS_WRITTEN // 64
    for number in range(topics):
        await shard.create_partitions(
            uuid.UUID(bytes=topic_id(number)), f"topic-{number}", range(PARTITIONS_WRITTEN // topics)
        )


async def serve(shard: DisklessShard, frame: bytes) -> bytes:
    """Decode a CommitFile, commit it, encode the answer."""
    request = unpack_request(frame)
    results = await shard.commit_file(
        CommitFile(
            object_key=request.object_key,
            object_format=request.object_format,
            file_size=request.file_size,
            uploader_id=request.uploader_id,
            owner_ids=request.owner_ids,
            batches=request.batches,
        )
    )
    return pack_response(CommitFileResponse(results=results))


async def in_flight(count: int, work: Sequence[Any], do: Callable[[Any], Any]) -> None:
    """Do all of `work`, `count` at a time: each in order what is `count` apart."""

    async def worker(items: Sequence[Any]) -> None:
        for item in items:
            await do(item)

    async with asyncio.TaskGroup() as group:
        for lane in range(count):
            group.create_task(worker(work[lane::count]))


# --- stores of any size ------------------------------------------------------------------------------------------


def filled_partitions() -> list[PartitionKey]:
    return [PartitionKey(topic_id(0), number) for number in range(_FILLED_PARTITIONS)]


class Filler:
    """Fills a store with runs of one batch each, as the machine would, without a log. It can go on later."""

    def __init__(self, folder: Path, backend: CoordinatorStore | None = None) -> None:
        self._backend = backend or SqliteCoordinatorStore(folder / "store")
        self._tables = DisklessMachine().tables
        self.heads = dict.fromkeys(filled_partitions(), PartitionHead())
        self.batches = 0

    def fill(self, batches: int) -> None:
        """Until it has so many batches."""
        with closing(self._backend.open(SHARD_ID, [table.spec for table in (*self._tables, ACCEPTANCE)])) as store:
            self._fill(store, batches)

    def _fill(self, store: ShardStore, batches: int) -> None:
        while self.batches < batches:
            each = min(_FILL_ROWS, batches - self.batches) // len(self.heads)
            changes = {table.name: TableChanges() for table in (PARTITIONS, BATCHES, BLOCKS)}
            for key, head in self.heads.items():
                runs = list(self._runs(head, each))
                counted, full = time_index.count(head.run_count, runs)
                self.heads[key] = head._replace(
                    next_offset=runs[-1].last_offset + 1,
                    max_timestamp=runs[-1].max_timestamp,
                    appended_bytes=head.appended_bytes + each * BATCH_BYTES,
                    run_count=counted,
                )
                changes[PARTITIONS.name].put.append(PARTITIONS.row(key, self.heads[key]))
                changes[BATCHES.name].put += [(*key, *run) for run in runs]
                changes[BLOCKS.name].put += [(*key, level, *block) for level, block in full]
            store.write(changes, store.applied_offset())
            self.batches += each * len(self.heads)

    def _runs(self, head: PartitionHead, count: int) -> Iterator[Run]:
        for index in range(count):
            base = head.next_offset + index * RECORDS_A_BATCH
            yield Run(
                base,
                base + RECORDS_A_BATCH - 1,
                f"wal/000/20261121T120000000Z-{base // RECORDS_A_BATCH:032d}",
                0,
                BATCH_BYTES,
                base,
                base,
                0,
                head.appended_bytes + index * BATCH_BYTES,
            )
