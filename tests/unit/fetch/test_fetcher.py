"""What a Fetch returns: budgets, broken partitions, waiting."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
import structlog

from diskless_core.diskless.commands import FoundRuns, PartitionKey
from diskless_core.fetch import fetcher
from diskless_core.fetch.query import FetchQuery
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.objects import Operation
from tests.support.guarantees import guarantee
from tests.support.produce_path import ProducePath, batch_of, key_of, records_of
from tests.support.shards import TOPIC
from tests.support.virtual_time import run


async def fill(path: ProducePath, *partitions: int) -> list[str]:
    """One batch in an object of its own for each; the objects' keys."""
    keys = []
    for partition in partitions:
        before = set(path.objects.objects)
        await path.produce((partition, batch_of(b"value of %d" % partition)))
        keys += set(path.objects.objects) - before
    return keys


@guarantee("Reads", "An object that is missing or damaged fails its partition only.")
@pytest.mark.parametrize("damage", ["missing", "corrupt"])
def test_a_broken_partition_takes_nothing_from_the_others(damage: str) -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            broken, _ = await fill(path, 0, 1)
            if damage == "missing":
                del path.objects.objects[broken]
            else:
                path.objects.objects[broken] = bytes(len(path.objects.objects[broken]))
            for max_bytes in (1 << 20, 1):
                first, second = await path.fetch((0, 0), (1, 0), max_bytes=max_bytes)
                assert first.error is (
                    ErrorCode.KAFKA_STORAGE_ERROR if damage == "missing" else ErrorCode.CORRUPT_MESSAGE
                )
                assert records_of(second) == [(0, b"value of 1")]

    run(main)


def test_all_partitions_broken_is_answered_for_each() -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            await fill(path, 0, 1)
            path.objects.objects.clear()
            answers = await path.fetch((0, 0), (1, 0), max_bytes=1, max_wait_ms=500)
            assert [answer.error for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2

    run(main)


def test_what_the_budget_did_not_reach_comes_first_the_next_time() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await fill(path, 0, 1, 2)
            starved: list[PartitionKey] = []
            served = []
            for _ in range(3):
                answers = await path.fetch((0, 0), (1, 0), (2, 0), max_bytes=1, starved=starved)
                assert [answer.high_watermark for answer in answers] == [1, 1, 1]
                served += [index for index, answer in enumerate(answers) if answer.records]
            assert sorted(served) == [0, 1, 2]

    run(main)


def test_a_caught_up_partition_does_not_use_up_the_grant() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await fill(path, 0, 1)
            caught_up, behind = await path.fetch((0, 1), (1, 0), max_bytes=1)
            assert (caught_up.error, records_of(caught_up)) == (ErrorCode.NONE, [])
            assert records_of(behind) == [(0, b"value of 1")]

    run(main)


def test_an_offset_inside_a_batch_returns_that_whole_batch() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await path.produce((0, batch_of(b"a", b"b", b"c")))
            await path.produce((0, batch_of(b"d")))
            [answer] = await path.fetch((0, 1))
            assert [offset for offset, _ in records_of(answer)] == [0, 1, 2, 3]

    run(main)


@pytest.mark.parametrize("offset", [-1, 2, 100])
def test_an_offset_outside_of_the_log_is_out_of_range(offset: int) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await fill(path, 0)
            [answer] = await path.fetch((0, offset), max_wait_ms=1000)
            assert answer.error is ErrorCode.OFFSET_OUT_OF_RANGE

    run(main)


def test_a_fetch_at_the_end_waits_for_a_commit_and_not_longer() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with ProducePath() as path:
            waiting = asyncio.create_task(path.fetch((0, 0), (1, 0), max_wait_ms=5000))
            await asyncio.sleep(1)
            assert not waiting.done()
            await path.produce((2, batch_of(b"elsewhere")))
            await asyncio.sleep(1)
            assert not waiting.done()
            await path.produce((1, batch_of(b"here")))
            _, answer = await waiting
            assert records_of(answer) == [(0, b"here")]
            begun = loop.time()
            [empty] = await path.fetch((3, 0), max_wait_ms=5000)
            assert (empty.error, records_of(empty)) == (ErrorCode.NONE, [])
            assert 4.9 < loop.time() - begun < 5.1

    run(main)


def test_a_fetch_that_has_to_wait_looks_once_before_it_waits_and_once_for_each_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            find, looked = path.node.shard.find_recent, 0

            def counted(*arguments: Any) -> FoundRuns | None:
                nonlocal looked
                looked += 1
                return find(*arguments)

            monkeypatch.setattr(path.node.shard, "find_recent", counted)
            waiting = asyncio.create_task(path.fetch((0, 0), max_wait_ms=5000))
            await asyncio.sleep(1)
            assert looked == 1
            await path.produce((0, batch_of(b"here")))
            [answer] = await waiting
            assert (records_of(answer), looked) == ([(0, b"here")], 2)

    run(main)


@guarantee(
    "Reads",
    "A Fetch of very many partitions that waits is woken by these alone, and a commit costs what is in its partitions.",
)
def test_a_fetch_of_many_partitions_that_waits_looks_at_those_that_have_changed_and_at_all_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetcher, "ALL_AT_ONCE", 2)

    async def main() -> None:
        async with ProducePath() as path:
            find, looked = path.node.shard.find_recent, list[int]()

            def noted(key: PartitionKey, *arguments: Any) -> FoundRuns | None:
                looked.append(key.partition)
                return find(key, *arguments)

            monkeypatch.setattr(path.node.shard, "find_recent", noted)
            size = len(batch_of(b"here"))
            every = [(0, 0), (1, 0), (2, 0)]
            waiting = asyncio.create_task(path.fetch(*every, min_bytes=3 * size, max_wait_ms=5000))
            await asyncio.sleep(1)
            assert looked == [0, 1, 2]
            for partition in (1, 3, 1):
                looked.clear()
                await path.produce((partition, batch_of(b"here")))
                await asyncio.sleep(0.5)
                assert looked == [partition] * (partition != 3)
                assert not waiting.done()
            looked.clear()
            await path.produce((2, batch_of(b"here")))
            answers = await waiting
            assert [len(records_of(answer)) for answer in answers] == [0, 2, 1]
            assert looked == [2, 0, 1, 2]

            begun = asyncio.get_running_loop().time()
            late = asyncio.create_task(path.fetch(*every, min_bytes=1 << 20, max_wait_ms=2000))
            await asyncio.sleep(1)
            await path.produce((0, batch_of(b"late")))
            assert [len(records_of(answer)) for answer in await late] == [1, 2, 1]
            assert 1.9 < asyncio.get_running_loop().time() - begun < 2.1

    run(main)


def test_a_fetch_of_many_partitions_is_answered_at_once_when_one_of_them_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "ALL_AT_ONCE", 2)

    async def main() -> None:
        async with ProducePath() as path:
            waiting = asyncio.create_task(path.fetch((0, 0), (1, 0), (2, 0), max_wait_ms=60_000))
            await asyncio.sleep(1)
            await path.node.shard.delete_topic(uuid.UUID(bytes=TOPIC))
            async with asyncio.timeout(5):
                answers = await waiting
            assert {answer.error for answer in answers} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    run(main)


def test_what_is_committed_while_a_fetch_looks_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            find = path.fetcher._find  # the moment between a search and the wait

            async def slowly(query: FetchQuery, order: Sequence[int]) -> list[FoundRuns]:
                found = await find(query, order)
                await asyncio.sleep(1)
                return found

            monkeypatch.setattr(path.fetcher, "_find", slowly)
            waiting = asyncio.create_task(path.fetch((0, 0), max_wait_ms=60_000))
            await asyncio.sleep(0.5)
            await path.produce((0, batch_of(b"meanwhile")))
            async with asyncio.timeout(5):
                [answer] = await waiting
            assert records_of(answer) == [(0, b"meanwhile")]

    run(main)


def test_too_few_bytes_are_returned_when_the_time_is_over_however_often_something_is_committed() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with ProducePath() as path:
            begun = loop.time()
            waiting = asyncio.create_task(path.fetch((0, 0), min_bytes=1 << 20, max_wait_ms=500))
            while not waiting.done():
                assert loop.time() - begun < 1
                await path.produce((0, batch_of(b"x")))
                await asyncio.sleep(0.01)
            [answer] = await waiting
            assert len(records_of(answer)) > 10

    run(main)


@guarantee(
    "Reads",
    "An object store that fails is asked again within a Fetch's max.wait, and then answered with an error that clients "
    "retry.",
)
@pytest.mark.parametrize("failures", [1, 3])
def test_a_store_that_fails_for_a_moment_is_asked_again_with_growing_pauses(failures: int) -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            await fill(path, 0)
            path.objects.fail_next(Operation.GET, failures)
            began_s = path.clock.monotonic()
            [answer] = await path.fetch((0, 0), max_wait_ms=500)
            assert (answer.error, records_of(answer)) == (ErrorCode.NONE, [(0, b"value of 0")])
            assert path.objects.calls[Operation.GET] == failures + 1
            assert path.clock.monotonic() - began_s == pytest.approx(0.02 * (2**failures - 1), rel=0.5)

    run(main)


def test_a_store_that_goes_on_failing_is_answered_retriably_when_the_time_is_over_and_reported_once() -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            await fill(path, 0)
            for max_wait_ms in (0, 500):
                asked, began_s = path.objects.calls[Operation.GET], path.clock.monotonic()
                with path.objects.failing(Operation.GET), structlog.testing.capture_logs() as logged:
                    [answer] = await path.fetch((0, 0), max_wait_ms=max_wait_ms)
                assert (answer.error, answer.records) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
                assert path.clock.monotonic() - began_s == pytest.approx(max_wait_ms / 1000, abs=0.01)
                assert [line["event"] for line in logged].count("a partition could not be read") == 1
                asked = path.objects.calls[Operation.GET] - asked
                assert asked == 1 if not max_wait_ms else 4 <= asked <= 8
            [answer] = await path.fetch((0, 0))
            assert records_of(answer) == [(0, b"value of 0")]

    run(main)


def test_a_store_that_fails_for_one_partition_does_not_hold_up_the_records_of_another() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            [failing, _] = await fill(path, 0, 1)
            path.reader.deleted(failing)  # drop it from the cache
            began_s = path.clock.monotonic()
            with path.objects.failing(Operation.GET):
                first, second = await path.fetch((0, 0), (1, 0), max_wait_ms=500)
            assert first.error is ErrorCode.KAFKA_STORAGE_ERROR
            assert records_of(second) == [(0, b"value of 1")]
            assert path.clock.monotonic() == began_s

    run(main)


def test_commits_do_not_have_a_failing_store_asked_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            [first] = await fill(path, 0)
            get, asked = path.objects.get, list[str]()

            async def noted(key: str, start: int, end: int) -> Any:
                asked.append(key)
                return await get(key, start, end)

            monkeypatch.setattr(path.objects, "get", noted)
            with path.objects.failing(Operation.GET):
                fetching = asyncio.create_task(path.fetch((0, 0), max_wait_ms=500))
                while not fetching.done():
                    await path.produce((0, batch_of(b"more")))
                    await asyncio.sleep(0.005)
            assert (await fetching)[0].error is ErrorCode.KAFKA_STORAGE_ERROR
            assert 4 <= asked.count(first) <= 8

    run(main)


def test_an_object_that_a_store_will_never_give_is_answered_at_once() -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            await fill(path, 0)
            path.objects.fail_next(
                Operation.GET, error=lambda: WalObjectStoreError("403 AccessDenied", retriable=False)
            )
            began_s = path.clock.monotonic()
            [answer] = await path.fetch((0, 0), max_wait_ms=500)
            assert answer.error is ErrorCode.KAFKA_STORAGE_ERROR
            assert path.clock.monotonic() == began_s

    run(main)


def test_a_coordinator_store_that_fails_is_answered_retriably_and_takes_nothing_from_others() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await fill(path, 0)
            await path.node.shard.flush()
            path.node.shard._recent.forget()
            await fill(path, 1)
            path.node.store.unreadable = True
            first, second = await path.fetch((0, 0), (1, 0))
            assert first.error is ErrorCode.KAFKA_STORAGE_ERROR
            assert records_of(second) == [(0, b"value of 1")]
            path.node.store.unreadable = False
            [answer] = await path.fetch((0, 0))
            assert records_of(answer) == [(0, b"value of 0")]

    run(main)


def test_a_topic_that_is_not_there_is_said_to_be_unknown() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            assert key_of(9) not in path.node.shard.heads()
            [answer] = await path.fetch((9, 0))
            assert answer.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(main)
