"""Fetch requests that name very many partitions, or one of them very often."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from diskless_core.broker.handlers import fetch
from diskless_core.broker.handlers.fetch import AskedPartition, AskedTopic


def topic(name: str, *asked: tuple[int, int], topic_id: uuid.UUID | None = None) -> AskedTopic:
    partitions = [AskedPartition(partition=partition, fetch_offset=offset) for partition, offset in asked]
    return AskedTopic(topic=name, topic_id=topic_id, partitions=partitions)


async def once(*topics: AskedTopic) -> list[tuple[str, list[tuple[int, int]]]]:
    found = await fetch._each_once(topics)
    return [(one.topic, [(asked.partition, asked.fetch_offset) for asked in partitions]) for one, partitions in found]


async def test_a_partition_that_is_named_again_is_asked_for_once_as_it_is_named_last() -> None:
    asked = (topic("a", (0, 1), (1, 5), (0, 2)), topic("b", (0, 7)), topic("a", (1, 6), (2, 8)), topic("c"))
    assert await once(*asked) == [("a", [(0, 2), (1, 6), (2, 8)]), ("b", [(0, 7)])]


async def test_others_have_their_turn_while_the_partitions_of_a_large_request_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch, "NAMED_IN_A_TURN", 10)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    assert await once(topic("a", *[(0, 3)] * 55), *[topic("a", (1, 3))] * 50) == [("a", [(0, 3), (1, 3)])]
    counting.cancel()
    assert turns == 10
