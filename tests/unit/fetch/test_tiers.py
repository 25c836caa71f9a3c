"""What a Fetch returns where the older records are in segments: budgets, waiting, what is missing, the way across."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.diskless.commands import PartitionKey
from diskless_core.fetch.offset_range_check import OffsetRangeCheck
from diskless_core.fetch.query import FetchedPartition, FetchPartition, FetchQuery
from diskless_core.fetch.segments import SegmentFetcher, SegmentPart
from diskless_core.log.segment_indexer import SegmentIndexer
from diskless_core.protocol import record_batch
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.objects import Operation as ObjectOperation
from diskless_core.testing.fakes.remote_log_metadata import Operation as MetadataOperation
from diskless_core.testing.fakes.remote_storage import Operation, access_denied
from tests.support.guarantees import guarantee
from tests.support.produce_path import PARTITIONS, WAIT_MS, batch_of, key_of, records_of
from tests.support.tiered_path import TieredPath, small_chunks
from tests.support.virtual_time import run


async def fill(path: TieredPath, partition: int, count: int) -> None:
    """Batches of one record, whose value is its offset."""
    head = path.node.shard.head(key_of(partition))
    assert head is not None
    for offset in range(head.next_offset, head.next_offset + count):
        await path.produce((partition, batch_of(b"%d" % offset)))


def offsets_of(answer: FetchedPartition) -> list[int]:
    """The offsets of an answer's records, which have the right values."""
    assert answer.error is ErrorCode.NONE
    records = records_of(answer)
    assert [value for _, value in records] == [b"%d" % offset for offset, _ in records]
    return [offset for offset, _ in records]


async def consume(path: TieredPath, partition: int, *, max_bytes: int = 1 << 20) -> list[int]:
    """What a consumer gets from the beginning to the high watermark."""
    found: list[int] = []
    while True:
        [answer] = await path.fetch((partition, found[-1] + 1 if found else 0), max_bytes=max_bytes)
        offsets = offsets_of(answer)
        if not offsets:
            assert answer.high_watermark == (found[-1] + 1 if found else 0)
            return found
        found += offsets


@guarantee("Reads", "A consumer goes from segments to WAL objects without noticing.")
@pytest.mark.parametrize("chunk_bytes", [100, 300, 1 << 20])
def test_a_consumer_goes_from_segments_to_objects_without_noticing(chunk_bytes: int) -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 0, 30)
            await path.tier(through=9, interval_bytes=100)
            await path.tier(through=20, interval_bytes=100)
            await fill(path, 0, 5)
            with small_chunks(chunk_bytes):
                for max_bytes in (1, 200, 1 << 20):
                    assert await consume(path, 0, max_bytes=max_bytes) == list(range(35))

    run(main)


def test_while_it_is_being_read_the_beginning_moves_into_segments() -> None:
    async def main() -> None:
        async with TieredPath(cache_bytes=0) as path:
            await fill(path, 0, 30)
            found: list[int] = []
            while len(found) < 30:
                [answer] = await path.fetch((0, len(found)), max_bytes=150)
                found += offsets_of(answer)
                head = path.node.shard.head(key_of(0))
                assert head is not None
                if head.local_start_offset < 28:
                    await path.tier(through=head.local_start_offset + 2)
            assert found == list(range(30))

    run(main)


def test_an_object_that_went_with_the_swap_is_no_error() -> None:
    async def main() -> None:
        async with TieredPath(cache_bytes=0) as path:
            await fill(path, 0, 3)
            metadata = await path.copied()
            with path.objects.hold(ObjectOperation.GET) as hold:
                fetch = asyncio.create_task(path.fetch((0, 0), max_wait_ms=10_000))
                await hold.reached()
                await path.take(metadata)
                path.objects.objects.clear()
            [answer] = await fetch
            assert offsets_of(answer) == []
            assert await consume(path, 0) == [0, 1, 2]
            assert path.clock.monotonic() < 5

    run(main)


def test_behind_the_last_batch_of_a_segment_it_goes_on_with_what_follows() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 0, 9)
            for first, last in ((0, 3), (4, 7)):  # of each segment, the offset before the last has no record
                data = await path.batches_from(0, first, last)
                size = len(data) // 4
                indexer = SegmentIndexer(first)
                for _, header in record_batch.walk(data[: 3 * size]):
                    indexer.add(header)
                await path.take(await path.copy(0, bytes(data[: 3 * size]), indexer, end_offset=last))
            for offset, following in ((3, [4, 5, 6]), (7, [8])):
                [answer] = await path.fetch((0, offset))
                assert offsets_of(answer) == following
            assert await consume(path, 0) == [0, 1, 2, 4, 5, 6, 8]
            [answer] = await path.fetch((0, 9))
            assert (offsets_of(answer), answer.high_watermark) == ([], 9)

    run(main)


@guarantee("Reads", "Partitions in segments and in WAL objects share a request's budget fairly.")
def test_both_tiers_share_the_budget_and_what_it_did_not_reach_comes_first_the_next_time() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            for partition in range(PARTITIONS):
                await fill(path, partition, 3)
            for partition in (0, 2):
                await path.tier(partition, through=1)
            starved: list[PartitionKey] = []
            served = []
            for _ in range(PARTITIONS):
                answers = await path.fetch(*((p, 0) for p in range(PARTITIONS)), max_bytes=1, starved=starved)
                [index] = [index for index, answer in enumerate(answers) if answer.records]
                assert offsets_of(answers[index]) == [0]
                served.append(index)
            assert sorted(served) == list(range(PARTITIONS))
            size = len(batch_of(b"0"))
            answers = await path.fetch(*((p, 0) for p in (1, 0, 3, 2)), max_bytes=4 * size)
            assert [offsets_of(answer) for answer in answers] == [[0, 1, 2], [0], [], []]
            answers = await path.fetch(*((p, 0) for p in range(PARTITIONS)), max_bytes=50 << 20)
            assert [offsets_of(answer) for answer in answers] == [[0, 1], [0, 1, 2]] * 2

    run(main)


def test_what_is_missing_or_damaged_in_one_tier_takes_nothing_from_others() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            for partition in range(3):
                await fill(path, partition, 3)
            missing, corrupt = await path.tier(0, through=1), await path.tier(1, through=1)
            del path.storage.segments[missing.segment_id]
            stored = path.storage.segments[corrupt.segment_id]
            stored.log = bytes(len(stored.log))
            for max_bytes in (1, 1 << 20):
                first, second, third = await path.fetch((0, 0), (1, 0), (2, 0), max_bytes=max_bytes)
                assert first.error is ErrorCode.KAFKA_STORAGE_ERROR
                assert second.error is ErrorCode.CORRUPT_MESSAGE
                assert offsets_of(third)

    run(main)


@guarantee("Reads", "Remote storage that fails for a moment is asked again within the Fetch: consumers notice nothing.")
def test_what_fails_for_a_moment_is_read_again_within_the_same_fetch() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 0, 3)
            await path.tier(through=1)
            path.metadata.fail_next(MetadataOperation.FIND)
            path.storage.fail_next(Operation.FETCH_INDEX)
            path.storage.fail_next(Operation.FETCH)
            [answer] = await path.fetch((0, 0))
            assert offsets_of(answer) == [0, 1]
            assert 0 < path.clock.monotonic() < WAIT_MS / 1000
            assert await consume(path, 0) == [0, 1, 2]

    run(main)


@pytest.mark.parametrize("what", ["storage", "index", "metadata"])
def test_a_storage_that_keeps_failing_is_an_error_that_consumers_retry(what: str) -> None:
    async def main() -> None:
        async with TieredPath() as path:
            for partition in (0, 1):
                await fill(path, partition, 3)
            await path.tier(through=1)
            with {
                "storage": path.storage.failing(Operation.FETCH),
                "index": path.storage.failing(Operation.FETCH_INDEX),
                "metadata": path.metadata.failing(MetadataOperation.FIND),
            }[what]:
                begun = path.clock.monotonic()
                failed, other = await path.fetch((0, 0), (1, 0), max_wait_ms=10_000)
                assert path.clock.monotonic() - begun == pytest.approx(WAIT_MS / 1000)
            assert (failed.error, offsets_of(other)) == (ErrorCode.KAFKA_STORAGE_ERROR, [0, 1, 2])
            assert await consume(path, 0) == [0, 1, 2]

    run(main)


def test_a_storage_that_refuses_for_good_is_asked_once() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 0, 3)
            await path.tier(through=1)
            begun = path.clock.monotonic()
            path.storage.fail_next(Operation.FETCH, error=access_denied)
            [answer] = await path.fetch((0, 0), max_wait_ms=10_000)
            assert (answer.error, path.clock.monotonic()) == (ErrorCode.KAFKA_STORAGE_ERROR, begun)
            assert await consume(path, 0) == [0, 1, 2]

    run(main)


@guarantee("Reads", "Records deleted while they were read from a segment are out of range, and not an error.")
def test_a_segment_that_was_deleted_with_its_offsets_is_out_of_range() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 0, 3)
            metadata = await path.tier(through=1)
            with path.storage.hold(Operation.FETCH_INDEX) as hold:
                fetch = asyncio.create_task(path.fetch((0, 0)))
                await hold.reached()
                await path.node.shard.delete_records(key_of(0), 2)
                del path.storage.segments[metadata.segment_id]
            [answer] = await fetch
            assert answer.error is ErrorCode.OFFSET_OUT_OF_RANGE
            [answer] = await path.fetch((0, 1))
            assert answer.error is ErrorCode.OFFSET_OUT_OF_RANGE

    run(main)


def test_an_offset_that_is_deleted_while_it_is_read_is_out_of_range_whatever_comes_behind_it() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 0, 6)
            first = await path.tier(through=1)
            await path.tier(through=3)
            with path.storage.hold(Operation.FETCH) as hold:
                fetches = [asyncio.create_task(path.fetch((0, offset))) for offset in (0, 2)]
                await hold.reached(2)
                await path.node.shard.delete_records(key_of(0), 2)
                del path.storage.segments[first.segment_id]
            [deleted], [kept] = await asyncio.gather(*fetches)
            assert (deleted.error, deleted.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, [])
            assert offsets_of(kept) == [2, 3]

    run(main)


def test_a_log_start_within_a_segment_leaves_what_comes_behind_it() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 0, 10)
            await path.tier(through=7)
            await path.node.shard.delete_records(key_of(0), 5)
            [answer] = await path.fetch((0, 5))
            assert (answer.log_start_offset, offsets_of(answer)) == (5, [5, 6, 7])
            [answer] = await path.fetch((0, 4))
            assert answer.error is ErrorCode.OFFSET_OUT_OF_RANGE

    run(main)


def test_what_takes_too_long_is_left_out_and_comes_with_the_next_fetch() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            for partition in (0, 1):
                await fill(path, partition, 3)
            await path.tier(through=1)
            path.storage.delay(Operation.FETCH, 0.8)
            begun = path.clock.monotonic()
            slow, quick = await path.fetch((0, 0), (1, 0), max_wait_ms=10_000)
            assert path.clock.monotonic() - begun == pytest.approx(WAIT_MS / 1000)
            assert (offsets_of(slow), offsets_of(quick)) == ([], [0, 1, 2])
            assert path.metrics.remote_fetch_timeouts._value.get() == 1
            slow, _ = await path.fetch((0, 0), (1, 3), max_wait_ms=10_000)
            assert offsets_of(slow) == [0, 1]
            assert path.storage.calls[Operation.FETCH] == 1
            [alone] = await path.fetch((0, 0), min_bytes=1 << 20, max_wait_ms=10_000)
            assert offsets_of(alone) == [0, 1]
            assert path.clock.monotonic() - begun < 1  # what is in segments does not wait for more

    run(main)


@guarantee("Reads", "A Fetch waits for remote storage once, whatever the number of partitions, and takes turns.")
def test_a_request_waits_once_however_many_partitions_are_slow() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            for partition in range(PARTITIONS):
                await fill(path, partition, 3)
                if partition < PARTITIONS - 1:
                    await path.tier(partition, through=1)
            path.storage.delay(Operation.FETCH_INDEX, 60)
            everything = [(partition, 0) for partition in range(PARTITIONS)]
            starved: list[PartitionKey] = []
            for turn in range(PARTITIONS - 1):
                begun = path.clock.monotonic()
                answers = await path.fetch(*everything[:-1], max_bytes=1, max_wait_ms=10_000, starved=starved)
                assert path.clock.monotonic() - begun == pytest.approx(WAIT_MS / 1000)
                assert [offsets_of(answer) for answer in answers] == [[]] * (PARTITIONS - 1)
                assert path.metrics.remote_fetch_timeouts._value.get() == turn + 1
                assert starved[0] == key_of((turn + 1) % (PARTITIONS - 1))
            answers = await path.fetch(*everything, max_bytes=1, max_wait_ms=10_000)
            assert [offsets_of(answer) for answer in answers] == [[]] * (PARTITIONS - 1) + [[0]]

    run(main)


def test_alone_it_is_answered_empty_after_the_wait() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 0, 3)
            await path.tier(through=1)
            path.storage.delay(Operation.FETCH, 60)
            begun = path.clock.monotonic()
            [answer] = await path.fetch((0, 0), max_wait_ms=10_000)
            assert offsets_of(answer) == []
            assert path.clock.monotonic() - begun == pytest.approx(WAIT_MS / 1000)

    run(main)


def test_when_too_many_reads_wait_others_get_nothing_and_wait_as_if_nothing_was_there() -> None:
    async def main() -> None:
        async with TieredPath(at_once=1, max_waiting=1) as path:
            for partition in range(3):
                await fill(path, partition, 2)
                await path.tier(partition, through=0)
            with path.storage.hold(Operation.FETCH_INDEX) as hold:
                others = [asyncio.create_task(path.fetch((partition, 0))) for partition in (0, 1)]
                await hold.reached()
                await asyncio.sleep(0.01)
                begun = path.clock.monotonic()
                [answer] = await path.fetch((2, 0), max_wait_ms=300)
                assert offsets_of(answer) == []
                assert path.clock.monotonic() - begun == pytest.approx(0.3)
            for [found] in await asyncio.gather(*others):
                assert offsets_of(found) in ([0], [])
            assert await consume(path, 2) == [0, 1]

    run(main)


def test_a_cold_read_of_a_segment_leaves_the_cache_of_objects_alone() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 0, 30)
            await path.tier(through=20)
            hot = path.reader._cache.size_bytes
            await path.fetch((0, 0))
            assert path.reader._cache.size_bytes == hot
            assert path.metrics.fetch_bytes.labels("segments")._value.get() > 0

    run(main)


def test_a_batch_larger_than_the_budget_is_granted_once() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            for partition in (0, 1):
                await fill(path, partition, 3)
                await path.tier(partition, through=1)
            query = FetchQuery(
                partitions=[FetchPartition(key=key_of(partition), offset=0, max_bytes=1) for partition in (0, 1)],
                max_bytes=2,
                min_bytes=1,
                max_wait_ms=0,
            )
            starved: list[PartitionKey] = []
            for served in (0, 1):
                answers = await path.fetcher.fetch(query, starved)
                assert [offsets_of(answer) for answer in answers] == [[0], []][:: 1 - 2 * served]

    run(main)


class Knowing(OffsetRangeCheck):
    """Says whether an offset is deleted by what the coordinator knows, which a replica may not know yet."""

    def __init__(self, *, is_deleted: bool) -> None:
        super().__init__(lambda _: None)
        self._is_deleted = is_deleted

    async def is_deleted(self, partition: PartitionKey, offset: int) -> bool:
        del partition, offset
        return self._is_deleted


@pytest.mark.parametrize(
    ("by_replica", "by_coordinator", "error"),
    [
        (False, False, ErrorCode.KAFKA_STORAGE_ERROR),
        (True, False, ErrorCode.OFFSET_OUT_OF_RANGE),
        (False, True, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_a_missing_segment_is_out_of_range_only_if_its_records_are_surely_deleted(
    by_replica: bool, by_coordinator: bool, error: ErrorCode
) -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 0, 4)
            metadata = await path.tier(through=2)
            del path.storage.segments[metadata.segment_id]
            fetcher = SegmentFetcher(
                path.segments,
                path.reader,
                Knowing(is_deleted=by_coordinator),
                max_wait_ms=WAIT_MS,
                clock=path.clock,
                metrics=path.metrics,
            )
            wanted = FetchPartition(key=key_of(0), offset=0, max_bytes=100)
            with path.storage.hold(Operation.FETCH_INDEX) as hold:
                part = SegmentPart(shard=path.node.shard, wanted=wanted, max_bytes=100)
                reading = asyncio.create_task(fetcher.read({3: part}))
                await hold.reached()
                if by_replica:
                    await path.node.shard.delete_records(key_of(0), 1)
            answer = (await reading)[3]
            assert (answer.error, list(answer.records)) == (error, [])

    run(main)
