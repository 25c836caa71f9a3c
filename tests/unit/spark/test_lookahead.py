"""What many have comes in order, the next ones are asked for meanwhile, and nothing stays open."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from diskless_spark.lookahead import ahead


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
    async with aclosing(ahead([2, 0, 3, 1], sources.of, 2)) as keys:
        async for key, items in keys:
            found.append((key, [item async for item in items]))
    assert found == [(2, [0, 1]), (0, []), (3, [0, 1, 2]), (1, [0])]
    assert sorted(sources.closed) == [0, 1, 2, 3]


async def test_the_next_ones_are_asked_for_while_one_is_taken():
    sources = Sources()
    async with aclosing(ahead([5, 6, 7, 8], sources.of, 3)) as keys:
        key, items = await anext(keys)
        assert (key, await anext(items)) == (5, 0)
        assert sources.opened == [5, 6, 7]
    assert sources.closed == [5, 6, 7]


async def test_a_failure_is_that_of_its_own_key():
    sources, found = Sources(failing=(0, 2)), []
    async with aclosing(ahead([0, 1, 2, 3], sources.of, 4)) as keys:
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
        async with aclosing(ahead([3, 0, 4], sources.of, 3)) as keys:
            async for _ in keys:
                raise KeyError

    with pytest.raises(KeyError):
        await gives_up()
    assert sorted(sources.closed) == sorted(sources.opened)
