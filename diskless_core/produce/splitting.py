"""Requests in parts: some batches go on at once and others wait, they are of several shards, or too many. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from diskless_core.diskless.commands import BatchResult, PartitionKey
from diskless_core.produce.accumulator import Submission
from diskless_core.produce.validation import ValidBatch
from diskless_core.protocol.errors import ErrorCode


class Split:
    """A submission in parts, each of which is settled and released by itself; the whole is when all of them are.

    Where a part's outcome is an error, its batches have KAFKA_STORAGE_ERROR.
    """

    def __init__(self, whole: Submission, parts: int) -> None:
        self._whole = whole
        self._results = [BatchResult(ErrorCode.REQUEST_TIMED_OUT)] * len(whole.batches)
        self._to_settle = self._to_release = parts

    def part(self, indexes: Sequence[int]) -> Submission:
        """The part with these batches; each batch belongs to one part."""
        return self._part(indexes, [self._whole.batches[index] for index in indexes], self._release)

    def kept(self, indexes: Sequence[int]) -> Submission:
        """The same as `part`, for batches that may wait for long: they have memory of their own, so that they do not
        keep that of the whole request, of which they may be a small part."""
        own = [
            (key, batch._replace(data=memoryview(bytes(batch.data))))
            for key, batch in (self._whole.batches[index] for index in indexes)
        ]
        self._release()
        return self._part(indexes, own, _nothing)

    def _part(
        self,
        indexes: Sequence[int],
        batches: Sequence[tuple[PartitionKey, ValidBatch]],
        release: Callable[[], None],
    ) -> Submission:

        def learn(position: int, result: BatchResult) -> None:
            self._learn(indexes[position], result)

        def settle(outcome: Sequence[BatchResult] | BaseException) -> None:
            if isinstance(outcome, BaseException):
                outcome = [BatchResult(ErrorCode.KAFKA_STORAGE_ERROR)] * len(indexes)
            for index, result in zip(indexes, outcome, strict=True):
                self._learn(index, result)
            self._to_settle -= 1
            if not self._to_settle:
                self._whole.settle(self._results)

        return Submission(
            batches=batches,
            release=release,
            settle=settle,
            deadline_s=self._whole.deadline_s,
            learn=learn,
        )

    def _learn(self, index: int, result: BatchResult) -> None:
        self._results[index] = result
        if self._whole.learn is not None:
            self._whole.learn(index, result)

    def _release(self) -> None:
        self._to_release -= 1
        if not self._to_release:
            self._whole.release()


def _nothing() -> None:
    """The memory of what is kept is its own."""


def by_shard(
    submission: Submission, shard_of: Callable[[PartitionKey], int | None]
) -> Sequence[tuple[int | None, Submission]]:
    """The submission as one part for each shard, in order of arrival; itself where it has batches of one only."""
    shards: dict[int | None, list[int]] = {}
    for index, (key, _) in enumerate(submission.batches):
        shards.setdefault(shard_of(key), []).append(index)
    if len(shards) == 1:
        return [(shard, submission) for shard in shards]
    split = Split(submission, len(shards))
    return [(shard, split.part(indexes)) for shard, indexes in shards.items()]


def in_parts(submission: Submission, batch_count: int) -> Sequence[Submission]:
    """The submission as parts of `batch_count` batches at most, in order; itself where it has no more."""
    total = len(submission.batches)
    if total <= batch_count:
        return [submission]
    parts = [range(first, min(first + batch_count, total)) for first in range(0, total, batch_count)]
    split = Split(submission, len(parts))
    return [split.part(indexes) for indexes in parts]
