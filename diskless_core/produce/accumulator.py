"""The object being gathered: batches stay views of the frames they came in until it is sealed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from operator import attrgetter, itemgetter
from typing import NamedTuple

from diskless_core.diskless.commands import BatchResult, CommitBatch, PartitionKey
from diskless_core.diskless.producer_state import NO_PRODUCER
from diskless_core.produce.validation import ValidBatch
from diskless_core.protocol.errors import ErrorCode
from diskless_core.wal import format as wal_format
from diskless_core.wal.format import IndexEntry


@dataclass(slots=True, eq=False)
class Submission:
    """One Produce request's valid batches.

    Attributes:
        batches: each with its partition, in the order of the request.
        release: called once when the batches' memory is not needed any more.
        settle: called once, with a result for each batch, in order, or with the error that kept the outcome unknown.
        deadline_s: when the request's client no longer waits for an answer, on the monotonic clock. With acks=0 no
            client waits for one, and none sends the batches again: the deadline is infinite.
        learn: called with the position of a batch and its result, where that is known before those of others. So a
            client whose time is over hears what became of the rest of its request.
    """

    batches: Sequence[tuple[PartitionKey, ValidBatch]]
    release: Callable[[], None]
    settle: Callable[[Sequence[BatchResult] | BaseException], None]
    deadline_s: float = inf
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
    """Batches on their way into one object, in order of arrival.

    Attributes:
        earliest_deadline_s: of the submissions; infinite where there is none.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[PartitionKey, ValidBatch, Place]] = []
        self._submissions: list[Submission] = []
        self.size_bytes = 0
        self.earliest_deadline_s = inf

    @property
    def is_empty(self) -> bool:
        return not self._entries

    @property
    def batch_count(self) -> int:
        return len(self._entries)

    @property
    def partitions(self) -> set[PartitionKey]:
        return {key for key, _, _ in self._entries}

    def add(self, submission: Submission, shard: int | None) -> None:
        self._submissions.append(submission)
        self.earliest_deadline_s = min(self.earliest_deadline_s, submission.deadline_s)
        for index, (key, batch) in enumerate(submission.batches):
            self._entries.append((key, batch, Place(submission, index, shard)))
            self.size_bytes += len(batch.data)

    def drop_expired(
        self, now_s: float, pause_s: float, waits_elsewhere: Callable[[PartitionKey], bool]
    ) -> Counter[int | None]:
        """Take out batches that no client waits for, and settle them as timed out. Returns their bytes by shard.

        A client that has given a request up sends its batches again, and the copy here would be stored beside the new
        one. Of each partition two kinds of batches go:

        - All of them, when all their requests ended `pause_s` ago. By then a producer that goes on has sent the oldest
          one again, and that one would be here. So no batch of an idempotent producer passes an earlier one. Where
          later batches of the partition wait outside the object (`waits_elsewhere`), they could: all stay.
        - Otherwise those at the front whose requests have ended, up to the first batch of an idempotent producer. The
          coordinator recognises that one's copies, and without it the batches behind it would be out of sequence.
        """
        if now_s <= self.earliest_deadline_s:
            return Counter()
        queues: dict[PartitionKey, list[int]] = {}
        for at, (key, _, _) in enumerate(self._entries):
            queues.setdefault(key, []).append(at)
        dropped = {
            at
            for key, queue in queues.items()
            for at in self._expired(queue, now_s, inf if waits_elsewhere(key) else pause_s)
        }
        kept = [entry for at, entry in enumerate(self._entries) if at not in dropped]
        freed: Counter[int | None] = Counter()
        for at in dropped:
            _, batch, place = self._entries[at]
            freed[place.shard] += len(batch.data)
        self._entries = kept
        self.size_bytes -= freed.total()
        left = {id(place.submission) for _, _, place in kept}
        ended = [submission for submission in self._submissions if id(submission) not in left]
        self._submissions = [submission for submission in self._submissions if id(submission) in left]
        self.earliest_deadline_s = min((submission.deadline_s for submission in self._submissions), default=inf)
        for submission in ended:
            submission.release()
            submission.settle([BatchResult(ErrorCode.REQUEST_TIMED_OUT)] * len(submission.batches))
        return freed

    def _expired(self, queue: Sequence[int], now_s: float, pause_s: float) -> Sequence[int]:
        """Which batches of a partition are dropped."""
        if all(now_s > self._entries[at][2].submission.deadline_s + pause_s for at in queue):
            return queue
        for count, at in enumerate(queue):
            _, batch, place = self._entries[at]
            if batch.producer_id != NO_PRODUCER or now_s <= place.submission.deadline_s:
                return queue[:count]
        return queue

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
