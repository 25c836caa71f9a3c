"""The whole way of a batch in one process: the produce path, a shard and the read path on fakes, in virtual time."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from diskless_core.config.types import RecordValidation
from diskless_core.diskless.commands import BatchResult, PartitionKey, TimestampType
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.shard import DisklessShard
from diskless_core.fetch.part import Fetch, FetchNeighbours, FetchSettings, SegmentReads
from diskless_core.fetch.query import AnswerRoom, FetchedPartition, FetchPartition, FetchQuery
from diskless_core.metrics import Metrics
from diskless_core.plugin.offset_assignment import OffsetAssignment
from diskless_core.produce.accumulator import Submission
from diskless_core.produce.part import Produce, ProduceNeighbours, ProduceSettings
from diskless_core.produce.validation import TopicRules, validate
from diskless_core.produce.writer import WriterSettings
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import RecordData
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from tests.support.shards import TOPIC, ShardNode
from tests.support.virtual_time import START_MS, VirtualClock

RULES = TopicRules(
    max_message_bytes=1 << 20,
    timestamp_type=TimestampType.CREATE_TIME,
    timestamp_before_max_ms=2**63 - 1,
    timestamp_after_max_ms=2**63 - 1,
)
PARTITIONS = 4
TIMEOUT_S = 30.0
"""How long a client waits for the answer to a Produce request."""

WAIT_MS = 500
"""How long a request waits for a segment."""


def key_of(partition: int) -> PartitionKey:
    return PartitionKey(TOPIC, partition)


class UnevenStore(MemoryWalObjectStore):
    """Each put takes as long as `delay_of` says, in seconds, for the number of the put."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.delay_of: Callable[[int], float] = lambda _: 0.0
        self.puts = 0

    async def put(self, key: str, data: bytes | bytearray) -> None:
        number, self.puts = self.puts, self.puts + 1
        await asyncio.sleep(self.delay_of(number))
        await super().put(key, data)


class ProducePath:
    """Produce and Fetch without sockets. Use it as an asynchronous context manager."""

    def __init__(
        self,
        *,
        assignment: OffsetAssignment | None = None,
        linger_ms: int = 0,
        buffer_max_bytes: int = 1 << 20,
        inflight_max_bytes: int = 1 << 30,
        cache_bytes: int = 1 << 20,
        record_validation: RecordValidation = RecordValidation.FIRST,
    ) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.metrics = Metrics()
        self.shared = SharedLog()
        self.node = ShardNode(self.shared, self.clock, assignment=assignment)
        self.objects = UnevenStore(self.clock)
        self.purgatory = Purgatory()
        self.released = 0
        self.awaited = set[PartitionKey]()
        self.settings = WriterSettings(
            commit_interval_ms=250,
            linger_ms=linger_ms,
            buffer_max_bytes=buffer_max_bytes,
            inflight_max_bytes=inflight_max_bytes,
            object_prefix="wal",
            record_validation=record_validation,
        )
        self._cache_bytes = cache_bytes

    async def __aenter__(self) -> ProducePath:
        shard = await self.node.start()
        await shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", range(PARTITIONS))
        self._fetch = self.new_fetch(self._cache_bytes, self._cache_bytes // 4)
        self._fetch.start()
        self.reader, self.lookup, self.fetcher = self._fetch.reader, self._fetch.lookup, self._fetch.fetcher
        self.writer = Produce(
            ProduceSettings(writer=self.settings, upload_parallelism=4, shutdown_timeout_ms=5_000),
            ProduceNeighbours(
                node_id=1,
                objects=self.objects,
                coordinators={0: shard},
                shard_of=lambda key: 0 if key.topic_id == TOPIC else None,
                is_awaited=self.awaited.__contains__,
                on_uploaded=self.reader.uploaded,
                clock=self.clock,
                metrics=self.metrics,
            ),
        ).writer
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.abort()
        await self._fetch.stop()
        await self.node.stop()

    def new_fetch(self, cache_bytes: int, ahead_bytes: int) -> Fetch:
        """A read path with a cache of its own, in which nothing is yet; it has not been started."""
        return Fetch(
            FetchSettings(cache_max_bytes=cache_bytes, read_ahead_max_bytes=ahead_bytes, remote_max_wait_ms=WAIT_MS),
            FetchNeighbours(
                objects=self.objects,
                shards={0: self.node.shard},
                replica_of=self.replica_of,
                coordinator_of=lambda _: self.node.shard,
                purgatory=self.purgatory,
                segments=self.segment_reads(),
                clock=self.clock,
                metrics=self.metrics,
            ),
        )

    def replica_of(self, key: PartitionKey) -> DisklessShard | None:
        return self.node.shard if key.topic_id == TOPIC else None

    def segment_reads(self) -> SegmentReads | None:
        """What reads segments, if there are any."""
        return None

    def produce(
        self, *batches: tuple[int, bytes], rules: TopicRules = RULES, timeout_s: float = TIMEOUT_S
    ) -> asyncio.Future[Sequence[BatchResult]]:
        """Append one request of (partition, batch); the answer comes when it is settled."""
        answer: asyncio.Future[Sequence[BatchResult]] = asyncio.get_running_loop().create_future()

        def settle(outcome: Sequence[BatchResult] | BaseException) -> None:
            if isinstance(outcome, BaseException):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        def release() -> None:
            self.released += 1

        self.writer.record_checks.begin_request()
        valid = [
            (key_of(partition), validate(memoryview(batch), rules, 9, self.clock.now_ms(), self.writer.record_checks))
            for partition, batch in batches
        ]
        deadline_s = self.clock.monotonic() + timeout_s
        self.writer.append(Submission(batches=valid, release=release, settle=settle, deadline_s=deadline_s))
        return answer

    async def fetch(
        self,
        *wanted: tuple[int, int],
        max_bytes: int = 1 << 20,
        starved: list[PartitionKey] | None = None,
        room: AnswerRoom | None = None,
        **more: int,
    ) -> list[FetchedPartition]:
        """Fetch (partition, offset) pairs."""
        query = FetchQuery(
            partitions=[FetchPartition(key=key_of(p), offset=offset, max_bytes=1 << 20) for p, offset in wanted],
            max_bytes=max_bytes,
            min_bytes=more.get("min_bytes", 1),
            max_wait_ms=more.get("max_wait_ms", 0),
            room=room,
        )
        return await self.fetcher.fetch(query, starved if starved is not None else [])

    async def read(self, partition: int) -> list[tuple[int, bytes | None]]:
        """Offset and value of every record, as consumers get them."""
        offset, found = 0, list[tuple[int, bytes | None]]()
        while True:
            [answer] = await self.fetch((partition, offset))
            records = records_of(answer)
            if not records:
                assert offset == answer.high_watermark, answer
                return found
            found += records
            offset = found[-1][0] + 1


def records_of(answer: FetchedPartition) -> list[tuple[int, bytes | None]]:
    found = []
    for data in answer.records:
        for position, header in record_batch.walk(data):
            batch = data[position : position + header.size]
            assert record_batch.crc_is_valid(batch, 0, header)
            found += [(record.offset, record.value) for record in record_batch.records(batch)]
    return found


def batch_of(*values: bytes, timestamp_ms: int = START_MS, **more: Any) -> bytes:
    return record_batch.build(
        [RecordData(key=None, value=value) for value in values], timestamp_ms=timestamp_ms, **more
    )
