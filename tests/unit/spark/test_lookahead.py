"""What many have comes in order, the next ones are asked for meanwhile, and nothing stays open."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial

import pytest

from diskless_spark import lookahead

ahead = partial(lookahead.ahead, weigh=lambda item: 0, reserve=0, limit=0)


class Sources:
    """Items of each key: as many as the key says. They note what was opened and closed."""

    def __init__(self, failing=()):
        self.opened = []
        self.closed = []
        self.failing = failing

    async def of(self, key):
        self.opened.append(key)
        try:
            for number in range(key):
                await asyncio.sleep(0)
                yield number
            if key in self.failing:
                raise ValueError(key)
        finally:
            self.closed.append(key)


async def test_everything_comes_in_order():
    sources, found = Sources(), []
    async with aclosing(ahead([2, 0, 3, 1], sources.of, count=2)) as keys:
        async for key, items in keys:
            found.append((key, [item async for item in items]))
    assert found == [(2, [0, 1]), (0, []), (3, [0, 1, 2]), (1, [0])]
    assert sorted(sources.closed) == [0, 1, 2, 3]


async def test_the_next_ones_are_asked_for_while_one_is_taken():
    sources = Sources()
    async with aclosing(ahead([5, 6, 7, 8], sources.of, count=3)) as keys:
        key, items = await anext(keys)
        assert (key, await anext(items)) == (5, 0)
        assert sources.opened == [5, 6, 7]
    assert sources.closed == [5, 6, 7]


async def test_a_failure_is_that_of_its_own_key():
    sources, found = Sources(failing=(0, 2)), []
    async with aclosing(ahead([0, 1, 2, 3], sources.of, count=4)) as keys:
        async for key, items in keys:
            try:
                found += [(key, item) async for item in items]
            except ValueError as error:
                found.append((key, str(error)))
    assert found == [(0, "0"), (1, 0), (2, "2"), (3, 0), (3, 1), (3, 2)]
    assert sorted(sources.closed) == [0, 1, 2, 3]


async def test_whoever_gives_up_leaves_nothing_open():
    sources = Sources(failing=(0,))

    async def gives_up():
        async with aclosing(ahead([3, 0, 4], sources.of, count=3)) as keys:
            async for _ in keys:
                raise KeyError

    with pytest.raises(KeyError):
        await gives_up()
    assert sorted(sources.closed) == sorted(sources.opened)


class Held:
    """One item for each key, which is its weight. It comes when `gates` says so, or at once."""

    def __init__(self, **gates):
        self.opened = []
        self.asked = asyncio.Condition()
        self.gates = gates

    async def of(self, key):
        self.opened.append(key)
        async with self.asked:
            self.asked.notify_all()
        if (gate := self.gates.get(key[0])) is not None:
            await gate.wait()
        yield key

    async def until_opened(self, count):
        async with self.asked:
            await self.asked.wait_for(lambda: len(self.opened) >= count)


def weigh(item):
    return int(item[1:])


async def test_no_more_is_asked_for_than_there_may_be_of_it():
    """What is on its way may be as large as any."""
    gate = asyncio.Event()
    sources = Held(b=gate, c=gate)
    keys = ["a1", "b1", "c9", "d1", "e1", "f1"]
    async with aclosing(ahead(keys, sources.of, count=5, weigh=weigh, reserve=10, limit=30)) as coming:
        key, items = await anext(coming)
        assert (key, [item async for item in items]) == ("a1", ["a1"])
        assert sources.opened == ["a1", "b1", "c9"], "three of ten are the limit; now one of them is known to be small"
        gate.set()
        await sources.until_opened(5)
        assert sources.opened == ["a1", "b1", "c9", "d1", "e1"]
        assert [key async for key, _ in coming] == keys[1:]


async def test_an_item_beyond_the_limit_comes_alone():
    sources = Held()
    async with aclosing(ahead(["a9", "b9"], sources.of, count=5, weigh=weigh, reserve=5, limit=4)) as coming:
        assert [[item async for item in items] async for _, items in coming] == [["a9"], ["b9"]]
    assert sources.opened == ["a9", "b9"]


async def test_small_items_let_as_many_be_asked_for_as_there_may_be():
    """Without anybody who takes one: the first answers are enough."""
    sources = Held()
    keys = [f"{letter}1" for letter in "abcdefghijkl"]
    async with aclosing(ahead(keys, sources.of, count=10, weigh=weigh, reserve=10, limit=30)) as coming:
        await anext(coming)
        await sources.until_opened(10)
        assert sources.opened == keys[:10]
