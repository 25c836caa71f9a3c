"""Which copies a broker keeps up: those that it is nominated for, and a few that somebody wants for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from diskless_core.broker.followed_shards import WANTED_COPIES, FollowedShards
from diskless_core.coordinator.errors import CoordinatorLoadingError
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import DISKLESS
from tests.support.virtual_time import VirtualClock, run

NODE = 1
KEPT_S = 60.0
LOADING_S = 1.0


class Nominated:
    """Nominations that name this node for some shards."""

    def __init__(self) -> None:
        self.named: set[ShardId] = set()
        self._changed = asyncio.Event()

    def names(self, shard: ShardId, node_id: int) -> bool:
        return node_id == NODE and shard in self.named

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    def wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Shard:
    """A shard whose copy takes a second to catch up, unless it never does."""

    def __init__(self, index: int, copies: Copies) -> None:
        self.id = DISKLESS.shard(index)
        self.is_followed = self.leading = False
        self.failure: str | None = None
        self.never_catches_up = False
        self._copies = copies
        self._readable = asyncio.Event()

    @property
    def is_readable(self) -> bool:
        return self._readable.is_set()

    async def follow(self) -> None:
        self._copies.begun(1)
        await asyncio.sleep(LOADING_S)
        self.is_followed = True
        if not self.never_catches_up:
            self._readable.set()

    async def unfollow(self) -> None:
        self._readable.clear()
        await asyncio.sleep(LOADING_S)
        self.is_followed = False
        self._copies.begun(-1)

    async def until_readable(self) -> None:
        await self._readable.wait()

    def forget_failure(self) -> None:
        pass


class Copies:
    """How many copies there are, and were at most."""

    def __init__(self) -> None:
        self.count = self.most = 0

    def begun(self, change: int) -> None:
        self.count += change
        self.most = max(self.most, self.count)


class World:
    def __init__(self) -> None:
        self.copies = Copies()
        self.shards = [Shard(index, self.copies) for index in range(3 * WANTED_COPIES)]
        self.nominated = Nominated()
        nominated: Any = self.nominated
        clock = VirtualClock(asyncio.get_running_loop())
        self.follows: Any = FollowedShards(NODE, nominated, clock, kept_s=KEPT_S)

    def followed(self) -> list[int]:
        return [shard.id.index for shard in self.shards if shard.is_followed]


def story(told: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        tasks = [asyncio.create_task(world.follows.look_after(shard)) for shard in world.shards]
        try:
            await told(world)
            assert [task.done() for task in tasks] == [False] * len(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(main)


def test_what_somebody_wants_is_followed_for_a_while() -> None:
    async def told(world: World) -> None:
        world.follows.want(world.shards[3])
        await asyncio.sleep(2 * LOADING_S)
        assert world.followed() == [3]
        await asyncio.sleep(KEPT_S / 2)
        world.follows.want(world.shards[3])
        await asyncio.sleep(KEPT_S / 2 + 10)
        assert world.followed() == [3]
        await asyncio.sleep(2 * KEPT_S)
        assert world.followed() == []

    story(told)


def test_whoever_wants_all_copies_gets_a_few_of_them_and_all_in_turn() -> None:
    async def told(world: World) -> None:
        seen: set[int] = set()
        for _ in range(len(world.shards) * int(KEPT_S) // 2):
            for shard in world.shards:
                world.follows.want(shard)
            await asyncio.sleep(2)
            seen.update(world.followed())
        assert world.copies.most == WANTED_COPIES
        assert seen == set(range(len(world.shards)))

    story(told)


def test_copies_that_a_broker_is_nominated_for_do_not_count() -> None:
    async def told(world: World) -> None:
        world.nominated.named = {shard.id for shard in world.shards[: 2 * WANTED_COPIES]}
        world.nominated.wake()
        for shard in world.shards:
            world.follows.want(shard)
        await asyncio.sleep(2 * LOADING_S)
        assert world.followed() == list(range(3 * WANTED_COPIES))

    story(told)


def test_a_copy_is_there_as_long_as_somebody_has_it_and_a_while_longer() -> None:
    async def told(world: World) -> None:
        shards = world.shards[:3]
        async with world.follows.having(shards):
            assert all(shard.is_readable for shard in shards)
            await asyncio.sleep(10 * KEPT_S)
            assert world.followed() == [0, 1, 2]
        await asyncio.sleep(KEPT_S / 2)
        assert world.followed() == [0, 1, 2]
        await asyncio.sleep(2 * KEPT_S)
        assert world.followed() == []

    story(told)


def test_copies_that_somebody_had_are_let_go_of_but_for_those_that_were_wanted_last() -> None:
    async def told(world: World) -> None:
        async with world.follows.having(world.shards):
            assert len(world.followed()) == len(world.shards)
        await asyncio.sleep(2 * LOADING_S)
        assert world.followed() == [shard.id.index for shard in world.shards[-WANTED_COPIES:]]

    story(told)


def test_who_needs_a_copy_that_does_not_catch_up_is_told_which_one() -> None:
    async def told(world: World) -> None:
        world.shards[1].never_catches_up = True
        with pytest.raises(CoordinatorLoadingError, match=f"caught up: {world.shards[1].id}$"):
            async with world.follows.having(world.shards[:3]):
                raise AssertionError("it is not there")

    story(told)
