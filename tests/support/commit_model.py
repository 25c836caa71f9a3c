"""What a diskless shard has to answer, said as simply as possible: no log, no store, no runs, no grouping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from diskless_core.coordinator.commands import BatchResult, CommitBatch, CommitFile, PartitionKey, Run
from diskless_core.protocol.errors import ErrorCode

SEQUENCES = 2**31


class Appended(NamedTuple):
    """A batch in a partition."""

    object_key: str
    batch: CommitBatch
    base_offset: int
    append_time: int


@dataclass
class PartitionModel:
    batches: list[Appended] = field(default_factory=list)
    producers: dict[int, list[Appended]] = field(default_factory=dict)

    @property
    def next_offset(self) -> int:
        return sum(one.batch.record_count for one in self.batches)


@dataclass
class CommitModel:
    expiration_ms: int
    topics: dict[bytes, dict[int, PartitionModel]] = field(default_factory=dict)
    files: dict[str, tuple[CommitFile, list[BatchResult]]] = field(default_factory=dict)

    def commit(self, request: CommitFile, now_ms: int) -> list[BatchResult]:
        if not request.batches:
            return []
        if request.object_key in self.files:
            known, results = self.files[request.object_key]
            same = (known.batches, known.file_size) == (request.batches, request.file_size)
            return results if same else [BatchResult(ErrorCode.INVALID_REQUEST)] * len(request.batches)
        expired = {
            (key, producer)
            for key, partition in self.partitions().items()
            for producer, window in partition.producers.items()
            if now_ms - window[-1].append_time > self.expiration_ms
        }
        fresh: dict[tuple[PartitionKey, int], list[Appended]] = {}
        results = [self._commit_one(request.object_key, batch, now_ms, expired, fresh) for batch in request.batches]
        self.files[request.object_key] = (request, results)
        return results

    def partitions(self) -> dict[PartitionKey, PartitionModel]:
        return {
            PartitionKey(topic, index): partition
            for topic, partitions in self.topics.items()
            for index, partition in partitions.items()
        }

    def _commit_one(
        self,
        object_key: str,
        batch: CommitBatch,
        now_ms: int,
        expired: set[tuple[PartitionKey, int]],
        fresh: dict[tuple[PartitionKey, int], list[Appended]],
    ) -> BatchResult:
        if batch.topic_id not in self.topics:
            return BatchResult(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self.topics[batch.topic_id].get(batch.partition)
        if partition is None:
            return BatchResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        name = (PartitionKey(batch.topic_id, batch.partition), batch.producer_id)
        seen = fresh.get(name, []) if name in expired else partition.producers.get(batch.producer_id, [])
        if batch.producer_id >= 0:
            error, original = judge(seen, batch)
            if error is not ErrorCode.NONE:
                return BatchResult(error)
            if original is not None:
                return BatchResult(ErrorCode.NONE, original.base_offset, original.append_time, is_duplicate=True)
        appended = Appended(object_key, batch, partition.next_offset, now_ms)
        partition.batches.append(appended)
        if batch.producer_id >= 0:
            fresh.setdefault(name, []).append(appended)
            window = partition.producers.setdefault(batch.producer_id, [])
            if window and not follows(window[-1].batch, batch):
                window.clear()
            window.append(appended)
        return BatchResult(ErrorCode.NONE, appended.base_offset, now_ms)


def follows(last: CommitBatch, batch: CommitBatch) -> bool:
    return batch.producer_epoch == last.producer_epoch and batch.base_sequence == (last.last_sequence + 1) % SEQUENCES


def judge(seen: Sequence[Appended], batch: CommitBatch) -> tuple[ErrorCode, Appended | None]:
    """`seen` are all batches of the producer since its epoch, or its state, began."""
    if not seen:
        return ErrorCode.NONE, None
    last = seen[-1].batch
    if batch.producer_epoch < last.producer_epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH, None
    if batch.producer_epoch > last.producer_epoch:
        return (ErrorCode.NONE if batch.base_sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), None
    for original in seen[-5:]:
        same_range = (original.batch.base_sequence, original.batch.last_sequence) == batch[-2:]
        if original.batch.producer_epoch == batch.producer_epoch and same_range:
            return ErrorCode.NONE, original
    return (ErrorCode.NONE if follows(last, batch) else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), None


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
        latest = max(one.append_time if one.batch.timestamp_type else one.batch.max_timestamp for one in members)
        assert run.max_timestamp == latest
    assert not left, f"not to be found: {left}"
