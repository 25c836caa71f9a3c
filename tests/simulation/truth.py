"""What the metadata log says, worked out a second time and as simply as possible: no store, no replicas, no pending.

It follows every log from its first entry, whatever is pruned later, and knows at each moment what is committed.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import Claim
from diskless_core.diskless import records
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.records import (
    PartitionsCreated,
    ProducersExpired,
    RecordsDeleted,
    RecordsTiered,
    RemoteLogMetadataChanged,
    TopicDeleted,
)
from diskless_core.groups import records as groups_records
from diskless_core.groups.model import CommittedOffset
from diskless_core.groups.records import OffsetRecord
from diskless_core.plugin.coordinator_log import LogBatch
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol import messages, record_batch, record_frames
from diskless_core.protocol.file_committed import FileCommitted
from diskless_core.protocol.record_batch import RecordData
from diskless_core.remote_log import records as remote_log_records
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
)
from diskless_core.remote_log.tiered import TieredSegment
from diskless_core.shards import DISKLESS, GROUPS

_OF_ANY_SHARD = {
    record.json["apiKey"] for record in (messages.FeatureLevelRecord, messages.LogNamedRecord, messages.LogMovedRecord)
}
_GOING = (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)


class Committed(NamedTuple):
    """A batch that has its offsets."""

    base_offset: int
    last_offset: int
    object_key: str
    byte_offset: int
    byte_size: int


@dataclass(slots=True)
class Partition:
    """A partition from its first record on.

    `live` are the batches in WAL objects, which begin at `local_start_offset`, and `segments` those that have what
    comes before. What is wholly deleted is in neither. Of a topic that is deleted, a partition `loses_segments` before
    it is `deleted` itself.
    """

    shard: ShardId
    log_start_offset: int = 0
    local_start_offset: int = 0
    high_watermark: int = 0
    batches: dict[int, Committed] = field(default_factory=dict)
    live: deque[Committed] = field(default_factory=deque)
    segments: deque[TieredSegment] = field(default_factory=deque)
    loses_segments: bool = False
    deleted: bool = False


class OffsetPlace(NamedTuple):
    """What a group commits offsets of."""

    group_id: str
    topic: str
    partition: int


@dataclass(slots=True)
class _Log:
    term: int = -1
    next_sequence: int = 0


class Truth:
    """All shards. `violated` is called when the log itself breaks a promise.

    Args:
        expiration_ms: how long producers have to be silent to be `forgotten`, which are those that were at any time.
        stamps_are_true: whether what brokers write down as the time can be compared.

    Attributes:
        clocks_are_known: whether every broker that leads can know whose clock was off. A fresh one cannot.
    """

    def __init__(
        self,
        violated: Callable[[str], None],
        now_s: Callable[[], float],
        expiration_ms: int,
        *,
        stamps_are_true: bool = True,
    ) -> None:
        self.partitions: dict[PartitionKey, Partition] = {}
        self.committed_objects: dict[str, set[ShardId]] = {}
        self.owners: dict[str, set[int]] = {}
        self.live_runs: Counter[str] = Counter()
        self.died_s: dict[str, float] = {}
        self.offsets: defaultdict[OffsetPlace, list[CommittedOffset | None]] = defaultdict(list)
        self.entries = 0
        self.terms = 0
        self.segments_taken = 0
        self.forgotten: set[tuple[PartitionKey, int]] = set()
        self._last_append_ms: dict[tuple[PartitionKey, int], int] = {}
        self._segment_states: dict[bytes, RemoteLogSegmentState] = {}
        self._referenced: set[bytes] = set()
        self._logs: dict[ShardId, _Log] = {}
        self._violated = violated
        self._expiration_ms = expiration_ms
        self._now_s = now_s
        self._stamps_are_true = stamps_are_true
        self.clocks_are_known = True
        self._on_commit: list[Callable[[FileCommitted], None]] = []
        self._on_tiered: list[Callable[[PartitionKey, TieredSegment], None]] = []
        self._on_segments_lost: list[Callable[[str], None]] = []
        self._on_offset: list[Callable[[OffsetPlace, CommittedOffset | None], None]] = []

    def on_file_committed(self, listener: Callable[[FileCommitted], None]) -> None:
        self._on_commit.append(listener)

    def on_tiered(self, listener: Callable[[PartitionKey, TieredSegment], None]) -> None:
        """Call `listener` with each segment that takes the place of batches."""
        self._on_tiered.append(listener)

    def on_segments_lost(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of a topic that has a partition whose segments are being removed."""
        self._on_segments_lost.append(listener)

    def on_offset(self, listener: Callable[[OffsetPlace, CommittedOffset | None], None]) -> None:
        """Call `listener` with each offset that is committed, and None where one is dropped."""
        self._on_offset.append(listener)

    def take(self, shard: ShardId, batch: LogBatch) -> None:
        """The next entry of a log."""
        log = self._logs.setdefault(shard, _Log())
        entry = entries.decode(batch.data)
        if isinstance(entry, Claim):
            log.term, log.next_sequence = batch.offset, 0
            self.terms += 1
        elif (entry.term, entry.sequence) == (log.term, log.next_sequence):
            log.next_sequence += 1
            self.entries += 1
            for data in entry.records:
                if data != entries.NO_OP and not _is_of_any_shard(data):
                    self._replay(shard, data, record_batch.read_header(batch.data).max_timestamp)

    def is_live(self, object_key: str) -> bool:
        return self.live_runs[object_key] > 0

    def live_objects(self) -> set[str]:
        return {key for key, runs in self.live_runs.items() if runs > 0}

    def is_committed_everywhere(self, object_key: str) -> bool:
        """Whether all of an object's owners have heard of it."""
        shards = self.committed_objects.get(object_key)
        return shards is not None and {shard.index for shard in shards} == self.owners[object_key]

    def _replay(self, shard: ShardId, data: RecordData, written_ms: int) -> None:
        if shard.topic == GROUPS.topic:
            record = groups_records.decode(data)
            if isinstance(record, OffsetRecord):
                place = OffsetPlace(record.group_id, record.topic, record.partition)
                self.offsets[place].append(record.value)
                for listener in self._on_offset:
                    listener(place, record.value)
        elif shard.topic == DISKLESS.topic:
            self._replay_diskless(shard, records.decode(data), written_ms)

    def _replay_diskless(self, shard: ShardId, record: object, written_ms: int) -> None:
        match record:
            case PartitionsCreated():
                self._created(shard, record)
            case TopicDeleted():
                for key, partition in self.partitions.items():
                    if key.topic_id == record.topic_id and partition.shard == shard:
                        partition.deleted = True
                        self._drop(partition, partition.high_watermark)
                        self._drop_segments(partition, partition.high_watermark)
            case RecordsDeleted():
                partition = self.partitions[PartitionKey(record.topic_id, record.partition)]
                if not partition.deleted:
                    partition.log_start_offset = max(partition.log_start_offset, record.log_start_offset)
                    partition.local_start_offset = max(partition.local_start_offset, record.log_start_offset)
                    self._drop(partition, partition.log_start_offset)
                    self._drop_segments(partition, partition.log_start_offset)
            case RecordsTiered():
                self._tiered(PartitionKey(record.topic_id, record.partition), record.segment)
            case RemoteLogMetadataChanged():
                self._segment_changed(remote_log_records.decode(record.event))
            case FileCommitted():
                self._file_committed(shard, record)
            case ProducersExpired():
                self._producers_expired(record, written_ms)

    def _producers_expired(self, record: ProducersExpired, written_ms: int) -> None:
        for key, producer_ids in record.partitions:
            for producer_id in producer_ids:
                silent_ms = self._time_of(written_ms) - self._last_append_ms.pop((key, producer_id))
                is_early = silent_ms < self._expiration_ms and not self.partitions[key].deleted
                if is_early and self.clocks_are_known:
                    self._violated(f"producer {producer_id} of {name_of(key)} is forgotten after {silent_ms} ms")
                self.forgotten.add((key, producer_id))

    def _time_of(self, stamp_ms: int) -> int:
        return stamp_ms if self._stamps_are_true else int(self._now_s() * 1000)

    def _created(self, shard: ShardId, record: PartitionsCreated) -> None:
        for number in record.partitions:
            key = PartitionKey(record.topic_id, number)
            if key in self.partitions:
                self._violated(f"{name_of(key)} is created twice")
            self.partitions[key] = Partition(shard)

    def _drop(self, partition: Partition, before: int) -> None:
        while partition.live and partition.live[0].last_offset < before:
            gone = partition.live.popleft()
            self.live_runs[gone.object_key] -= 1
            if not self.live_runs[gone.object_key]:
                self.died_s[gone.object_key] = self._now_s()

    def _drop_segments(self, partition: Partition, before: int) -> None:
        while partition.segments and partition.segments[0].end_offset < before:
            self._referenced.discard(partition.segments.popleft().segment_id)

    def _tiered(self, key: PartitionKey, segment: TieredSegment) -> None:
        partition = self.partitions[key]
        if partition.deleted:
            return
        if not partition.loses_segments:
            self._check_segment(key, partition, segment)
            partition.segments.append(segment)
            self._referenced.add(segment.segment_id)
            self.segments_taken += 1
            for listener in self._on_tiered:
                listener(key, segment)
        partition.local_start_offset = segment.end_offset + 1
        self._drop(partition, partition.local_start_offset)

    def _check_segment(self, key: PartitionKey, partition: Partition, segment: TieredSegment) -> None:
        start, size_bytes = segment.start_offset, 0
        if self._segment_states.get(segment.segment_id) is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            self._violated(f"{name_of(key)} takes a segment that is not complete: {segment}")
        if partition.segments and partition.segments[-1].end_offset + 1 != start:
            self._violated(f"{name_of(key)} takes {segment} behind {partition.segments[-1]}")
        if not start <= partition.local_start_offset <= segment.end_offset < partition.high_watermark:
            self._violated(f"{name_of(key)} takes {segment}, and WAL objects begin at {partition.local_start_offset}")
        while start <= segment.end_offset:
            batch = partition.batches[start]
            start, size_bytes = batch.last_offset + 1, size_bytes + batch.byte_size
        if (start, size_bytes) != (segment.end_offset + 1, segment.size_bytes):
            self._violated(f"{name_of(key)} takes {segment}, which has not the {size_bytes} bytes of its batches")

    def _segment_changed(self, event: object) -> None:
        match event:
            case RemoteLogSegmentMetadata() | RemoteLogSegmentMetadataUpdate():
                segment_id = event.segment_id.id.bytes
                self._segment_states[segment_id] = event.state
                if event.state in _GOING and self.refers_to(segment_id):
                    self._violated(f"the segment {event.segment_id} is deleted, and a partition has records in it")
            case RemotePartitionDeleteMetadata():
                place = event.topic_id_partition
                partition = self.partitions[PartitionKey(place.topic_id.bytes, place.partition)]
                partition.loses_segments = True
                self._drop_segments(partition, partition.high_watermark)
                for listener in self._on_segments_lost:
                    listener(place.topic)

    def refers_to(self, segment_id: bytes) -> bool:
        """Whether readers are sent to a segment."""
        return segment_id in self._referenced

    def is_going(self, segment_id: bytes) -> bool:
        """Whether somebody began to remove a segment."""
        return self._segment_states.get(segment_id) in _GOING

    def segments(self) -> set[bytes]:
        """The ids of all those."""
        return set(self._referenced)

    def _file_committed(self, shard: ShardId, record: FileCommitted) -> None:
        shards = self.committed_objects.setdefault(record.object_key, set())
        if shard in shards:
            self._violated(f"{record.object_key} is committed twice in {shard}")
        shards.add(shard)
        self.owners[record.object_key] = set(record.owner_ids)
        for topic_id, partitions in record.topics:
            for index, batches in partitions:
                key = PartitionKey(topic_id, index)
                partition = self.partitions[key]
                for one in batches:
                    if partition.deleted or one.base_offset != partition.high_watermark:
                        self._violated(f"{name_of(key)} ends at {partition.high_watermark} and goes on with {one}")
                    batch = Committed(
                        one.base_offset, one.last_offset, record.object_key, one.byte_offset, one.byte_size
                    )
                    partition.high_watermark = one.last_offset + 1
                    partition.batches[one.base_offset] = batch
                    partition.live.append(batch)
                    self.live_runs[record.object_key] += 1
                    if one.producer_id >= 0:
                        self._last_append_ms[key, one.producer_id] = self._time_of(one.log_append_timestamp)
        for listener in self._on_commit:
            listener(record)


def name_of(key: PartitionKey) -> str:
    """A partition as a history calls it."""
    return f"{key.topic_id.hex()[:6]}-{key.partition}"


def _is_of_any_shard(data: RecordData) -> bool:
    """Whether a record is about the log itself."""
    return data.key is None and data.value is not None and record_frames.read_frame(data.value).api_key in _OF_ANY_SHARD
