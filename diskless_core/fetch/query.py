"""What a Fetch request wants, and what it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from diskless_core.diskless.commands import NO_OFFSET, FoundRuns, PartitionKey
from diskless_core.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    """One partition that is asked for."""

    key: PartitionKey
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchQuery:
    """What a Fetch request wants; sizes in bytes, `max_wait_ms` from when it was received."""

    partitions: Sequence[FetchPartition]
    max_bytes: int
    min_bytes: int
    max_wait_ms: int

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
    """

    error: ErrorCode
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    records: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    starved: bool = False
    cannot_wait: bool = False

    @classmethod
    def without_records(cls, found: FoundRuns) -> FetchedPartition:
        return cls(error=found.error, high_watermark=found.high_watermark, log_start_offset=found.log_start_offset)


def is_enough(answers: Sequence[FetchedPartition], min_bytes: int) -> bool:
    """Whether a response goes out before its time is over."""
    if any(answer.error is not ErrorCode.NONE or answer.cannot_wait for answer in answers):
        return True
    return sum(answer.size_bytes for answer in answers) >= min_bytes
