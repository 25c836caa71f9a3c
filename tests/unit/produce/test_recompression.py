"""Batches that a topic's `compression.type` wants with another codec, from the request to what consumers get."""

from __future__ import annotations

import asyncio
import gzip
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from kafka.record import MemoryRecords

from diskless_core.produce import recompression
from diskless_core.produce.recompression import MAX_THREADS, ROUND_BATCHES
from diskless_core.produce.validation import TopicRules
from diskless_core.protocol import record_batch
from diskless_core.protocol.compression import CODECS, MAX_DECOMPRESSED_BYTES, Codec
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.record_batch import HEADER_BYTES, RecordData, read_header
from tests.support import batches
from tests.support.guarantees import guarantee
from tests.support.produce_path import PARTITIONS, RULES, ProducePath
from tests.support.shards import TOPIC
from tests.support.virtual_time import VirtualTimeLoop, run

NONE, GZIP, SNAPPY, LZ4, ZSTD = CODECS.values()
PLAIN = replace(RULES, stored_with=Codec(NONE))
PACKED = replace(RULES, stored_with=Codec(ZSTD, 3))
TEXT = b"a text that repeats itself, " * 40


def compressing_takes(seconds: float) -> None:
    """Nothing else that goes on in threads takes any time."""
    loop = cast("VirtualTimeLoop", asyncio.get_running_loop())
    given = loop.run_in_executor

    def run_in_executor(executor: Any, job: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        loop.executor_delay_s = (lambda: seconds) if job.__module__ == recompression.__name__ else None
        return given(executor, job, *arguments)

    loop.run_in_executor = run_in_executor  # type: ignore[assignment,method-assign]


def idempotent(sequence: int, value: bytes, compression: int = NONE) -> bytes:
    return batches.batch_of(value, compression=compression, producer_id=7, producer_epoch=0, base_sequence=sequence)


async def stored(path: ProducePath, partition: int) -> Sequence[bytes]:
    """The partition's batches as they are."""
    [found] = await path.fetch((partition, 0))
    data = b"".join(bytes(part) for part in found.records)
    parts, position = [], 0
    while position < len(data):
        size = read_header(data, position).size
        parts.append(data[position : position + size])
        position += size
    return parts


@pytest.mark.parametrize("wanted", CODECS.values())
def test_a_batch_gets_the_codec_of_its_topic_and_is_otherwise_what_it_was(wanted: int) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            rules = replace(RULES, stored_with=Codec(wanted))
            for sequence, codec in enumerate(CODECS.values()):
                [result] = await path.produce((0, idempotent(sequence, TEXT, codec)), rules=rules)
                assert (result.error, result.base_offset) == (ErrorCode.NONE, sequence)
            for sequence, batch in enumerate(await stored(path, 0)):
                header = read_header(batch)
                came = read_header(idempotent(sequence, TEXT))
                assert header.compression == wanted
                assert record_batch.crc_is_valid(batch, 0, header)
                free = {"base_offset": 0, "attributes": 0, "crc": 0, "batch_length": 0, "partition_leader_epoch": 0}
                assert header._replace(**free) == came._replace(**free)
                assert [record.value for record in next_batch(batch)] == [TEXT]
            assert path.metrics.produce_recompressions._value.get() == len(CODECS) - 1
            assert path.released == len(CODECS)
            assert path.writer.backlog.size_bytes == 0

    run(main)


def next_batch(batch: bytes) -> Sequence[record_batch.Record]:
    return list(MemoryRecords(batch).next_batch())


def test_a_batch_that_has_its_topics_codec_is_not_touched() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            # gzip at a level that the topic does not have
            packed = batches.batch_of(TEXT, compression=GZIP)
            await path.produce((0, packed), rules=replace(RULES, stored_with=Codec(GZIP, 1)))
            [batch] = await stored(path, 0)
            assert batch[HEADER_BYTES:] == packed[HEADER_BYTES:]

    run(main)


@guarantee(
    "Offsets",
    "Batches of a partition keep their order where some of them are compressed again (`compression.type`) and others "
    "are not, within a request and between requests. Other partitions do not wait for them.",
)
def test_batches_keep_their_order_while_some_are_compressed_again_and_other_partitions_pass() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            compressing_takes(5)
            ready = batches.batch_of(TEXT, compression=ZSTD)
            first = path.produce((0, idempotent(0, b"a")), (0, idempotent(1, b"b")), (1, ready), rules=PACKED)
            second = path.produce((0, idempotent(2, b"c", ZSTD)), rules=PACKED)
            as_it_comes = path.produce((0, idempotent(3, b"d")))
            other = path.produce((1, ready), rules=PACKED)
            again = path.produce((0, idempotent(0, b"a")), rules=PACKED)
            await other
            assert not any(answer.done() for answer in (first, second, as_it_comes, again))
            results = [*await first, *await second, *await as_it_comes, *await again]
            assert [(one.error, one.base_offset) for one in results] == [
                (ErrorCode.NONE, offset) for offset in (0, 1, 0, 2, 3, 0)
            ]
            assert [value for _, value in await path.read(0)] == [b"a", b"b", b"c", b"d"]
            assert path.released == 5
            assert path.writer.backlog.size_bytes == 0

    run(main)


def test_what_waits_does_not_keep_the_memory_of_its_request() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            compressing_takes(5)
            large = batches.batch_of(bytes(1 << 19), compression=ZSTD)
            answer = path.produce((0, small := idempotent(0, b"a")), (1, large), rules=PACKED)
            await asyncio.sleep(1)
            assert not answer.done()
            assert path.released == 1
            assert path.writer.backlog.size_bytes == len(small)
            assert [one.error for one in await answer] == [ErrorCode.NONE] * 2
            assert path.released == 1

    run(main)


def damaged() -> bytes:
    good = batches.batch_of(TEXT, compression=GZIP)
    return batches.with_header(good[:-9] + bytes(9))


def bomb() -> bytes:
    """A batch whose records claim to be a little more than is allowed."""
    whole = batches.batch_of(TEXT, compression=GZIP)
    return batches.with_header(
        (head := whole[:HEADER_BYTES]) + (packed := gzip.compress(bytes(MAX_DECOMPRESSED_BYTES + 1), 1)),
        batch_length=len(head) + len(packed) - record_batch.LENGTH_PREFIX_BYTES,
    )


@pytest.mark.parametrize(
    ("make", "rules", "error"),
    [
        (damaged, PACKED, ErrorCode.INVALID_RECORD),
        (bomb, PACKED, ErrorCode.MESSAGE_TOO_LARGE),
        (bomb, PLAIN, ErrorCode.MESSAGE_TOO_LARGE),
        (
            lambda: batches.batch_of(bytes(RULES.max_message_bytes), compression=GZIP),
            PLAIN,
            ErrorCode.MESSAGE_TOO_LARGE,
        ),
    ],
)
def test_what_cannot_be_compressed_again_is_refused_and_the_rest_goes_on(
    make: Callable[[], bytes], rules: TopicRules, error: ErrorCode
) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            results = await path.produce(
                (0, make()), (0, batches.batch_of(b"a")), (1, batches.batch_of(b"b")), rules=rules
            )
            assert [one.error for one in results] == [error, ErrorCode.NONE, ErrorCode.NONE]
            assert [value for _, value in await path.read(0)] == [b"a"]
            assert path.metrics.produce_rejections.labels(error=error.name)._value.get() == 1
            assert path.released == 1
            assert path.writer.backlog.size_bytes == 0

    run(main)


def test_a_defect_is_told_to_the_producer_and_harms_no_other_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            with monkeypatch.context() as patch:
                patch.setattr(record_batch, "recompressed", lambda *_: 1 / 0)
                [result] = await path.produce((0, batches.batch_of(b"a")), rules=PACKED)
            assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
            [result] = await path.produce((0, batches.batch_of(b"b")), rules=PACKED)
            assert (result.error, result.base_offset) == (ErrorCode.NONE, 0)

    run(main)


def test_batches_that_grow_are_compressed_no_faster_than_the_store_takes_them() -> None:
    size_bytes = 64 << 10

    async def main() -> None:
        async with ProducePath(inflight_max_bytes=4 * size_bytes) as path:
            path.objects.delay_of = lambda _: 60.0
            small = batches.batch_of(bytes(size_bytes), compression=ZSTD)
            answers = [path.produce((0, small), rules=PLAIN, timeout_s=600) for _ in range(10 * ROUND_BATCHES)]
            await asyncio.sleep(30)
            # at most one round goes beyond the limit
            assert path.writer.backlog.size_bytes < (ROUND_BATCHES + 1) * (size_bytes + 200)
            results = [result for answer in answers for result in await answer]
            assert [one.base_offset for one in results] == list(range(10 * ROUND_BATCHES))
            assert path.writer.backlog.size_bytes == 0

    run(main)


def test_batches_of_many_partitions_grow_no_further_beyond_the_limit_than_threads_go_at_once() -> None:
    size_bytes, partitions = 64 << 10, range(PARTITIONS, PARTITIONS + 20)

    async def main() -> None:
        async with ProducePath(inflight_max_bytes=4 * size_bytes) as path:
            await path.node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", partitions)
            path.objects.delay_of = lambda _: 60.0
            compressing_takes(1)
            small = batches.batch_of(bytes(size_bytes), compression=ZSTD)
            answers = [
                path.produce((partition, small), rules=PLAIN, timeout_s=600)
                for partition in partitions
                for _ in range(10)
            ]
            await asyncio.sleep(30)
            assert path.writer.backlog.size_bytes < (MAX_THREADS * ROUND_BATCHES + 5) * (size_bytes + 200)
            results = [result for answer in answers for result in await answer]
            assert [one.base_offset for one in results] == [*range(10)] * len(partitions)
            assert path.writer.backlog.size_bytes == 0

    run(main)


def test_what_grows_much_goes_on_in_smaller_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompression, "ROUND_GROWN_BYTES", 100 << 10)

    async def main() -> None:
        async with ProducePath() as path:
            compressing_takes(1)
            small = batches.batch_of(bytes(64 << 10), compression=ZSTD)
            answers = [path.produce((0, small), rules=PLAIN) for _ in range(6)]
            await asyncio.sleep(2)
            assert [answer.done() for answer in answers] == [True] * 2 + [False] * 4
            assert [(await answer)[0].base_offset for answer in answers] == [*range(6)]

    run(main)


def test_draining_waits_for_what_is_being_compressed() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            compressing_takes(5)
            answer = path.produce((0, batches.batch_of(b"a")), rules=PACKED)
            await path.writer.drain()
            assert answer.done()

    run(main)


def test_giving_up_ends_what_is_being_compressed() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            compressing_takes(5)
            answer = path.produce((0, batches.batch_of(b"a")), rules=PACKED)
            await asyncio.sleep(1)
            path.writer.abort()
            await asyncio.sleep(10)
            assert not answer.done()

    run(main)


def test_records_of_the_largest_size_that_is_allowed_are_compressed_again() -> None:
    big = [RecordData(None, bytes(1 << 20))] * 3
    whole = record_batch.build(big, timestamp_ms=0, compression=GZIP)

    plain = record_batch.plain_records(whole, 4 << 20)
    changed = record_batch.recompressed(whole, plain, Codec(LZ4))

    assert [record.value for record in record_batch.records(changed)] == [record.value for record in big]
    with pytest.raises(record_batch.LargeRecordsError):
        record_batch.plain_records(whole, 3 << 20)
