"""Fetches of partitions of whose coordinator this node has no copy: their leaders are asked, and tell of what comes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest

from diskless_core.coordinator.errors import NotCoordinatorError
from diskless_core.diskless.commands import AskedRuns, PartitionKey
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.remote import RemoteCoordinator
from diskless_core.fetch.asking import WAIT_MS, WATCHED_S, AskedLeaders
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DisklessFindBatchesRequest
from tests.support.peer_network import Network
from tests.support.shards import TOPIC, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

KEYS = [PartitionKey(TOPIC, partition) for partition in range(3)]
EVERYTHING = 1 << 20


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

        found = await world.leaders.find(0, asked)

        assert world.asked() == 1
        assert [one.high_watermark for one in found] == [1, 0, 1]
        assert [[run.object_key for run in one.runs] for one in found] == [["object-2"], [], ["object-1"]]

    story(told)


def test_a_partition_may_be_asked_for_at_several_places_at_once() -> None:
    async def told(world: World) -> None:
        await world.commit(0)
        await world.commit(0)
        asked = [AskedRuns(KEYS[0], offset, EVERYTHING) for offset in (1, 0, 2)]
        found = await world.leaders.find(0, asked)
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


def test_while_nobody_leads_consumers_are_told_to_ask_again_and_then_the_next_leader_answers() -> None:
    async def told(world: World) -> None:
        await world.commit(0)
        asked = [AskedRuns(KEYS[0], 0, EVERYTHING)]
        world.network.down.add(1)
        [found] = await world.leaders.find(0, asked)
        assert found.error is ErrorCode.OFFSET_NOT_AVAILABLE

        with world.purgatory.watch([KEYS[0]], since=world.purgatory.changes) as watch:
            world.leaders.watch(0, {KEYS[0]: 1})
            assert await watch.wait(60), "who waits at a leader that is gone is not left waiting"
        world.network.shared.set_leader(world.network.nodes[2].shards[0].id, 2)
        await world.network.nodes[2].shards[0].until_leading()
        await world.commit(0, at=2)
        [found] = await world.leaders.find(0, asked)
        assert (found.error, found.high_watermark) == (ErrorCode.NONE, 2)

    story(told)


def test_a_node_without_a_copy_says_that_it_knows_nothing() -> None:
    async def told(world: World) -> None:
        await world.network.nodes[2].shards[0].unfollow()
        directory = world.network.nodes[3].directory
        with pytest.raises(NotCoordinatorError):  # not UNKNOWN_TOPIC_OR_PARTITION, nor that there is nothing
            await RemoteCoordinator(0, 2, directory.calls, directory.commits).find(KEYS[0], 0, EVERYTHING)

    story(told)
