"""Reads a topic past batches that librdkafka cannot read: it stops at some, and others end its process.

Batches are fetched as bytes and checked before a record of them is used. It blocks.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from diskless_core.cli.client.cluster import ClusterError
from diskless_core.cli.raw_request import Address, ask
from diskless_core.protocol import record_batch, record_stream
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import FetchRequest, FetchResponse
from diskless_core.protocol.record_batch import (
    BatchHeader,
    CorruptBatchError,
    Record,
    TornBatchError,
    UnsupportedCompressionError,
)

Answer = FetchResponse.FetchableTopicResponse.PartitionData

PARTITION_BYTES = 1 << 20
ANSWER_BYTES = 8 << 20

_VERSION = 12
_WAIT_MS = 500
_TIMEOUT_S = 30.0
_RETRY_S = 0.5
_UNLIMITED_BYTES = 2**31 - 1
_ABORT_MARKER = b"\0\0\0\0"
"""Key of the control record that ends a transaction without its records: version 0, type 0."""

_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
)


class ReadRecord(NamedTuple):
    """A record that was read, with the methods of librdkafka's message."""

    place: tuple[str, int]
    timestamp_type: int
    read: Record

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.read.offset

    def key(self) -> bytes | None:
        return self.read.key

    def value(self) -> bytes | None:
        return self.read.value

    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        return self.read.headers

    def timestamp(self) -> tuple[int, int]:
        return self.timestamp_type, self.read.timestamp


class Skipped(NamedTuple):
    """Records that cannot be read: their offsets, inclusive, and why."""

    partition: int
    first_offset: int
    last_offset: int
    problem: str


class Reached(NamedTuple):
    """Nothing of a partition is left to read below an offset."""

    partition: int
    offset: int


Read = ReadRecord | Skipped | Reached


def read_batches(place: tuple[str, int], data: bytes, position: int, aborted: AbortedRecords) -> Iterator[Read]:
    """The records at `position` or later of a partition's fetched batches, and what is skipped, in order.

    A batch that the end of the data cuts off is left for the next Fetch.

    Raises:
        CorruptBatchError: a batch does not say where it ends.
    """
    view = memoryview(data)
    at = 0
    while at < len(view):
        try:
            header = record_batch.read_header(view, at)
        except TornBatchError:
            if at == 0:
                raise
            return
        batch = view[at : at + header.size]
        at += header.size
        first = max(position, header.base_offset)
        try:
            records = _checked_records(batch)
        except (CorruptBatchError, UnsupportedCompressionError) as error:
            yield Skipped(place[1], first, header.last_offset, str(error))
        else:
            if aborted.wants(header, records):
                timestamp_type = 2 if header.is_log_append_time else 1
                yield from (ReadRecord(place, timestamp_type, one) for one in records if one.offset >= position)
        position = header.last_offset + 1
        yield Reached(place[1], position)


def _checked_records(batch: memoryview) -> list[Record]:
    problem = record_stream.problem_of(batch)
    if problem is not None:
        raise CorruptBatchError(problem)
    return list(record_batch.records(batch, _UNLIMITED_BYTES))


class AbortedRecords:
    """Which batches of a partition's Fetch answer belong to transactions that were aborted, as the answer says."""

    def __init__(self, aborted: Sequence[Answer.AbortedTransaction]) -> None:
        self._begins = [(one.first_offset, one.producer_id) for one in aborted]
        heapq.heapify(self._begins)
        self._producers = set[int]()

    def wants(self, header: BatchHeader, records: Sequence[Record]) -> bool:
        """Whether a consumer gets the records of the next batch: not those of control batches either."""
        while self._begins and self._begins[0][0] <= header.last_offset:
            self._producers.add(heapq.heappop(self._begins)[1])
        if header.is_control:
            if records and records[0].key == _ABORT_MARKER:
                self._producers.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._producers)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDamage:
    """Reads partitions of a topic.

    Attributes:
        leaders: where the leader of each partition is, asked anew when one has moved.
        end_of: the high watermark of a partition. A broker does not tell it together with an error.
        committed: whether records of transactions are read only once these are committed.
    """

    topic: str
    leaders: Callable[[], Mapping[int, Address]]
    end_of: Callable[[int], int]
    committed: bool

    def read(self, starts: Mapping[int, int], wants: Callable[[int], bool]) -> Iterator[Read]:
        """What there is of partitions, by the offsets to begin at; `Reached` whenever one has been asked.

        Args:
            wants: whether a partition is still to be read. It ends when none is.

        Raises:
            ClusterError: a partition cannot be read, for another reason than damage.
        """
        positions = dict(starts)
        while wanted := {partition: offset for partition, offset in positions.items() if wants(partition)}:
            for answer in self._fetched(wanted, wait_ms=_WAIT_MS):
                for one in self._of(answer, positions[answer.partition_index]):
                    yield one
                    if isinstance(one, Reached):
                        positions[one.partition] = one.offset

    def _of(self, answer: Answer, position: int) -> Iterator[Read]:
        partition = answer.partition_index
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and position < answer.log_start_offset:
            yield Reached(partition, answer.log_start_offset)
        elif error is ErrorCode.CORRUPT_MESSAGE:
            after = self._after_damage(partition, position)
            yield Skipped(partition, position, after - 1, "the broker cannot read it either: CORRUPT_MESSAGE")
            yield Reached(partition, after)
        elif error is not ErrorCode.NONE:
            raise ClusterError(f"{self.topic}-{partition} cannot be read at offset {position}: {error.name}")
        else:
            aborted = AbortedRecords(answer.aborted_transactions or ())
            try:
                data = cast("bytes", answer.records or b"")
                yield from read_batches((self.topic, partition), data, position, aborted)
            except CorruptBatchError as problem:
                raise ClusterError(
                    f"{self.topic}-{partition} cannot be read past offset {position}: {problem}"
                ) from problem
            if not answer.records:
                yield Reached(partition, position)

    def _after_damage(self, partition: int, position: int) -> int:
        """The first offset behind `position` that the broker can read again, or the end of the partition.

        It is looked for in ever larger steps, and then between the last two.
        """

        def is_damaged(offset: int) -> bool:
            [answer] = self._fetched({partition: offset}, wait_ms=0)
            return ErrorCode(answer.error_code) is ErrorCode.CORRUPT_MESSAGE

        end = self.end_of(partition)
        step = 1
        while position + step < end and is_damaged(position + step):
            step *= 2
        damaged, sound = position + step // 2, min(position + step, end)
        while sound - damaged > 1:
            middle = (damaged + sound) // 2
            if is_damaged(middle):
                damaged = middle
            else:
                sound = middle
        return sound

    def _fetched(self, positions: Mapping[int, int], *, wait_ms: int) -> list[Answer]:
        retrying = Retrying(
            retry=retry_if_exception_type(_MovedError),
            stop=stop_after_delay(_TIMEOUT_S),
            wait=wait_fixed(_RETRY_S),
            reraise=True,
        )
        found: list[Answer] = retrying(self._fetched_once, positions, wait_ms)
        return found

    def _fetched_once(self, positions: Mapping[int, int], wait_ms: int) -> list[Answer]:
        by_leader = defaultdict[Address, list[int]](list)
        leaders = self.leaders()
        for partition in positions:
            if partition not in leaders:
                raise _MovedError(f"partition {partition} of {self.topic} has no leader now")
            by_leader[leaders[partition]].append(partition)
        answers: list[Answer] = []
        for address, partitions in by_leader.items():
            request = self._request({one: positions[one] for one in partitions}, wait_ms // len(by_leader))
            try:
                response = ask(address, request, _VERSION, _TIMEOUT_S)
            except (OSError, EOFError, ValueError) as error:
                raise _MovedError(f"{address} gives no answer: {error}") from error
            answers += [one for topic in response.responses for one in topic.partitions]
        moved = [one for one in answers if ErrorCode(one.error_code) in _MOVED]
        if moved:
            raise _MovedError(f"{self.topic}-{moved[0].partition_index}: {ErrorCode(moved[0].error_code).name}")
        return answers

    def _request(self, positions: Mapping[int, int], wait_ms: int) -> FetchRequest:
        topic = FetchRequest.FetchTopic
        partitions = [
            topic.FetchPartition(
                partition=partition,
                current_leader_epoch=-1,
                fetch_offset=offset,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=PARTITION_BYTES,
            )
            for partition, offset in positions.items()
        ]
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=ANSWER_BYTES,
            isolation_level=1 if self.committed else 0,
            topics=[topic(topic=self.topic, partitions=partitions)],
            forgotten_topics_data=[],
        )


class _MovedError(ClusterError):
    """A partition has another leader by now, or none for a while."""
