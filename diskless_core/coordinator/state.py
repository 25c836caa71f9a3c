"""The state of a diskless shard, and the only code that changes it: `replay` (KIP-1164, "Local state machine").

Resident: topics, partition heads and producer windows. Batch runs and files live in the store, and so does what
`trimming` has to do there: replay cannot read those rows, so it only notes which have become garbage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from diskless_core.coordinator import producer_state, records
from diskless_core.coordinator.commands import (
    BatchResult,
    PartitionKey,
    Run,
    pack_results,
)
from diskless_core.coordinator.producer_state import NO_PRODUCER, ProducerWindow, WindowBatch
from diskless_core.coordinator.records import (
    DisklessRecord,
    FileDeleted,
    HorizonRaised,
    PartitionCreated,
    RecordsDeleted,
    TopicDeleted,
)
from diskless_core.coordinator.tables import Key, Table, Transaction
from diskless_core.plugin.coordinator_store import Column, ColumnType, TableSpec
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.file_committed import CommittedBatch, FileCommitted
from diskless_core.protocol.record_batch import RecordData

MAX_RUN_BYTES = 1 << 20
"""Adjacent batches become one row up to this size; a reader of a run walks at most this much."""

NO_MAX_TIMESTAMP = -1


class Topic(NamedTuple):
    """A topic's partitions of this shard. `partitions` are their indexes."""

    name: str
    partitions: tuple[int, ...]


class PartitionHead(NamedTuple):
    """Where a partition begins and ends, in offsets and in bytes counted from its first record ever.

    `max_timestamp_offset` is in the run that has, or had, the greatest timestamp.
    """

    log_start_offset: int = 0
    next_offset: int = 0
    max_timestamp: int = NO_MAX_TIMESTAMP
    max_timestamp_offset: int = -1
    log_start_bytes: int = 0
    appended_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """Size of the batches in the runs that are not wholly deleted."""
        return self.appended_bytes - self.log_start_bytes


class FileState(NamedTuple):
    """A committed (or wholly refused) object, and the answer to its CommitFile."""

    object_format: int
    size: int
    uploader_id: int
    owner_ids: tuple[int, ...]
    committed_at: int
    digest: bytes
    results: bytes


class LiveFile(NamedTuple):
    """An object with live batches in this shard: so many runs of it have not been trimmed yet."""

    live_runs: int
    committed_at: int
    owner_ids: tuple[int, ...]


class DeadFile(NamedTuple):
    """An object without live batches in this shard. Times in milliseconds; `dead_at` is when that was noticed."""

    dead_at: int
    committed_at: int
    owner_ids: tuple[int, ...]


def _integers(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, ColumnType.INTEGER) for name in names)


def _text(owner_ids: tuple[int, ...]) -> str:
    return ",".join(map(str, owner_ids))


def _owner_ids(column: str) -> tuple[int, ...]:
    return tuple(int(owner) for owner in column.split(",") if owner)


_TOPIC_ID = Column("topic_id", ColumnType.BLOB)

TOPICS: Table[Topic] = Table(
    spec=TableSpec(
        name="topics",
        key=(_TOPIC_ID,),
        values=(Column("name", ColumnType.TEXT), Column("partitions", ColumnType.TEXT)),
    ),
    encode=lambda topic: (topic.name, ",".join(map(str, topic.partitions))),
    decode=lambda row: Topic(row[1], tuple(map(int, row[2].split(",")))),
)
PARTITIONS: Table[PartitionHead] = Table(
    spec=TableSpec(
        name="partitions",
        key=(_TOPIC_ID, *_integers("partition")),
        values=_integers(*PartitionHead._fields),
    ),
    encode=lambda head: head,
    decode=lambda row: PartitionHead._make(row[2:]),
)
PRODUCERS: Table[ProducerWindow] = Table(
    spec=TableSpec(
        name="producers",
        key=(_TOPIC_ID, *_integers("partition", "producer_id")),
        values=(*_integers("epoch", "last_append_time"), Column("batches", ColumnType.BLOB)),
    ),
    encode=producer_state.pack,
    decode=lambda row: producer_state.unpack(*row[3:]),
)
BATCHES: Table[Run] = Table(
    spec=TableSpec(
        name="batches",
        key=(_TOPIC_ID, *_integers("partition", "base_offset")),
        values=(
            *_integers("last_offset"),
            Column("object_key", ColumnType.TEXT),
            *_integers("byte_offset", "byte_size", "append_time", "max_timestamp", "timestamp_type", "bytes_before"),
        ),
    ),
    encode=lambda run: run[1:],
    decode=lambda row: Run._make(row[2:]),
    resident=False,
)
FILES: Table[FileState] = Table(
    spec=TableSpec(
        name="files",
        key=(Column("object_key", ColumnType.TEXT),),
        values=(
            *_integers("object_format", "size", "uploader_id"),
            Column("owner_ids", ColumnType.TEXT),
            *_integers("committed_at"),
            Column("digest", ColumnType.BLOB),
            Column("results", ColumnType.BLOB),
        ),
    ),
    encode=lambda file: (*file[:3], _text(file.owner_ids), *file[4:]),
    decode=lambda row: FileState._make((*row[1:4], _owner_ids(row[4]), *row[5:])),
    resident=False,
)
LIVE_FILES: Table[LiveFile] = Table(
    spec=TableSpec(
        name="live_files",
        key=(Column("object_key", ColumnType.TEXT),),
        values=(*_integers("live_runs", "committed_at"), Column("owner_ids", ColumnType.TEXT)),
    ),
    encode=lambda live: (live.live_runs, live.committed_at, _text(live.owner_ids)),
    decode=lambda row: LiveFile(row[1], row[2], _owner_ids(row[3])),
    resident=False,
)
"""Apart from FILES, whose rows grow with an object's batches: this one is written again for each part that goes."""

DEAD_FILES: Table[DeadFile] = Table(
    spec=TableSpec(
        name="dead_files",
        key=(Column("object_key", ColumnType.TEXT),),
        values=(*_integers("dead_at", "committed_at"), Column("owner_ids", ColumnType.TEXT)),
    ),
    encode=lambda dead: (dead.dead_at, dead.committed_at, _text(dead.owner_ids)),
    decode=lambda row: DeadFile(row[1], row[2], _owner_ids(row[3])),
    resident=False,
)
TRIMS: Table[int] = Table(
    spec=TableSpec(name="trims", key=(_TOPIC_ID, *_integers("partition")), values=_integers("before_offset")),
    encode=lambda before_offset: (before_offset,),
    decode=lambda row: int(row[2]),
    resident=False,
)
"""Partitions with runs that end below an offset and are garbage. Replay puts a row, the trimmer removes it."""

HORIZON: Table[int] = Table(
    spec=TableSpec(name="horizon", key=_integers("id"), values=_integers("horizon_ms")),
    encode=lambda horizon_ms: (horizon_ms,),
    decode=lambda row: int(row[1]),
)
"""One row, `THE_HORIZON`: see `HorizonRaised`."""

THE_HORIZON = (0,)


class DisklessMachine:
    """A shard of `__diskless_metadata`."""

    tables: Sequence[Table[Any]] = (
        TOPICS,
        PARTITIONS,
        PRODUCERS,
        BATCHES,
        FILES,
        LIVE_FILES,
        DEAD_FILES,
        TRIMS,
        HORIZON,
    )

    def encode(self, record: DisklessRecord) -> RecordData:
        return records.encode(record)

    def decode(self, data: RecordData) -> DisklessRecord:
        return records.decode(data)

    def replay(self, record: DisklessRecord, tx: Transaction) -> None:
        match record:
            case FileCommitted():
                _file_committed(record, tx)
            case PartitionCreated():
                _partition_created(record, tx)
            case TopicDeleted():
                _topic_deleted(record, tx)
            case RecordsDeleted():
                _records_deleted(record, tx)
            case HorizonRaised():
                tx.put(HORIZON, THE_HORIZON, max(record.horizon_ms, tx.get(HORIZON, THE_HORIZON) or 0))
            case FileDeleted():
                for table in (FILES, LIVE_FILES, DEAD_FILES):  # live: where trimming lags behind the log
                    tx.delete(table, (record.object_key,))


def _partition_created(record: PartitionCreated, tx: Transaction) -> None:
    topic = tx.get(TOPICS, (record.topic_id,)) or Topic(record.name, ())
    tx.put(TOPICS, (record.topic_id,), topic._replace(partitions=(*topic.partitions, record.partition)))
    tx.put(PARTITIONS, PartitionKey(record.topic_id, record.partition), PartitionHead())


def _topic_deleted(record: TopicDeleted, tx: Transaction) -> None:
    topic = tx.get(TOPICS, (record.topic_id,))
    if topic is None:
        return
    tx.delete(TOPICS, (record.topic_id,))
    for partition in topic.partitions:
        key = PartitionKey(record.topic_id, partition)
        head = tx.get(PARTITIONS, key)
        if head is not None:
            tx.put(TRIMS, key, head.next_offset)
        tx.delete(PARTITIONS, key)
    for producer in tx.keys(PRODUCERS, (record.topic_id,)):
        tx.delete(PRODUCERS, producer)


def _records_deleted(record: RecordsDeleted, tx: Transaction) -> None:
    key = PartitionKey(record.topic_id, record.partition)
    head = tx.get(PARTITIONS, key)
    if head is None or record.log_start_offset <= head.log_start_offset:
        return
    tx.put(
        PARTITIONS,
        key,
        head._replace(log_start_offset=record.log_start_offset, log_start_bytes=record.log_start_bytes),
    )
    tx.put(TRIMS, key, record.log_start_offset)


def _file_committed(record: FileCommitted, tx: Transaction) -> None:
    live_runs = 0
    for topic_id, partitions in record.topics:
        for partition, batches in partitions:
            live_runs += _append(PartitionKey(topic_id, partition), record.object_key, batches, tx)
    key, owner_ids = (record.object_key,), tuple(record.owner_ids)
    tx.put(FILES, key, _file_state(record))
    if live_runs:
        tx.put(LIVE_FILES, key, LiveFile(live_runs, record.committed_at, owner_ids))
    else:
        tx.put(DEAD_FILES, key, DeadFile(record.committed_at, record.committed_at, owner_ids))


def _append(key: PartitionKey, object_key: str, batches: Sequence[CommittedBatch], tx: Transaction) -> int:
    """Append one partition's batches; the number of runs that they make."""
    head = tx.get(PARTITIONS, key)
    if head is None:
        return 0
    runs = 0
    for run in coalesce(object_key, batches):
        tx.put(BATCHES, (*key, run.base_offset), run._replace(bytes_before=head.appended_bytes))
        head = head._replace(appended_bytes=head.appended_bytes + run.byte_size)
        if run.max_timestamp > head.max_timestamp:
            head = head._replace(max_timestamp=run.max_timestamp, max_timestamp_offset=run.base_offset)
        runs += 1
    tx.put(PARTITIONS, key, head._replace(next_offset=batches[-1].last_offset + 1))
    for batch in batches:
        if batch.producer_id != NO_PRODUCER:
            _extend_window((*key, batch.producer_id), batch, tx)
    return runs


def _extend_window(key: Key, batch: CommittedBatch, tx: Transaction) -> None:
    remembered = WindowBatch(batch.base_sequence, batch.last_sequence, batch.base_offset, batch.log_append_timestamp)
    tx.put(PRODUCERS, key, producer_state.extend(tx.get(PRODUCERS, key), batch.producer_epoch, remembered))


def coalesce(object_key: str, batches: Sequence[CommittedBatch]) -> Iterator[Run]:
    """The runs that one partition's batches of an object make: adjacent in bytes and offsets, of one kind of time."""
    run: Run | None = None
    for batch in batches:
        if (
            run is not None
            and run.byte_offset + run.byte_size == batch.byte_offset
            and run.last_offset + 1 == batch.base_offset
            and run.timestamp_type == batch.timestamp_type
            and run.byte_size + batch.byte_size <= MAX_RUN_BYTES
        ):
            run = run._replace(
                last_offset=batch.last_offset,
                byte_size=run.byte_size + batch.byte_size,
                max_timestamp=max(run.max_timestamp, batch.batch_max_timestamp),
            )
            continue
        if run is not None:
            yield run
        run = Run(
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            object_key=object_key,
            byte_offset=batch.byte_offset,
            byte_size=batch.byte_size,
            append_time=batch.log_append_timestamp,
            max_timestamp=batch.batch_max_timestamp,
            timestamp_type=batch.timestamp_type,
        )
    if run is not None:
        yield run


def _file_state(record: FileCommitted) -> FileState:
    return FileState(
        object_format=record.object_format,
        size=record.file_size,
        uploader_id=record.uploader_broker_id,
        owner_ids=tuple(record.owner_ids),
        committed_at=record.committed_at,
        digest=record.content_digest,
        results=pack_results(results_of(record)),
    )


def results_of(record: FileCommitted) -> list[BatchResult]:
    """The answer to the CommitFile that wrote this record, in the order of its batches."""
    results = [BatchResult()] * (len(record.batch_order) + len(record.refused) + len(record.duplicates))
    accepted = (batch for _, partitions in record.topics for _, batches in partitions for batch in batches)
    for index, batch in zip(record.batch_order, accepted, strict=True):
        results[index] = BatchResult(ErrorCode.NONE, batch.base_offset, batch.log_append_timestamp)
    for refused in record.refused:
        results[refused.request_index] = BatchResult(ErrorCode(refused.error_code))
    for duplicate in record.duplicates:
        results[duplicate.request_index] = BatchResult(
            ErrorCode.NONE, duplicate.base_offset, duplicate.log_append_time, is_duplicate=True
        )
    return results
