"""The state of a diskless shard, and the only code that changes it: `replay` (KIP-1164, "Local state machine").

Resident: topics, partition heads and producer windows. Batch runs and files live in the store, and so does what
`trimming` has to do there: replay cannot read those rows, so it only notes which have become garbage. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from diskless_core.coordinator.slices import Pace, Slices, at_once
from diskless_core.coordinator.state_machine import StateMachine
from diskless_core.coordinator.tables import Key, Table, Transaction
from diskless_core.diskless import producer_state, records, remote_segments, time_index
from diskless_core.diskless.coalescing import coalesce
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.commit_results import packed_results
from diskless_core.diskless.producer_state import NO_PRODUCER, WindowBatch
from diskless_core.diskless.records import (
    DisklessRecord,
    FileDeleted,
    FileForgotten,
    FileHandedOver,
    FileReceived,
    HorizonRaised,
    PartitionAdopted,
    PartitionsCreated,
    ProducersExpired,
    RecordsDeleted,
    RecordsTiered,
    RemoteLogMetadataChanged,
    TopicDeleted,
)
from diskless_core.diskless.tables import (
    BATCHES,
    BLOCKS,
    DEAD_FILES,
    DELETED,
    FILES,
    GONE_FILES,
    HORIZON,
    LIVE_FILES,
    PARTITIONS,
    PRODUCER_IDS,
    PRODUCERS,
    RECEIVED_FILES,
    THE_HORIZON,
    THE_PRODUCER_IDS,
    TIERED,
    TOMBSTONE,
    TOPICS,
    TRIMS,
    DeadFile,
    FileState,
    GoneFile,
    LiveFile,
    PartitionHead,
    ProducerIds,
    ReceivedFile,
    Topic,
)
from diskless_core.protocol.file_committed import CommittedBatch, FileCommitted
from diskless_core.protocol.record_batch import RecordData
from diskless_core.remote_log import tiered


class DisklessMachine(StateMachine[DisklessRecord]):
    """A shard of `__diskless_metadata`."""

    tables: Sequence[Table[Any]] = (
        TOPICS,
        PARTITIONS,
        PRODUCERS,
        BATCHES,
        BLOCKS,
        FILES,
        LIVE_FILES,
        DEAD_FILES,
        RECEIVED_FILES,
        GONE_FILES,
        TRIMS,
        HORIZON,
        PRODUCER_IDS,
        TIERED,
        *remote_segments.TABLES,
    )

    def encode(self, record: DisklessRecord) -> RecordData:
        return records.encode(record)

    def decode(self, data: RecordData) -> DisklessRecord:
        return records.decode(data)

    def replay(self, record: DisklessRecord, tx: Transaction) -> None:
        match record:
            case FileCommitted():
                at_once(_file_committed(record, tx))
            case PartitionsCreated():
                _partitions_created(record, tx)
            case TopicDeleted():
                at_once(_topic_deleted(record, tx))
            case RecordsDeleted():
                _records_deleted(record, tx)
            case RecordsTiered():
                _records_tiered(record, tx)
            case PartitionAdopted():
                _partition_adopted(record, tx)
            case RemoteLogMetadataChanged():
                remote_segments.replay(record.event, tx)
            case HorizonRaised():
                tx.put(HORIZON, THE_HORIZON, max(record.horizon_ms, tx.get(HORIZON, THE_HORIZON) or 0))
            case ProducersExpired():
                _producers_expired(record, tx)
            case FileReceived():
                _file_received(record, tx)
            case FileHandedOver():
                tx.put(GONE_FILES, (record.object_key,), GoneFile(record.next_owner))
            case FileDeleted():
                tx.put(GONE_FILES, (record.object_key,), GoneFile(DELETED))
            case FileForgotten():
                for table in _OF_FILES:
                    tx.delete(table, (record.object_key,))

    def replay_in_slices(self, record: DisklessRecord, tx: Transaction) -> Slices[None]:
        match record:
            case FileCommitted():
                yield from _file_committed(record, tx)
            case TopicDeleted():
                yield from _topic_deleted(record, tx)
            case _:
                self.replay(record, tx)


_OF_FILES: Sequence[Table[Any]] = (FILES, LIVE_FILES, DEAD_FILES, RECEIVED_FILES, GONE_FILES)
"""The tables with a row for an object. One that was forgotten may be live still, where trimming lags behind the log."""


def _partitions_created(record: PartitionsCreated, tx: Transaction) -> None:
    topic = tx.get(TOPICS, (record.topic_id,)) or Topic(record.name, (), _producer_ids(tx).seen_up_to)
    tx.put(TOPICS, (record.topic_id,), topic._replace(partitions=(*topic.partitions, *record.partitions)))
    keys = zip(repeat(record.topic_id), record.partitions)
    tx.of(PARTITIONS).update(dict.fromkeys(keys, PartitionHead()))


def _topic_deleted(record: TopicDeleted, tx: Transaction) -> Slices[None]:
    topic, pace = tx.get(TOPICS, (record.topic_id,)), Pace()
    if topic is None:
        return
    tx.delete(TOPICS, (record.topic_id,))
    # their windows are dropped later on, but a topic of the same name may be there at once
    known = _producer_ids(tx)
    tx.put(PRODUCER_IDS, THE_PRODUCER_IDS, known._replace(deleted_up_to=known.seen_up_to))
    for partition in topic.partitions:
        key = PartitionKey(record.topic_id, partition)
        head = tx.get(PARTITIONS, key)
        if head is not None:
            tx.put(TRIMS, key, head.next_offset)
        tx.delete(PARTITIONS, key)
        tx.delete(TIERED, key)
        remote_segments.partition_deleted(key, tx)
        if pace.is_over_after(1):
            yield


def _producers_expired(record: ProducersExpired, tx: Transaction) -> None:
    highest = NO_PRODUCER
    for partition, producer_ids in record.partitions:
        for producer_id in producer_ids:
            tx.delete(PRODUCERS, (*partition, producer_id))
        highest = max(highest, *producer_ids)
    known = _producer_ids(tx)
    if highest > known.forgotten_up_to:
        tx.put(PRODUCER_IDS, THE_PRODUCER_IDS, known._replace(forgotten_up_to=highest))


def _producer_ids(tx: Transaction) -> ProducerIds:
    return tx.get(PRODUCER_IDS, THE_PRODUCER_IDS) or ProducerIds()


def _records_deleted(record: RecordsDeleted, tx: Transaction) -> None:
    key = PartitionKey(record.topic_id, record.partition)
    head = tx.get(PARTITIONS, key)
    if head is None or record.log_start_offset <= head.log_start_offset:
        return
    head = head._replace(log_start_offset=record.log_start_offset, log_start_bytes=record.log_start_bytes)
    if head.log_start_offset >= head.local_start_offset:
        head = head._replace(local_start_offset=head.log_start_offset, local_start_bytes=head.log_start_bytes)
        tx.put(TRIMS, key, head.log_start_offset)
    tx.put(PARTITIONS, key, head)
    log = tx.get(TIERED, key)
    if log:
        tx.put(TIERED, key, tiered.from_offset(log, record.log_start_offset))


def _records_tiered(record: RecordsTiered, tx: Transaction) -> None:
    key, segment = PartitionKey(record.topic_id, record.partition), record.segment
    head = tx.get(PARTITIONS, key)
    if head is None:
        return
    tx.put(TIERED, key, (*(tx.get(TIERED, key) or ()), segment))
    end = segment.end_offset + 1
    tx.put(
        PARTITIONS,
        key,
        head._replace(local_start_offset=end, local_start_bytes=head.local_start_bytes + segment.size_bytes),
    )
    tx.put(TRIMS, key, end)


def _partition_adopted(record: PartitionAdopted, tx: Transaction) -> None:
    key = PartitionKey(record.topic_id, record.partition)
    segments = tuple(record.segments)
    end, size_bytes = segments[-1].end_offset + 1, tiered.size_from(segments, 0)
    tx.put(TIERED, key, segments)
    tx.put(
        PARTITIONS,
        key,
        PartitionHead(
            log_start_offset=record.log_start_offset,
            next_offset=end,
            max_timestamp=max(segment.max_timestamp for segment in segments),
            appended_bytes=size_bytes,
            local_start_offset=end,
            local_start_bytes=size_bytes,
        ),
    )


def _file_committed(record: FileCommitted, tx: Transaction) -> Slices[None]:
    live_runs, pace = 0, Pace()
    if pace.is_over_after(len(record.batch_order)):  # it has just been read
        yield
    for topic_id, partitions in record.topics:
        for partition, batches in partitions:
            live_runs += _append((topic_id, partition), record.object_key, batches, tx)
            if pace.is_over_after(len(batches)):
                yield
    if pace.is_over_after(len(record.batch_order)):
        yield
    key, owner_ids = (record.object_key,), tuple(record.owner_ids)
    tx.put(FILES, key, _file_state(record))
    if live_runs:
        tx.put(LIVE_FILES, key, LiveFile(live_runs, record.committed_at, owner_ids))
    else:
        tx.put(DEAD_FILES, key, DeadFile(record.committed_at, record.committed_at, owner_ids))


def _file_received(record: FileReceived, tx: Transaction) -> None:
    key, owner_ids = (record.object_key,), tuple(record.owner_ids)
    tx.put(RECEIVED_FILES, key, ReceivedFile(record.dead_at, record.was_unknown))
    if record.was_unknown:
        tx.put(FILES, key, TOMBSTONE)
        tx.put(DEAD_FILES, key, DeadFile(record.dead_at, record.committed_at, owner_ids))


def _append(key: Key, object_key: str, batches: Sequence[CommittedBatch], tx: Transaction) -> int:
    """Append one partition's batches; the number of runs that they make."""
    head = tx.get(PARTITIONS, key)
    if head is None:
        return 0
    runs = coalesce(object_key, batches, head.appended_bytes)
    run_count, full_blocks = time_index.count(head.run_count, runs)
    max_timestamp, rows = head.max_timestamp, tx.of(BATCHES)
    for run in runs:
        rows[*key, run.base_offset] = run
        if run.max_timestamp > max_timestamp:
            max_timestamp = run.max_timestamp
    for level, block in full_blocks:
        tx.put(BLOCKS, (*key, level, block.base_offset), block)
    last = runs[-1]
    appended_bytes = last.bytes_before + last.byte_size
    tx.of(PARTITIONS)[key] = PartitionHead(
        head.log_start_offset,
        last.last_offset + 1,
        max_timestamp,
        head.log_start_bytes,
        appended_bytes,
        head.local_start_offset,
        head.local_start_bytes,
        run_count,
    )
    for batch in batches:
        if batch.producer_id != NO_PRODUCER:
            _extend_window((*key, batch.producer_id), batch, tx)
    return len(runs)


def _extend_window(key: Key, batch: CommittedBatch, tx: Transaction) -> None:
    remembered = WindowBatch(batch.base_sequence, batch.last_sequence, batch.base_offset, batch.log_append_timestamp)
    window = tx.get(PRODUCERS, key)
    if window is None:
        _see_producer(batch.producer_id, tx)
    tx.of(PRODUCERS)[key] = producer_state.extend(window, batch.producer_epoch, remembered)


def _see_producer(producer_id: int, tx: Transaction) -> None:
    known = _producer_ids(tx)
    if producer_id > known.seen_up_to:
        tx.put(PRODUCER_IDS, THE_PRODUCER_IDS, known._replace(seen_up_to=producer_id))


def _file_state(record: FileCommitted) -> FileState:
    return FileState(
        object_format=record.object_format,
        size=record.file_size,
        uploader_id=record.uploader_broker_id,
        owner_ids=tuple(record.owner_ids),
        committed_at=record.committed_at,
        digest=record.content_digest,
        results=packed_results(record),
    )
