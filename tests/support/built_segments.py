"""Partitions whose records lie in segments, built here batch by batch instead of by a compaction."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from diskless_core.log import leader_epochs, producer_snapshot
from diskless_core.log.producer_snapshot import ProducerState
from diskless_core.log.segment_indexer import SegmentIndexer, SegmentIndexes
from diskless_core.plugin.remote_storage import IndexType, LogSegmentData, RemoteStorage
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import Record, RecordData
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tests.support.batches import NOW_MS

PRODUCER_ID = 4711
BATCH_RECORDS = 4
_CODECS = 5
_INTERVAL_BYTES = 200


@dataclass
class BuiltPartition:
    """A partition, its complete segments and all records that they hold. An idempotent producer wrote them.

    Attributes:
        time_of: the timestamp of the record with some offset.
        append_time_of: that of the batch which begins with some offset, where the topic has LogAppendTime.
    """

    partition: TopicIdPartition
    time_of: Callable[[int], int] = lambda offset: NOW_MS + 10 * offset
    append_time_of: Callable[[int], int] | None = None
    segments: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    _producers: ProducerState = field(default_factory=dict)
    _epochs: dict[int, int] = field(default_factory=dict)

    @property
    def next_offset(self) -> int:
        return self.segments[-1].end_offset + 1 if self.segments else 0

    async def add_segment(self, storage: RemoteStorage, batches: int, leader_epoch: int = 0) -> None:
        """Put the next segment into a storage: batches of four records, one codec after the other."""
        start = self.next_offset
        indexer = SegmentIndexer(start, interval_bytes=_INTERVAL_BYTES, producers=self._producers)
        log = bytearray()
        for number in range(batches):
            batch = self._batch(start + number * BATCH_RECORDS, number % _CODECS, leader_epoch)
            indexer.add(record_batch.read_header(batch))
            self.records += record_batch.records(batch)
            log += batch
        self._producers = indexer.producers
        self._epochs.setdefault(leader_epoch, start)
        metadata = self._metadata(start, indexer.finish(), leader_epoch)
        indexes = self._indexes(indexer.finish())
        await storage.copy(metadata, LogSegmentData(log=lambda: _whole(bytes(log)), indexes=lambda: indexes))
        self.segments.append(metadata)

    def _batch(self, offset: int, codec: int, leader_epoch: int) -> bytearray:
        records = [
            RecordData(
                b"key %d" % number,
                b"value %d of %d " % (number, offset) * 9,
                (("header", b"%d" % number), ("null", None)),
                self.time_of(offset + number),
            )
            for number in range(BATCH_RECORDS)
        ]
        batch = bytearray(
            record_batch.build(
                records,
                timestamp_ms=NOW_MS,
                compression=codec,
                producer_id=PRODUCER_ID,
                producer_epoch=0,
                base_sequence=offset,
            )
        )
        record_batch.patch_base_offset(batch, 0, offset, leader_epoch)
        if self.append_time_of is not None:
            record_batch.patch_log_append_time(batch, 0, self.append_time_of(offset))
        return batch

    def _metadata(self, start: int, built: SegmentIndexes, leader_epoch: int) -> RemoteLogSegmentMetadata:
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(
                self.partition, uuid.uuid5(self.partition.topic_id, f"{self.partition} {start}")
            ),
            start_offset=start,
            end_offset=built.end_offset,
            max_timestamp_ms=built.max_timestamp,
            broker_id=0,
            event_timestamp_ms=NOW_MS,
            segment_size_bytes=built.size_bytes,
            segment_leader_epochs={leader_epoch: start},
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        )

    def _indexes(self, built: SegmentIndexes) -> dict[IndexType, bytes]:
        return {
            IndexType.OFFSET: built.offset_index,
            IndexType.TIMESTAMP: built.time_index,
            IndexType.PRODUCER_SNAPSHOT: producer_snapshot.encode(self._producers.values()),
            IndexType.LEADER_EPOCH: leader_epochs.encode(self._epochs),
        }


async def read_segments(storage: RemoteStorage, segments: Sequence[RemoteLogSegmentMetadata]) -> list[Record]:
    """All records of segments."""
    found: list[Record] = []
    for metadata in segments:
        log = memoryview(await storage.fetch(metadata, 0, metadata.segment_size_bytes))
        for position, header in record_batch.walk(log):
            if not header.is_control:
                found += record_batch.records(log[position : position + header.size])
    return found


async def _whole(log: bytes) -> AsyncIterator[bytes]:
    yield log
