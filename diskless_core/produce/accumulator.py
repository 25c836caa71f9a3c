"""The object being gathered: batches stay views of the frames they came in until it is sealed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import NamedTuple

from diskless_core.diskless.commands import BatchResult, CommitBatch, PartitionKey
from diskless_core.produce.validation import ValidBatch
from diskless_core.wal import format as wal_format
from diskless_core.wal.format import IndexEntry


@dataclass(slots=True, eq=False)
class Submission:
    """One Produce request's valid batches.

    Attributes:
        batches: each with its partition, in the order of the request.
        release: called once when the batches' memory is not needed any more.
        settle: called once, with a result for each batch, in order, or with the error that kept the outcome unknown.
        timeout_ms: how long the request's client waits for an answer.
        learn: called with the position of a batch and its result, where that is known before those of others. So a
            client whose time is over hears what became of the rest of its request.
    """

    batches: Sequence[tuple[PartitionKey, ValidBatch]]
    release: Callable[[], None]
    settle: Callable[[Sequence[BatchResult] | BaseException], None]
    timeout_ms: int = 30_000
    learn: Callable[[int, BatchResult], None] | None = None


class Place(NamedTuple):
    """Where a batch of the sealed object came from. `shard` is the coordinator that owns its partition, if any is."""

    submission: Submission
    position: int
    shard: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SealedFile:
    """An object ready for upload. `batches[i]` came from `places[i]`; batches are sorted by partition, then arrival.

    All batches of a submission are of one shard.
    """

    data: memoryview
    batches: Sequence[CommitBatch]
    places: Sequence[Place]

    def part(self, indexes: Sequence[int]) -> SealedFile:
        """Some of its batches, without the bytes, for when these are stored."""
        return SealedFile(
            data=memoryview(b""),
            batches=[self.batches[index] for index in indexes],
            places=[self.places[index] for index in indexes],
        )


class Accumulator:
    """Batches on their way into one object, in order of arrival."""

    def __init__(self) -> None:
        self._entries: list[tuple[PartitionKey, ValidBatch, Place]] = []
        self._submissions: list[Submission] = []
        self.size_bytes = 0

    @property
    def is_empty(self) -> bool:
        return not self._submissions

    @property
    def batch_count(self) -> int:
        return len(self._entries)

    @property
    def partitions(self) -> set[PartitionKey]:
        return {key for key, _, _ in self._entries}

    def add(self, submission: Submission, shard: int | None) -> None:
        self._submissions.append(submission)
        for index, (key, batch) in enumerate(submission.batches):
            self._entries.append((key, batch, Place(submission, index, shard)))
            self.size_bytes += len(batch.data)

    def seal(self, allocate: Callable[[int], memoryview]) -> SealedFile:
        """Sort and join, once, into the memory that is both the upload and the cache entry; frees the frames."""
        entries = sorted(self._entries, key=itemgetter(0))
        position = wal_format.HEADER_BYTES
        batches = []
        for key, batch, _ in entries:
            batches.append(batch.at(key, position))
            position += len(batch.data)
        footer = wal_format.encode_footer(_index(batches), position)
        data = _join([wal_format.HEADER, *(batch.data for _, batch, _ in entries), footer], allocate)
        for submission in self._submissions:
            submission.release()
        return SealedFile(
            data=data,
            batches=batches,
            places=[place for _, _, place in entries],
        )


def _join(parts: Sequence[bytes | memoryview], allocate: Callable[[int], memoryview]) -> memoryview:
    joined = allocate(sum(map(len, parts)))
    position = 0
    for part in parts:
        end = position + len(part)
        joined[position:end] = part
        position = end
    return joined


def _index(batches: Sequence[CommitBatch]) -> list[IndexEntry]:
    index = []
    for (topic_id, partition), group in groupby(batches, key=attrgetter("topic_id", "partition")):
        members = list(group)
        index.append(
            IndexEntry(
                topic_id=topic_id,
                partition=partition,
                byte_offset=members[0].byte_offset,
                size=sum(batch.size for batch in members),
                batch_count=len(members),
                record_count=sum(batch.record_count for batch in members),
            )
        )
    return index
