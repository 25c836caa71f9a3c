"""Searches in a coordinator for other brokers: what they cost it, and what one answer has."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from diskless_core.coordinator.errors import NotCoordinatorError
from diskless_core.diskless.attempts import Attempt
from diskless_core.diskless.commands import FoundRuns, PartitionKey
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.run_lookup import ANSWER_RUNS, PAGE_RUNS
from diskless_core.diskless.service_reads import CoordinatorReads
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DisklessFindBatchesRequest as Request
from diskless_core.protocol.messages import DisklessFindBatchesResponse as Response
from diskless_core.wal.runs import Run
from tests.support.shards import TOPIC
from tests.support.virtual_time import VirtualClock, run

KEYS = [PartitionKey(TOPIC, partition) for partition in range(10)]


class Searched:
    """A coordinator with partitions of few runs, and how often each was looked into."""

    is_readable = True
    id = "diskless-0"

    def __init__(self) -> None:
        self.looked: Counter[int] = Counter()
        self.heads: Counter[int] = Counter()
        self.local_starts: dict[int, int] = {}
        self.runs_each = 1
        self.on_look: Callable[[int], None] = lambda _: None

    async def ask(self, index: int, question: Callable[[Any], Awaitable[Any]], timeout_ms: int) -> Attempt[Any]:
        return Attempt(await question(self))

    async def find(self, partition: PartitionKey, offset: int, max_bytes: int) -> FoundRuns:
        self.looked[partition.partition] += 1
        self.on_look(partition.partition)
        head = self.heads[partition.partition]
        runs = [Run(0, 0, "object", 16, 100, 1, 1, 0)] * self.runs_each if offset < head and max_bytes > 0 else []
        return FoundRuns(ErrorCode.NONE, 0, head, runs, self.local_starts.get(partition.partition, 0))


def find_batches(partitions: Iterable[int], *, max_wait_ms: int = 0, max_bytes: int = 1 << 20) -> Request:
    topic_class = Request.DisklessFindBatchesTopic
    asked = [
        topic_class.DisklessFindBatchesPartition(partition_index=one, offset=0, max_partition_fetch_bytes=1 << 20)
        for one in partitions
    ]
    topic = topic_class(topic_id=uuid.UUID(bytes=TOPIC), partitions=asked)
    return Request(
        fetch_max_bytes=max_bytes, max_batches_per_partition=PAGE_RUNS, topics=[topic], shard=0, max_wait_ms=max_wait_ms
    )


def story(told: Callable[[Searched, Purgatory, CoordinatorReads], Awaitable[None]]) -> None:
    async def main() -> None:
        coordinator, purgatory = Searched(), Purgatory()
        attempts: Any = coordinator
        await told(
            coordinator, purgatory, CoordinatorReads(attempts, purgatory, VirtualClock(asyncio.get_running_loop()))
        )

    run(main)


def found_in(response: Response) -> dict[int, int]:
    """How many batches there are of each partition of an answer."""
    return {one.partition_index: len(one.batches) for topic in response.topics for one in topic.partitions}


def test_a_search_that_waits_looks_again_only_where_something_has_changed_and_tells_only_of_that() -> None:
    async def told(coordinator: Searched, purgatory: Purgatory, reads: CoordinatorReads) -> None:
        coordinator.on_look = lambda partition: purgatory.wake([PartitionKey(b"other", partition)])
        waiting = asyncio.create_task(reads.find_batches(find_batches(range(10), max_wait_ms=15_000)))
        await asyncio.sleep(1)
        assert coordinator.looked == Counter(range(10)), "what others commit meanwhile is no reason to look again"
        purgatory.wake([KEYS[3]])
        await asyncio.sleep(1)
        assert not waiting.done()
        coordinator.heads[7] += 1
        purgatory.wake([KEYS[7]])
        assert found_in(await waiting) == {7: 1}
        assert coordinator.looked == Counter([*range(10), 3, 7])

    story(told)


def test_what_is_committed_while_a_search_looks_is_found() -> None:
    async def told(coordinator: Searched, purgatory: Purgatory, reads: CoordinatorReads) -> None:
        def commit_behind(partition: int) -> None:
            if partition == 9 and not coordinator.heads[2]:
                coordinator.heads[2] += 1
                purgatory.wake([KEYS[2]])

        coordinator.on_look = commit_behind
        async with asyncio.timeout(1):
            assert found_in(await reads.find_batches(find_batches(range(10), max_wait_ms=15_000))) == {2: 1}

    story(told)


def test_a_search_that_has_waited_in_vain_has_an_empty_answer() -> None:
    async def told(_: Searched, __: Purgatory, reads: CoordinatorReads) -> None:
        assert found_in(await reads.find_batches(find_batches(range(10), max_wait_ms=500))) == {}

    story(told)


def test_one_answer_has_no_more_than_was_asked_for_and_the_first_have_theirs_first() -> None:
    async def told(coordinator: Searched, _: Purgatory, reads: CoordinatorReads) -> None:
        coordinator.heads.update(range(10))
        assert found_in(await reads.find_batches(find_batches((5, 0, 1), max_bytes=150))) == {5: 1, 0: 1, 1: 0}

    story(told)


def test_one_answer_has_so_many_runs_at_most_however_small_they_are() -> None:
    async def told(coordinator: Searched, _: Purgatory, reads: CoordinatorReads) -> None:
        coordinator.heads.update([0])
        coordinator.runs_each = PAGE_RUNS
        response = await reads.find_batches(find_batches([0] * 1000, max_bytes=2**31 - 1))
        assert sum(len(one.batches) for one in response.topics[0].partitions) == ANSWER_RUNS
        assert len(response.topics[0].partitions) == 1000

    story(told)


def test_a_search_in_many_partitions_lets_others_have_their_turn() -> None:
    async def told(coordinator: Searched, _: Purgatory, reads: CoordinatorReads) -> None:
        searching = asyncio.create_task(reads.find_batches(find_batches(range(10_000))))
        most, before = 0, 0
        while not searching.done():
            await asyncio.sleep(0)
            looked = coordinator.looked.total()
            most, before = max(most, looked - before), looked
        assert most <= 256
        assert len(found_in(await searching)) == 10_000

    story(told)


def test_where_segments_end_is_told_only_where_there_are_any() -> None:
    async def told(coordinator: Searched, _: Purgatory, reads: CoordinatorReads) -> None:
        coordinator.heads.update(range(10))
        response = await reads.find_batches(find_batches(range(3)))
        assert list(response.local_start_offsets) == []
        coordinator.local_starts[1] = 1
        response = await reads.find_batches(find_batches(range(3)))
        assert list(response.local_start_offsets) == [0, 1, 0]

    story(told)


def test_a_copy_that_is_let_go_of_during_a_search_answers_nothing() -> None:
    async def told(coordinator: Searched, _: Purgatory, reads: CoordinatorReads) -> None:
        def let_go(_: int) -> None:
            coordinator.is_readable = False

        coordinator.on_look = let_go
        with pytest.raises(NotCoordinatorError):
            await reads.find_batches(find_batches([0]))

    story(told)
