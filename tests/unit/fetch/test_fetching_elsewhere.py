"""Fetches of partitions of which some have their coordinator elsewhere, without a copy on this node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from diskless_core.diskless.commands import AskedRuns, FoundRuns, ListedOffset, PartitionKey
from diskless_core.fetch.asking import LEAST_S
from diskless_core.fetch.fetcher import CHECK_S, UNAVAILABLE_S, Elsewhere, Fetcher
from diskless_core.fetch.offset_range_check import OffsetRangeCheck
from diskless_core.fetch.query import FetchedPartition, FetchPartition, FetchQuery
from diskless_core.protocol.errors import ErrorCode
from diskless_core.shards import DISKLESS
from diskless_core.wal.runs import Run
from tests.support.produce_path import ProducePath, batch_of, key_of, records_of
from tests.support.virtual_time import run

FAR = [PartitionKey(b"F" * 16, partition) for partition in range(5)]
SIZE = 100


class Leader:
    """The leader of the coordinator that is elsewhere, in the place of `AskedLeaders`. Its partitions have no runs."""

    def __init__(self) -> None:
        self.found: dict[PartitionKey, FoundRuns] = dict.fromkeys(FAR, FoundRuns(ErrorCode.NONE, 0, 0, (), 0))
        self.asked: list[tuple[list[AskedRuns], int]] = []
        self.watched: dict[PartitionKey, int] = {}
        self.answers_after_s = 0.0
        self.list_offsets_s = 0.0

    async def find(self, index: int, asked: Sequence[AskedRuns], max_bytes: int) -> list[FoundRuns]:
        assert index == 1
        self.asked.append((list(asked), max_bytes))
        await asyncio.sleep(self.answers_after_s)
        return [self.found[one.partition] for one in asked]

    def watch(self, index: int, offsets: Mapping[PartitionKey, int]) -> None:
        assert index == 1
        self.watched.update(offsets)

    async def list_offsets(self, partition: PartitionKey, timestamp: int) -> ListedOffset:
        await asyncio.sleep(self.list_offsets_s)
        return ListedOffset(offset=0)


class Far:
    """A shard without a copy."""

    id = DISKLESS.shard(1)
    is_readable = False
    follow_failure: str | None = None


class World:
    """A node with a copy of one coordinator, and without one of another."""

    def __init__(self, path: ProducePath) -> None:
        self.path = path
        self.leader = Leader()
        self.far = Far()
        self.wanted = 0
        self.deleted: set[PartitionKey] = set()
        leaders: Any = self.leader
        far: Any = self.far
        coordinator: Any = self.leader
        self.fetcher = Fetcher(
            lambda key: None if key in self.deleted else far if key in FAR else path.replica_of(key),
            OffsetRangeCheck(lambda key: coordinator if key in FAR else path.node.shard),
            path.reader,
            path.fetcher._read_ahead,
            path.purgatory,
            path.clock,
            path.metrics,
            elsewhere=Elsewhere(leaders, self._want),
        )

    def _want(self, shard: object) -> None:
        assert shard is self.far
        self.wanted += 1

    async def fetch(self, *wanted: tuple[PartitionKey, int], **more: Any) -> tuple[list[FetchedPartition], float]:
        """The answers, and after how many seconds they came."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        query = FetchQuery(
            partitions=[FetchPartition(key=key, offset=offset, max_bytes=1 << 20) for key, offset in wanted],
            max_bytes=more.get("max_bytes", 1 << 20),
            min_bytes=more.get("min_bytes", 1),
            max_wait_ms=more.get("max_wait_ms", 10_000),
        )
        return await self.fetcher.fetch(query, more.get("starved", [])), loop.time() - begun


def story(told: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await told(World(path))

    run(main)


def test_leaders_are_asked_for_what_starved_first_and_within_the_budget_of_all() -> None:
    async def told(world: World) -> None:
        await world.fetch(
            (FAR[0], 0), (FAR[1], 0), (FAR[2], 0), max_bytes=1000, max_wait_ms=0, starved=[FAR[2], FAR[1]]
        )
        [(asked, max_bytes)] = world.leader.asked
        assert [one.partition for one in asked] == [FAR[2], FAR[1], FAR[0]]
        assert ({one.max_bytes for one in asked}, max_bytes) == ({1000}, 1000)

    story(told)


def test_what_nobody_could_say_is_answered_with_a_pause_for_consumers_ask_again_at_once() -> None:
    async def told(world: World) -> None:
        world.leader.found[FAR[0]] = FoundRuns(ErrorCode.OFFSET_NOT_AVAILABLE)
        [answer], seconds = await world.fetch((FAR[0], 0))
        assert answer.error is ErrorCode.OFFSET_NOT_AVAILABLE
        assert seconds == pytest.approx(UNAVAILABLE_S)
        _, seconds = await world.fetch((FAR[0], 0), max_wait_ms=20)
        assert seconds == pytest.approx(0.02)

    story(told)


def test_what_nobody_could_say_holds_up_no_records_of_others() -> None:
    async def told(world: World) -> None:
        await world.path.produce((0, batch_of(b"here")))
        world.leader.found[FAR[0]] = FoundRuns(ErrorCode.OFFSET_NOT_AVAILABLE)
        (far, near), seconds = await world.fetch((FAR[0], 0), (key_of(0), 0), min_bytes=1 << 20)
        assert (far.error, records_of(near), seconds) == (ErrorCode.OFFSET_NOT_AVAILABLE, [(0, b"here")], 0)

    story(told)


def test_other_errors_are_told_at_once() -> None:
    async def told(world: World) -> None:
        world.leader.found[FAR[0]] = FoundRuns(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        _, seconds = await world.fetch((FAR[0], 0))
        assert seconds == 0

    story(told)


def test_commits_to_other_partitions_while_a_leader_is_asked_are_no_reason_to_ask_again() -> None:
    async def told(world: World) -> None:
        world.leader.answers_after_s = 0.01
        fetching = asyncio.create_task(world.fetch((FAR[0], 0), max_wait_ms=5_000))
        await asyncio.sleep(0.005)
        world.path.purgatory.wake([FAR[1]])
        await fetching
        assert len(world.leader.asked) == 1

    story(told)


def test_a_commit_while_a_leader_is_asked_is_not_missed() -> None:
    async def told(world: World) -> None:
        world.leader.answers_after_s = 0.01
        fetching = asyncio.create_task(world.fetch((FAR[0], 0), max_wait_ms=5_000))
        await asyncio.sleep(0.005)
        world.path.purgatory.wake([FAR[0]])
        await fetching
        assert len(world.leader.asked) == 2

    story(told)


def test_a_topic_that_is_deleted_while_its_leader_is_asked_is_told_at_once() -> None:
    async def told(world: World) -> None:
        world.leader.answers_after_s = 0.5
        asyncio.get_running_loop().call_later(0.25, world.deleted.add, FAR[0])
        [answer], seconds = await world.fetch((FAR[0], 0))
        assert (answer.error, seconds) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, pytest.approx(0.5))

    story(told)


def test_a_fetch_that_wants_much_asks_a_leader_a_few_times_however_often_something_is_committed() -> None:
    async def told(world: World) -> None:
        fetching = asyncio.create_task(world.fetch((FAR[0], 0), min_bytes=1 << 20, max_wait_ms=1_000))
        while not fetching.done():
            await asyncio.sleep(0.001)
            world.path.purgatory.wake([FAR[0]])
        _, seconds = await fetching
        assert 3 <= len(world.leader.asked) <= 1 / LEAST_S + 3
        assert seconds == pytest.approx(1, abs=0.01)

    story(told)


def test_what_is_out_of_range_is_checked_side_by_side_and_for_a_limited_time() -> None:
    async def told(world: World) -> None:
        world.leader.found = dict.fromkeys(FAR, FoundRuns(ErrorCode.OFFSET_OUT_OF_RANGE, 0, 0, (), 0))
        world.leader.list_offsets_s = 0.5
        answers, seconds = await world.fetch(*((key, 5) for key in FAR))
        assert {answer.error for answer in answers} == {ErrorCode.OFFSET_OUT_OF_RANGE}
        assert seconds == pytest.approx(0.5)
        world.leader.list_offsets_s = 15
        answers, seconds = await world.fetch(*((key, 5) for key in FAR))
        assert {answer.error for answer in answers} == {ErrorCode.OFFSET_NOT_AVAILABLE}
        assert seconds == pytest.approx(CHECK_S)

    story(told)


def test_a_reader_of_segments_waits_for_the_copy_and_is_told_when_there_will_be_none() -> None:
    async def told(world: World) -> None:
        world.leader.found[FAR[0]] = FoundRuns(ErrorCode.NONE, 0, 9, [Run(5, 8, "object", 16, SIZE, 1, 1, 0)], 5)
        [answer], seconds = await world.fetch((FAR[0], 0), max_wait_ms=1_000)
        assert (answer.error, answer.records, seconds) == (ErrorCode.NONE, [], 1)
        assert world.wanted > 0
        world.far.follow_failure = "the disk is full"
        [answer], _ = await world.fetch((FAR[0], 0), max_wait_ms=1_000)
        assert answer.error is ErrorCode.OFFSET_NOT_AVAILABLE

    story(told)
