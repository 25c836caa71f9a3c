"""What a Fetch request wants, and what it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from diskless_core.diskless.commands import NO_OFFSET, FoundRuns, PartitionKey
from diskless_core.protocol.errors import ErrorCode

_CAN_WAIT = frozenset({ErrorCode.NONE, ErrorCode.OFFSET_NOT_AVAILABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    """One partition that is asked for."""

    key: PartitionKey
    offset: int
    max_bytes: int


class AnswerRoom(Protocol):
    """Memory for the answer to a request. The caller gives it back when the answer is on its way, or given up."""

    async def wait(self, limit_s: float) -> bool:
        """Wait until there is memory for one more batch, so many seconds at most. Returns whether there is."""
        ...

    def allowed(self, wanted_bytes: int) -> int:
        """How many bytes the answer may have that wants so many: at least 1."""
        ...

    def take(self, size_bytes: int) -> None:
        """The answer takes so many bytes from now on, instead of those before."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchQuery:
    """What a Fetch request wants; sizes in bytes, `max_wait_ms` from when it was received.

    Attributes:
        room: None where nothing bounds the answer but `max_bytes`.
    """

    partitions: Sequence[FetchPartition]
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    room: AnswerRoom | None = None

    @property
    def keys(self) -> list[PartitionKey]:
        return [wanted.key for wanted in self.partitions]


@dataclass(slots=True)
class FetchedPartition:
    """The answer for one partition.

    Attributes:
        records: slices of cached objects or segments: whole batches, in order.
        starved: whether the request's budget did not reach it.
        cannot_wait: whether the response goes out now, whatever its size: segments have been waited for.
        passing_failure: why the object store could not be read just now, where the same read can succeed later.
    """

    error: ErrorCode
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    records: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    starved: bool = False
    cannot_wait: bool = False
    passing_failure: str | None = None

    @classmethod
    def without_records(cls, found: FoundRuns) -> FetchedPartition:
        return cls(error=found.error, high_watermark=found.high_watermark, log_start_offset=found.log_start_offset)


def put_back(answers: Sequence[FetchedPartition], room: AnswerRoom | None) -> bool:
    """Let go of the records, for they would take memory while the request waits. Whether there were any."""
    had_records = False
    if room is not None:
        for answer in answers:
            had_records = had_records or bool(answer.records)
            answer.records = []
        room.take(0)
    return had_records


def is_enough(answers: Sequence[FetchedPartition], min_bytes: int) -> bool:
    """Whether a response goes out before its time is over.

    With OFFSET_NOT_AVAILABLE, after which consumers ask again at once, and with a read that failed and can succeed, it
    does if there are records of others.
    """
    if any(answer.cannot_wait or not _can_wait(answer) for answer in answers):
        return True
    size_bytes = sum(answer.size_bytes for answer in answers)
    return size_bytes >= min_bytes or (size_bytes > 0 and (is_unavailable(answers) or has_failed_reads(answers)))


def _can_wait(answer: FetchedPartition) -> bool:
    return answer.error in _CAN_WAIT or answer.passing_failure is not None


def is_unavailable(answers: Sequence[FetchedPartition]) -> bool:
    """Whether nobody could say what there is of a partition."""
    return any(answer.error is ErrorCode.OFFSET_NOT_AVAILABLE for answer in answers)


def has_failed_reads(answers: Sequence[FetchedPartition]) -> bool:
    """Whether the object store could not be read for a partition, and may be read later."""
    return any(answer.passing_failure is not None for answer in answers)
