"""What a diskless shard has to answer, said as simply as possible: no log, no store, no runs, no grouping."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from diskless_core.diskless.commands import BatchResult, CommitBatch, CommitFile, DeletedRecords, PartitionKey
from diskless_core.protocol.errors import ErrorCode
from diskless_core.remote_log.tiered import TieredSegment
from diskless_core.wal.runs import Run

SEQUENCES = 2**31


class Appended(NamedTuple):
    """A batch in a partition."""

    object_key: str
    batch: CommitBatch
    base_offset: int
    append_time: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.batch.record_count - 1

    @property
    def max_timestamp(self) -> int:
        return self.append_time if self.batch.timestamp_type else self.batch.max_timestamp


@dataclass
class PartitionModel:
    """`batches` are all that there ever were; what lies below the log start can't be read any more.

    `segments` are those that hold what lies below `local_start`.
    """

    batches: list[Appended] = field(default_factory=list)
    producers: dict[int, list[Appended]] = field(default_factory=dict)
    log_start: int = 0
    local_start: int = 0
    segments: list[TieredSegment] = field(default_factory=list)

    @property
    def next_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    @property
    def in_objects(self) -> list[Appended]:
        """What is read from WAL objects."""
        return self.since(self.local_start)

    def tier(self, segment: TieredSegment) -> None:
        self.segments.append(segment)
        self.local_start = segment.end_offset + 1

    def delete_before(self, offset: int) -> None:
        self.log_start = max(self.log_start, offset)
        self.local_start = max(self.local_start, offset)
        self.segments = [one for one in self.segments if one.end_offset >= self.log_start]

    def since(self, offset: int) -> list[Appended]:
        """From the batch that contains `offset` on."""
        return [one for one in self.batches if one.last_offset >= offset]


@dataclass
class CommitModel:
    """All of a shard.

    Attributes:
        tombstones: objects that were handed over before they were committed.
        received: all objects that were handed over, but those that began their life here.
        gone: objects that this shard is through with.
        owner: what stands for this shard in lists of owners.
        left_producers: those of deleted partitions, by their keys, that are still remembered.
        forgotten_up_to: the highest producer id of which anything has expired.
        deleted_up_to: the highest producer id that had appended when a topic was deleted.
        seen_up_to: the highest producer id that ever appended.
        seen_before: the same for each topic, as it was when the topic came.
    """

    expiration_ms: int
    topics: dict[bytes, dict[int, PartitionModel]] = field(default_factory=dict)
    files: dict[str, tuple[CommitFile, list[BatchResult]]] = field(default_factory=dict)
    horizon_ms: int = 0
    tombstones: set[str] = field(default_factory=set)
    received: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    owner: int = 0
    left_producers: set[tuple[bytes, int, int]] = field(default_factory=set)
    forgotten_up_to: int = -1
    deleted_up_to: int = -1
    seen_up_to: int = -1
    seen_before: dict[bytes, int] = field(default_factory=dict)

    def create_partitions(self, topic_id: bytes, indexes: Iterable[int]) -> None:
        if topic_id not in self.topics:
            self.seen_before[topic_id] = self.seen_up_to
        partitions = self.topics.setdefault(topic_id, {})
        for index in indexes:
            partitions.setdefault(index, PartitionModel())

    def delete_topic(self, topic_id: bytes) -> ErrorCode:
        self.left_producers |= {key for key in self.producers if key[0] == topic_id}
        if self.topics.pop(topic_id, None) is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        self.deleted_up_to = self.seen_up_to
        return ErrorCode.NONE

    def delete_records(self, key: PartitionKey, offset: int) -> DeletedRecords:
        partition = self.partitions().get(key)
        if partition is None:
            return DeletedRecords(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        wanted = partition.next_offset if offset == -1 else offset
        if not 0 <= wanted <= partition.next_offset:
            return DeletedRecords(ErrorCode.OFFSET_OUT_OF_RANGE)
        partition.delete_before(wanted)
        return DeletedRecords(ErrorCode.NONE, partition.log_start)

    def raise_horizon(self, horizon_ms: int) -> None:
        self.horizon_ms = max(self.horizon_ms, horizon_ms)

    def commit(self, request: CommitFile, now_ms: int, created_ms: int | None = None) -> list[BatchResult]:
        """`created_ms` is when the object was made, if its key says so."""
        if not request.batches:
            return []
        if request.object_key in self.files:
            known, results = self.files[request.object_key]
            same = (known.batches, known.file_size) == (request.batches, request.file_size)
            return results if same else [BatchResult(ErrorCode.INVALID_REQUEST)] * len(request.batches)
        too_old = created_ms is not None and created_ms < self.horizon_ms
        if too_old or request.object_key in self.tombstones:
            return [BatchResult(ErrorCode.KAFKA_STORAGE_ERROR)] * len(request.batches)
        results = [self._commit_one(request.object_key, batch, now_ms) for batch in request.batches]
        self.files[request.object_key] = (request, results)
        return results

    def partitions(self) -> dict[PartitionKey, PartitionModel]:
        return {
            PartitionKey(topic, index): partition
            for topic, partitions in self.topics.items()
            for index, partition in partitions.items()
        }

    # --- producers -----------------------------------------------------------------------------------------------

    @property
    def producers(self) -> dict[tuple[bytes, int, int], list[Appended]]:
        """The batches that are remembered of each producer of a partition, by the key of its row."""
        return {
            (*key, producer): window[-5:]
            for key, partition in self.partitions().items()
            for producer, window in partition.producers.items()
        }

    def preceding(self, key: tuple[bytes, int, int]) -> int:
        """How many records of a producer were accepted before those that are remembered."""
        *partition, producer = key
        window = self.partitions()[PartitionKey(*partition)].producers[producer]
        return sum(one.batch.record_count for one in window[:-5])

    def producers_are_left(self, left: set[tuple[bytes, int, int]], asked_ms: int, answered_ms: int) -> None:
        """So many are left after the shard was asked to forget those that have expired.

        Args:
            asked_ms: when the leader that answered was asked, by its own clock.
            answered_ms: when the answer came, by the clock that is furthest ahead: any node may have led meanwhile.
        """
        assert left <= self.producers.keys()
        forgotten = self.producers.keys() - left
        self.forgotten_up_to = max([self.forgotten_up_to, *(producer for _, _, producer in forgotten)])
        for key, window in self.producers.items():
            silent_since_ms = window[-1].append_time
            if key in left:
                assert asked_ms - silent_since_ms < self.expiration_ms, f"{key} is not forgotten"
            else:
                assert answered_ms - silent_since_ms >= self.expiration_ms, f"{key} is forgotten too soon"
                del self.topics[key[0]][key[1]].producers[key[2]]
        self.left_producers.clear()

    # --- objects -------------------------------------------------------------------------------------------------

    @property
    def known_files(self) -> set[str]:
        return self.files.keys() | self.tombstones

    @property
    def live_files(self) -> set[str]:
        """The objects with a batch that is read from them."""
        return {one.object_key for partition in self.partitions().values() for one in partition.in_objects}

    @property
    def dead_files(self) -> set[str]:
        return self.known_files - self.live_files

    def hand_over(self, object_key: str) -> None:
        if object_key in self.files and self.files[object_key][0].owner_ids[0] == self.owner:
            return
        self.received.add(object_key)
        if object_key not in self.files:
            self.tombstones.add(object_key)

    def forget(self, object_key: str) -> None:
        if object_key in self.gone:
            self.files.pop(object_key, None)
            for known in (self.tombstones, self.received, self.gone):
                known.discard(object_key)

    # --- batches -------------------------------------------------------------------------------------------------

    def _commit_one(self, object_key: str, batch: CommitBatch, now_ms: int) -> BatchResult:
        if batch.topic_id not in self.topics:
            return BatchResult(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self.topics[batch.topic_id].get(batch.partition)
        if partition is None:
            return BatchResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if batch.producer_id >= 0:
            seen = partition.producers.get(batch.producer_id, [])
            lost = min(self.deleted_up_to, self.seen_before[batch.topic_id])
            may_be_forgotten = batch.producer_id <= max(self.forgotten_up_to, lost)
            error, original = judge(seen, batch, may_be_forgotten=may_be_forgotten)
            if error is not ErrorCode.NONE:
                return BatchResult(error)
            if original is not None:
                return BatchResult(ErrorCode.NONE, original.base_offset, original.append_time, is_duplicate=True)
        appended = Appended(object_key, batch, partition.next_offset, now_ms)
        partition.batches.append(appended)
        if batch.producer_id >= 0:
            self.seen_up_to = max(self.seen_up_to, batch.producer_id)
            window = partition.producers.setdefault(batch.producer_id, [])
            if window and not follows(window[-1].batch, batch):
                window.clear()
            window.append(appended)
        return BatchResult(ErrorCode.NONE, appended.base_offset, now_ms)


def follows(last: CommitBatch, batch: CommitBatch) -> bool:
    return batch.producer_epoch == last.producer_epoch and batch.base_sequence == (last.last_sequence + 1) % SEQUENCES


def judge(seen: Sequence[Appended], batch: CommitBatch, *, may_be_forgotten: bool) -> tuple[ErrorCode, Appended | None]:
    """`seen` are all batches of the producer since its epoch, or its state, began."""
    if not seen:
        begins = batch.base_sequence == 0 or may_be_forgotten
        return (ErrorCode.NONE if begins else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), None
    last = seen[-1].batch
    if batch.producer_epoch < last.producer_epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH, None
    if batch.producer_epoch > last.producer_epoch:
        return (ErrorCode.NONE if batch.base_sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), None
    for original in seen[-5:]:
        same_range = (original.batch.base_sequence, original.batch.last_sequence) == batch[-2:]
        if original.batch.producer_epoch == batch.producer_epoch and same_range:
            return ErrorCode.NONE, original
    if follows(last, batch):
        return ErrorCode.NONE, None
    before = {sequence for one in seen[:-5] for sequence in sequences_of(one.batch)}
    is_known = before.issuperset(sequences_of(batch))
    return (ErrorCode.DUPLICATE_SEQUENCE_NUMBER if is_known else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), None


def sequences_of(batch: CommitBatch) -> list[int]:
    return [(batch.base_sequence + number) % SEQUENCES for number in range(batch.record_count)]


def assert_runs_are(runs: Sequence[Run], expected: Sequence[Appended]) -> None:
    """The runs hold exactly these batches in this order, each at its offset and its bytes."""
    left = list(expected)
    for run in runs:
        offset, position = run.base_offset, run.byte_offset
        members = []
        while offset <= run.last_offset:
            assert left, f"{run} holds more than was committed"
            one = left.pop(0)
            assert (one.object_key, one.base_offset, one.batch.byte_offset) == (run.object_key, offset, position)
            assert (one.append_time, one.batch.timestamp_type) == (run.append_time, run.timestamp_type)
            members.append(one)
            offset += one.batch.record_count
            position += one.batch.size
        assert offset == run.last_offset + 1
        assert position == run.byte_offset + run.byte_size
        assert run.max_timestamp == max(one.max_timestamp for one in members)
    assert not left, f"not to be found: {left}"


def assert_reads_are(runs: Sequence[Run], partition: PartitionModel, offset: int) -> None:
    """These runs are all that a reader finds from `offset` on. The first one is whole, so it may begin earlier."""
    assert not runs or runs[0].base_offset <= offset <= runs[0].last_offset, (runs[0], offset)
    assert_runs_are(runs, partition.since(runs[0].base_offset if runs else offset))
