"""Fetches of partitions of whose coordinator this node has no copy: their leaders are asked, and tell of what comes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from diskless_core.coordinator.errors import NotCoordinatorError
from diskless_core.coordinator.peers import PeerRequest
from diskless_core.diskless.commands import AskedRuns, PartitionKey
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.remote import ASKED_AT_ONCE, RemoteCoordinator
from diskless_core.fetch import asking
from diskless_core.fetch.asking import PAUSE_S, WAIT_MS, WATCHED_S, AskedLeaders
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DisklessFindBatchesRequest
from tests.support.peer_network import Network
from tests.support.shards import TOPIC, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

KEYS = [PartitionKey(TOPIC, partition) for partition in range(3)]
EVERYTHING = 1 << 20
OTHER = b"O" * 16


class World:
    """Node 1 leads, 2 follows, and 3 has no copy."""

    def __init__(self, network: Network, clock: VirtualClock) -> None:
        self.network = network
        self.purgatory = Purgatory()
        self.leaders = AskedLeaders(network.nodes[3].directory, self.purgatory, clock)
        self._commits = 0

    async def commit(self, partition: int, *, at: int = 1) -> None:
        self._commits += 1
        request = commit_of(f"object-{self._commits}", batch(partition))
        await self.network.nodes[at].replicas[0].commit(request)

    async def create(self, count: int) -> list[PartitionKey]:
        """More partitions, of a topic of their own."""
        await self.network.nodes[1].shards[0].create_partitions(uuid.UUID(bytes=OTHER), "other", range(count))
        return [PartitionKey(OTHER, partition) for partition in range(count)]

    def asked(self) -> int:
        return sum(key == DisklessFindBatchesRequest.API_KEY for _, key in self.network.sent)


def story(told: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with Network(clock, {0: 1}, (1, 2, 3)) as network:
            await network.nodes[1].shards[0].create_partitions(uuid.UUID(bytes=TOPIC), "t", range(len(KEYS)))
            await network.nodes[3].shards[0].unfollow()
            world = World(network, clock)
            try:
                await told(world)
            finally:
                await world.leaders.stop()

    run(main)


def test_partitions_are_asked_for_together_and_answered_in_order() -> None:
    async def told(world: World) -> None:
        await world.commit(0)
        await world.commit(2)
        asked = [AskedRuns(KEYS[index], 0, EVERYTHING) for index in (2, 1, 0)]

        found = await world.leaders.find(0, asked, EVERYTHING)

        assert world.asked() == 1
        assert [one.high_watermark for one in found] == [1, 0, 1]
        assert [[run.object_key for run in one.runs] for one in found] == [["object-2"], [], ["object-1"]]

    story(told)


def test_a_partition_may_be_asked_for_at_several_places_at_once() -> None:
    async def told(world: World) -> None:
        await world.commit(0)
        await world.commit(0)
        asked = [AskedRuns(KEYS[0], offset, EVERYTHING) for offset in (1, 0, 2)]
        found = await world.leaders.find(0, asked, EVERYTHING)
        assert [[run.base_offset for run in one.runs] for one in found] == [[1], [0, 1], []]

    story(told)


def test_who_waits_is_woken_by_a_commit_at_once() -> None:
    async def told(world: World) -> None:
        loop = asyncio.get_running_loop()
        with world.purgatory.watch([KEYS[1]], since=world.purgatory.changes) as watch:
            world.leaders.watch(0, {KEYS[1]: 0})
            waiting = asyncio.create_task(watch.wait(60))
            await asyncio.sleep(WAIT_MS / 3000)
            await world.commit(0)
            await asyncio.sleep(WAIT_MS / 3000)
            assert not waiting.done()
            await world.commit(1)
            committed = loop.time()
            assert await waiting
            assert loop.time() - committed < 0.05

    story(told)


def test_a_partition_that_comes_later_waits_for_no_request_of_others() -> None:
    async def told(world: World) -> None:
        loop = asyncio.get_running_loop()
        world.leaders.watch(0, {KEYS[0]: 0})
        await asyncio.sleep(0.01)
        with world.purgatory.watch([KEYS[1]], since=world.purgatory.changes) as watch:
            world.leaders.watch(0, {KEYS[1]: 0})
            waiting = asyncio.create_task(watch.wait(60))
            await asyncio.sleep(0.01)
            await world.commit(1)
            committed = loop.time()
            assert await waiting
            assert loop.time() - committed < 0.05

    story(told)


def test_many_that_wait_cost_two_requests_at_most_and_nothing_when_they_are_gone() -> None:
    async def told(world: World) -> None:
        before = world.asked()
        for _ in range(100):
            world.leaders.watch(0, dict.fromkeys(KEYS, 0))
            await asyncio.sleep(0.01)
        assert world.asked() - before <= 4
        await asyncio.sleep(2 * WATCHED_S)
        rest = world.asked()
        await asyncio.sleep(60)
        assert world.asked() == rest

    story(told)


def test_any_number_of_partitions_can_be_asked_for_and_waited_for() -> None:
    async def told(world: World) -> None:
        keys = await world.create(2_500)
        asked = [AskedRuns(key, 0, EVERYTHING) for key in keys]
        found = await world.leaders.find(0, asked, EVERYTHING)
        assert [(one.error, one.high_watermark, one.local_start_offset) for one in found] == [
            (ErrorCode.NONE, 0, 0)
        ] * len(keys)
        assert world.asked() == len(keys) / ASKED_AT_ONCE

        before = world.asked()
        with world.purgatory.watch(keys, since=world.purgatory.changes) as watch:
            world.leaders.watch(0, dict.fromkeys(keys, 0))
            assert not await watch.wait(10 * WAIT_MS / 1000 - 0.1), "nothing was committed, and nothing failed"
            assert world.asked() - before == 10

    story(told)


def test_more_partitions_than_one_request_waits_for_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "WATCHED_AT_ONCE", 10)

    async def told(world: World) -> None:
        keys = await world.create(45)
        commits = [batch(partition, topic=OTHER) for partition in range(len(keys))]
        with world.purgatory.watch(keys, since=world.purgatory.changes) as watch:
            world.leaders.watch(0, dict.fromkeys(keys, 0))
            await asyncio.sleep(WAIT_MS / 2000)
            await world.network.nodes[1].replicas[0].commit(commit_of("object", *commits))
            await asyncio.sleep(4 * WAIT_MS / 1000)
            assert sorted(watch.woken()) == keys

    story(told)


def test_a_partition_that_is_named_again_and_again_costs_the_leader_one_look() -> None:
    async def told(world: World) -> None:
        await world.commit(0)
        sizes: list[int] = []
        answer = world.network.nodes[1].service.answer

        async def measured(request: PeerRequest) -> bytes:
            sizes.append(len(await answer(request)))
            return await answer(request)

        world.network.nodes[1].service.answer = measured  # type: ignore[method-assign]
        for count in (1, 1000):
            found = await world.leaders.find(0, [AskedRuns(KEYS[0], 0, EVERYTHING)] * count, EVERYTHING)
            assert [len(one.runs) for one in found] == [1] * count
        assert sizes == sizes[:1] * 2

    story(told)


def test_the_budget_of_a_fetch_is_that_of_all_partitions_together() -> None:
    async def told(world: World) -> None:
        for partition in (0, 1, 2, 0, 1, 2):
            await world.commit(partition)
        asked = [AskedRuns(KEYS[partition], 0, EVERYTHING) for partition in (2, 0, 1)]
        [first, *_] = await world.leaders.find(0, asked, EVERYTHING)
        limit = sum(run.byte_size for run in first.runs) + 1
        found = await world.leaders.find(0, asked, limit)
        assert [len(one.runs) for one in found] == [2, 1, 0]
        assert [one.high_watermark for one in found] == [2, 2, 2]

    story(told)


def test_runs_of_an_answer_are_bounded_over_all_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ASKED_AT_ONCE", 2)
    monkeypatch.setattr(asking, "ANSWER_RUNS", 3)

    async def told(world: World) -> None:
        for partition in (0, 1, 2, 0, 1, 2):
            await world.commit(partition)
        found = await world.leaders.find(0, [AskedRuns(key, 0, EVERYTHING) for key in KEYS], EVERYTHING)
        assert [len(one.runs) for one in found] == [2, 2, 0]
        assert [one.high_watermark for one in found] == [2, 2, 2]

    story(told)


@pytest.mark.parametrize("seconds", [WATCHED_S - 0.1, WATCHED_S + 1, 20])
def test_who_waits_for_long_is_woken_by_a_commit_all_the_same(seconds: float) -> None:
    async def told(world: World) -> None:
        loop = asyncio.get_running_loop()
        with world.purgatory.watch([KEYS[1]], since=world.purgatory.changes) as watch:
            world.leaders.watch(0, {KEYS[1]: 0})
            waiting = asyncio.create_task(watch.wait(60))
            await asyncio.sleep(seconds)
            await world.commit(1)
            committed = loop.time()
            assert await waiting
            assert loop.time() - committed < 0.05

    story(told)


def test_who_has_seen_less_of_a_partition_is_woken_though_another_one_has_seen_more() -> None:
    async def told(world: World) -> None:
        loop = asyncio.get_running_loop()
        await world.commit(0)
        with world.purgatory.watch([KEYS[0]], since=world.purgatory.changes) as watch:
            begun = loop.time()
            world.leaders.watch(0, {KEYS[0]: 0})
            world.leaders.watch(0, {KEYS[0]: 1})
            assert await watch.wait(60)
            assert loop.time() - begun < 0.05

    story(told)


def test_a_leader_that_is_silent_is_waited_for_once_and_then_holds_nobody_up() -> None:
    async def told(world: World) -> None:
        loop = asyncio.get_running_loop()
        asked = [AskedRuns(KEYS[0], 0, EVERYTHING)]

        async def find() -> tuple[ErrorCode, float]:
            begun = loop.time()
            [found] = await world.leaders.find(0, asked, EVERYTHING)
            return found.error, loop.time() - begun

        world.network.silent.add(1)
        with capture_logs() as lines:
            error, seconds = await find()
            assert (error, seconds < 1.2) == (ErrorCode.OFFSET_NOT_AVAILABLE, True)
            assert await find() == (ErrorCode.OFFSET_NOT_AVAILABLE, 0)
            await asyncio.sleep(PAUSE_S)
            tries = await asyncio.gather(*(find() for _ in range(4)))
            assert [seconds > 0.9 for _, seconds in tries] == [True, False, False, False]
            await asyncio.sleep(PAUSE_S)
            world.network.silent.clear()
            assert await find() == (ErrorCode.NONE, 0)
            assert await find() == (ErrorCode.NONE, 0)
        told_of = [line["event"] for line in lines if line["event"].startswith("a leader")]
        assert len(told_of) == 2, "once that it is silent, and once that it is not"

    story(told)


def test_a_fetch_of_more_than_there_is_time_for_gets_a_part_and_leaves_the_leader_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "ASKED_AT_ONCE", 1)
    find_batches = RemoteCoordinator.find_batches

    async def slowly(self: RemoteCoordinator, *arguments: Any) -> Any:
        await asyncio.sleep(0.3)
        return await find_batches(self, *arguments)

    monkeypatch.setattr(RemoteCoordinator, "find_batches", slowly)

    async def told(world: World) -> None:
        loop = asyncio.get_running_loop()
        keys = await world.create(20)
        for _ in range(3):
            begun = loop.time()
            found = await world.leaders.find(0, [AskedRuns(key, 0, EVERYTHING) for key in keys], EVERYTHING)
            assert loop.time() - begun < 1.5
            errors = [one.error for one in found]
            assert errors[:4] == [ErrorCode.NONE] * 4
            assert set(errors[4:]) == {ErrorCode.OFFSET_NOT_AVAILABLE}
            [found_here] = await world.leaders.find(0, [AskedRuns(KEYS[0], 0, EVERYTHING)], EVERYTHING)
            assert found_here.error is ErrorCode.NONE

    story(told)


def test_a_successor_of_a_silent_leader_is_asked_at_once() -> None:
    async def told(world: World) -> None:
        loop = asyncio.get_running_loop()
        asked = [AskedRuns(KEYS[0], 0, EVERYTHING)]
        world.network.silent.add(1)
        await world.leaders.find(0, asked, EVERYTHING)
        world.network.shared.set_leader(world.network.nodes[2].shards[0].id, 2)
        await world.network.nodes[2].shards[0].until_leading()
        begun = loop.time()
        [found] = await world.leaders.find(0, asked, EVERYTHING)
        assert (found.error, loop.time() - begun < 0.05) == (ErrorCode.NONE, True)

    story(told)


def test_while_nobody_leads_consumers_are_told_to_ask_again_and_then_the_next_leader_answers() -> None:
    async def told(world: World) -> None:
        await world.commit(0)
        asked = [AskedRuns(KEYS[0], 0, EVERYTHING)]
        world.network.down.add(1)
        [found] = await world.leaders.find(0, asked, EVERYTHING)
        assert found.error is ErrorCode.OFFSET_NOT_AVAILABLE

        with world.purgatory.watch([KEYS[0]], since=world.purgatory.changes) as watch:
            world.leaders.watch(0, {KEYS[0]: 1})
            assert await watch.wait(60), "who waits at a leader that is gone is not left waiting"
        world.network.shared.set_leader(world.network.nodes[2].shards[0].id, 2)
        await world.network.nodes[2].shards[0].until_leading()
        await world.commit(0, at=2)
        [found] = await world.leaders.find(0, asked, EVERYTHING)
        assert (found.error, found.high_watermark) == (ErrorCode.NONE, 2)

    story(told)


def test_a_node_without_a_copy_says_that_it_knows_nothing() -> None:
    async def told(world: World) -> None:
        await world.network.nodes[2].shards[0].unfollow()
        directory = world.network.nodes[3].directory
        with pytest.raises(NotCoordinatorError):  # not UNKNOWN_TOPIC_OR_PARTITION, nor that there is nothing
            await RemoteCoordinator(0, 2, directory.calls, directory.commits).find(KEYS[0], 0, EVERYTHING)

    story(told)
