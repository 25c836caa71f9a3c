"""A log that skips, repeats, reorders or changes what it has: a replica that reads it notices, and does not diverge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import pytest

from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import Acceptance, Entry, ReadBack
from diskless_core.coordinator.tail import Tail
from diskless_core.plugin.coordinator_log import LogBatch
from diskless_core.plugin.shard import ShardId
from tests.support.followers import Following, follow
from tests.support.shards import SHARD_ID

Lie = Callable[[Sequence[LogBatch]], list[LogBatch]]


def skip(batches: Sequence[LogBatch]) -> list[LogBatch]:
    return [*batches[:2], *batches[3:]]


def repeat(batches: Sequence[LogBatch]) -> list[LogBatch]:
    return [*batches[:2], *batches[1:]]


def reorder(batches: Sequence[LogBatch]) -> list[LogBatch]:
    return [*batches[:1], batches[2], batches[1], *batches[3:]]


def stand_still(batches: Sequence[LogBatch]) -> list[LogBatch]:
    return [batches[0], replace(batches[1], next_offset=batches[1].offset), *batches[2:]]


def change(batches: Sequence[LogBatch]) -> list[LogBatch]:
    """The third one is another entry, whole and in its place."""
    third = entries.decode(batches[2].data)
    assert isinstance(third, Entry)
    other = entries.encode_entry(third.term, third.sequence, [entries.NO_OP], 0, third.log_id, third.read_back)
    return [*batches[:2], replace(batches[2], data=other), *batches[3:]]


def truthful(batches: Sequence[LogBatch]) -> list[LogBatch]:
    return list(batches)


def lies_to(world: Following, node_id: int, lie: Lie) -> None:
    """What the node reads next, from where it is, is not what the log has."""
    log = world.nodes[node_id].log
    read, first = log.read, world.nodes[node_id].shard.next_offset

    async def lying(shard: ShardId, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        nonlocal lie
        async for batches in read(shard, offset):
            told = lie(batches) if batches[0].offset == first else list(batches)
            if batches[0].offset == first:
                lie = truthful
            for one in told:
                yield [one]

    log.read = lying  # type: ignore[method-assign]


async def lied_to(world: Following, lie: Lie) -> None:
    """Node 2 reads twelve entries from the log, since the leader does not answer, and then more."""
    world.shared.pause_reads(2)
    world.down.add(1)
    await world.commit(1)
    await world.until(lambda: world.nodes[2].shard._following._prospect.failures > 0)
    lies_to(world, 2, lie)
    for _ in range(3):
        await world.commit_together(3)
    await world.commit(3)
    world.shared.resume_reads(2)
    world.shared.fail_next_read(2)


async def until_stopped(world: Following) -> str:
    shard = world.nodes[2].shard
    for _ in range(20):
        await world.commit(1)
        await asyncio.sleep(1)
    assert shard.failure is not None
    return shard.failure


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (skip, "lacks the entries"),
        (repeat, "repeats or reorders"),
        (reorder, "repeats or reorders"),
        (stand_still, "repeats or reorders"),
        (change, "has other entries than were applied here"),
    ],
)
def test_a_replica_to_which_the_log_lied_stops_and_says_so(lie: Lie, said: str) -> None:
    async def story(world: Following) -> None:
        await lied_to(world, lie)
        assert said in await until_stopped(world)

    follow(story)


def test_a_log_that_tells_the_truth_is_followed() -> None:
    async def story(world: Following) -> None:
        await lied_to(world, truthful)
        await world.commit_together(20)
        await world.until_alike()
        world.down.clear()
        await world.lead_again(2)
        await world.commit(3, at=2)
        await world.until_alike()
        assert world.differences(2) == 0

    follow(story)


def test_an_entry_says_how_far_its_leader_had_read() -> None:
    async def story(world: Following) -> None:
        await world.commit(2)
        await world.commit_together(2)
        found = [entries.decode(batch.data) for batch in world.shared.content(SHARD_ID)]
        acceptance, said = Acceptance(), []
        for entry, batch in zip(found, world.shared.content(SHARD_ID), strict=True):
            if isinstance(entry, Entry) and entry.read_back == acceptance.read_back():
                said.append(entry.sequence)
            acceptance = acceptance.after(entry, batch)
        sequences = [entry.sequence for entry in found if isinstance(entry, Entry)]
        assert said == sequences[:-1], "all but the last, which was written beside the one before"
        last = found[-1]
        assert isinstance(last, Entry)
        assert last.read_back is None

    follow(story)


def test_an_entry_of_a_broker_that_does_not_say_it_is_taken() -> None:
    entry = entries.decode(entries.encode_entry(5, 9, [entries.NO_OP], 0))
    assert isinstance(entry, Entry)
    assert entry.read_back is None
    said = ReadBack(0, b"digest")
    entry = entries.decode(entries.encode_entry(5, 9, [entries.NO_OP], 0, read_back=said))
    assert isinstance(entry, Entry)
    assert entry.read_back == said


def test_a_tail_knows_the_digests_of_the_newest_term_as_far_as_it_goes_back() -> None:
    tail = Tail(1 << 20)
    acceptance = Acceptance(term=3, next_sequence=7, digest=b"7")
    tail.reset(10, acceptance)
    for number in range(8, 11):
        acceptance = acceptance.advanced(number, f"{number}".encode())
        tail.add(LogBatch(number, number + 1, b""), acceptance)
    assert [tail.digest_at(3, number) for number in range(6, 12)] == [None, b"7", b"8", b"9", b"10", None]
    assert tail.digest_at(2, 8) is None
    tail.add(LogBatch(11, 12, b""), acceptance.claimed(11, b"claim"))
    assert [tail.digest_at(11, 0), tail.digest_at(3, 10), tail.digest_at(11, 1)] == [b"claim", None, None]
