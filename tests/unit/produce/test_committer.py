"""The order of objects: who waits for whom, and who need not."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.diskless.commands import PartitionKey
from diskless_core.produce.committer import CommitTicket

Tails = dict[PartitionKey, CommitTicket]


def partitions(names: str) -> set[PartitionKey]:
    return {PartitionKey(b"T" * 16, ord(name)) for name in names}


async def coming(turn: CommitTicket) -> asyncio.Task[None]:
    task = asyncio.create_task(turn.come())
    await settle()
    return task


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_object_waits_for_all_before_it_that_share_a_partition() -> None:
    tails: Tails = {}
    a, b, both, other = (CommitTicket(tails, partitions(names)) for names in ("a", "b", "ab", "c"))
    waiting = await coming(both)
    assert (await coming(other)).done()
    a.end()
    await settle()
    assert not waiting.done()
    b.end()
    await settle()
    assert waiting.done()


async def test_nothing_is_kept_of_objects_that_are_over() -> None:
    tails: Tails = {}
    first, second = CommitTicket(tails, partitions("ab")), CommitTicket(tails, partitions("b"))
    first.end()
    assert set(tails) == partitions("b")
    second.end()
    assert tails == {}


@pytest.mark.parametrize("times", [1, 2])
async def test_the_end_may_come_before_the_turn_and_more_than_once(times: int) -> None:
    tails: Tails = {}
    first = CommitTicket(tails, partitions("a"))
    for _ in range(times):
        first.end()
    assert (await coming(CommitTicket(tails, partitions("a")))).done()


@given(
    objects=st.lists(st.sets(st.sampled_from("abc"), min_size=1), max_size=8),
    order=st.randoms(use_true_random=False),
)
def test_each_partition_sees_its_objects_in_the_order_of_rotation(objects: list[set[str]], order) -> None:
    async def main() -> None:
        tails: Tails = {}
        committed: list[int] = []
        release = [asyncio.Event() for _ in objects]

        async def deliver(number: int, turn: CommitTicket) -> None:
            await release[number].wait()
            await turn.come()
            committed.append(number)
            turn.end()

        turns = [CommitTicket(tails, partitions("".join(names))) for names in objects]
        tasks = [asyncio.create_task(deliver(number, turn)) for number, turn in enumerate(turns)]
        for event in order.sample(release, len(release)):
            event.set()
            await settle()
        await asyncio.gather(*tasks)
        for name in "abc":
            touching = [number for number in committed if name in objects[number]]
            assert touching == sorted(touching)
        assert tails == {}

    asyncio.run(main())
