"""The part of the `coordinator_log` contract that is about logs which several nodes have at once.

Two and three instances of one log stand for the brokers of a cluster. What they nominate is looked at in the cluster
shard alone: of a log nobody asks that it nominates for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise

import pytest

from diskless_core.plugin.coordinator_log import CoordinatorLog, LeadershipHint, LogBatch, LogOffsetPrunedError
from diskless_core.shards import CLUSTER_SHARD
from diskless_core.testing.coordinator_log_tools import (
    OTHER_SHARD,
    SHARD,
    HintStream,
    MakeLog,
    batch_of,
    next_batches,
    numbered_batches,
    read_all,
    read_batches,
    reading,
    same_content,
    settled_bytes,
    started,
)
from diskless_core.testing.patience import within

ONE, TWO, THREE = 1, 2, 3

_SUSPICION_S = 0.2
"""So long a log has to be misled by a suspicion. What is true after it must be true later, too."""


@pytest.mark.asyncio
class LogSharingContract:
    """What several nodes may rely on; `CoordinatorLogContract` includes it. Skipped if the log is not shared."""

    @pytest.fixture
    def make_shared_log(self, make_log: MakeLog) -> MakeLog:
        """`make_log`, if what it makes can be shared."""
        if not make_log(ONE).is_shared:
            pytest.skip("this log has one node")
        return make_log

    # -- one history ----------------------------------------------------------------------------------------------

    async def test_what_one_node_appends_every_node_reads_at_the_same_offsets(self, make_shared_log: MakeLog) -> None:
        async with _nodes(make_shared_log, ONE, TWO) as (one, two):
            offsets = [*await one.append(SHARD, [batch_of(b"a"), batch_of(b"b", b"c")])]
            offsets += await two.append(SHARD, [batch_of(b"d")])
            offsets += await one.append(SHARD, [batch_of(b"e")])
            expected = [batch_of(b"a"), batch_of(b"b", b"c"), batch_of(b"d"), batch_of(b"e")]
            for log in (one, two):
                entries = await read_batches(log, SHARD, 0, len(expected))
                assert same_content(entries, expected)
                assert [entry.offset for entry in entries] == offsets

    async def test_nodes_that_append_at_once_write_one_history(self, make_shared_log: MakeLog) -> None:
        """Nobody has to be nominated to append: a leader that was deposed still does, and the core ignores it."""
        appended: dict[int, bytes] = {}

        async def append_in_turn(log: CoordinatorLog, node_id: int) -> None:
            for number in range(12):
                batches = [batch_of(b"node %d: %d, %d" % (node_id, number, part)) for part in range(1 + number % 3)]
                for offset, batch in zip(await log.append(SHARD, batches), batches, strict=True):
                    assert offset not in appended, "two nodes were given one offset"
                    appended[offset] = settled_bytes(batch)

        async with _nodes(make_shared_log, ONE, TWO, THREE) as logs:
            async with within("appends of several nodes at once end"):
                await asyncio.gather(*(append_in_turn(log, number) for number, log in enumerate(logs)))
            histories = [_history(await read_batches(log, SHARD, 0, len(appended))) for log in logs]
        assert histories[0] == histories[1] == histories[2]
        assert dict(histories[0]) == appended
        assert len(histories[0]) == len(appended)
        assert all(offset < following for (offset, _), (following, _) in pairwise(histories[0]))

    async def test_a_node_that_waits_at_the_end_hears_of_another_nodes_append(self, make_shared_log: MakeLog) -> None:
        async with _nodes(make_shared_log, ONE, TWO) as (one, two):
            await one.append(SHARD, [batch_of(b"old")])
            end = (await read_batches(two, SHARD, 0, 1))[-1].next_offset
            async with reading(two, SHARD, end) as reader:
                waiting = asyncio.create_task(next_batches(reader))
                for _ in range(5):
                    await asyncio.sleep(0)  # it waits
                await one.append(OTHER_SHARD, [batch_of(b"of another shard")])
                await one.append(SHARD, [batch_of(b"new")])
                assert same_content(await waiting, [batch_of(b"new")])

    async def test_a_node_that_comes_later_finds_the_same_history(self, make_shared_log: MakeLog) -> None:
        batches = numbered_batches(20)
        async with started(make_shared_log(ONE)) as one:
            await one.append(SHARD, batches[:10])
            async with started(make_shared_log(TWO)) as two:
                offsets = await two.append(SHARD, batches[10:])
                assert same_content(await read_batches(two, SHARD, 0, 20), batches)
            assert [entry.offset for entry in await read_batches(one, SHARD, offsets[0], 10)] == list(offsets)

    async def test_the_end_that_a_node_is_told_can_always_be_reached(self, make_shared_log: MakeLog) -> None:
        """It may lag behind the appends of others. It is never beyond what is committed."""
        batches = numbered_batches(30)

        async def append_each(log: CoordinatorLog) -> None:
            for batch in batches:
                await log.append(SHARD, [batch])

        async with _nodes(make_shared_log, ONE, TWO) as (one, two):
            appending = asyncio.create_task(append_each(one))
            try:
                while not appending.done():
                    seen = await read_all(two, SHARD)  # to the end that `two` names; it waits for ever beyond that
                    assert same_content(seen, batches[: len(seen)])
                    await asyncio.sleep(0)  # a log in memory may have answered without a pause
            finally:
                await appending
            assert same_content(await read_batches(two, SHARD, 0, len(batches)), batches)
            assert same_content(await read_all(two, SHARD), batches)

    async def test_ones_own_append_is_below_the_end_that_the_same_node_names(self, make_shared_log: MakeLog) -> None:
        async with _nodes(make_shared_log, ONE, TWO) as (one, two):
            for number in range(4):
                await one.append(SHARD, [batch_of(b"of one: %d" % number)])
                (offset,) = await two.append(SHARD, [batch_of(b"of two: %d" % number)])
                assert (await two.bounds(SHARD)).end > offset

    async def test_what_one_node_prunes_no_other_node_skips(self, make_shared_log: MakeLog) -> None:
        """It reads it still, or it is told that it is gone."""
        batches = numbered_batches(64)
        async with _nodes(make_shared_log, ONE, TWO) as (one, two):
            offsets = [offset for batch in batches for offset in await one.append(SHARD, [batch])]
            assert len(await read_batches(two, SHARD, 0, 1)) >= 1
            await one.prune(SHARD, offsets[32])
            assert same_content(await read_batches(two, SHARD, offsets[32], 32), batches[32:])
            async with reading(two, SHARD, offsets[0]) as reader:
                try:
                    first = await next_batches(reader)
                except LogOffsetPrunedError:
                    first = []
            assert same_content(first, batches[: len(first)])
            (offset,) = await two.append(SHARD, [batch_of(b"on")])
            assert offset > offsets[-1]
            assert same_content(await read_batches(one, SHARD, offset, 1), [batch_of(b"on")])

    # -- nominations ----------------------------------------------------------------------------------------------

    async def test_all_nodes_come_to_be_told_of_one_leader(self, make_shared_log: MakeLog) -> None:
        async with _nodes(make_shared_log, ONE, TWO) as logs, _hints(*logs) as (first, second):
            await _until_agreed(first, second, among={ONE, TWO})

    async def test_a_candidate_that_withdraws_gives_way_to_another_one(self, make_shared_log: MakeLog) -> None:
        async with _nodes(make_shared_log, ONE, TWO) as (one, two), AsyncExitStack() as stack:
            streams = {ONE: HintStream(one, CLUSTER_SHARD), TWO: HintStream(two, CLUSTER_SHARD)}
            for stream in streams.values():
                await stack.enter_async_context(stream)
            before = await _until_agreed(*streams.values(), among={ONE, TWO})
            assert before.node_id is not None
            await streams[before.node_id].ask_again(candidate=False)
            after = await _until_agreed(*streams.values(), among={ONE, TWO} - {before.node_id})
            assert after.generation > before.generation
            await streams[before.node_id].ask_again(candidate=True)
            await _until_agreed(*streams.values(), among={ONE, TWO})

    async def test_nobody_is_nominated_once_all_have_withdrawn(self, make_shared_log: MakeLog) -> None:
        async with _nodes(make_shared_log, ONE, TWO) as logs, _hints(*logs) as (first, second):
            await _until_agreed(first, second, among={ONE, TWO})
            await first.ask_again(candidate=False)
            await _until_agreed(first, second, among={TWO})
            await second.ask_again(candidate=False)
            await _until_agreed(first, second, among={None})
            await first.ask_again(candidate=True)
            await _until_agreed(first, second, among={ONE})

    async def test_a_node_that_leaves_gives_way_to_another_one(self, make_shared_log: MakeLog) -> None:
        async with AsyncExitStack() as staying, AsyncExitStack() as leaving:
            one = await leaving.enter_async_context(started(make_shared_log(ONE)))
            two = await staying.enter_async_context(started(make_shared_log(TWO)))
            async with _hints(one, two) as hints:
                await hints[1].ask_again(candidate=False)
                before = await _until_agreed(*hints, among={ONE})
                await hints[1].ask_again(candidate=True)
            await leaving.aclose()
            async with _hints(two) as (remaining,):
                after = await _until_agreed(remaining, among={TWO})
            assert after.generation > before.generation

    async def test_generations_grow_with_each_nomination_and_with_restarts(self, make_shared_log: MakeLog) -> None:
        """So a hint that comes late can be told from the newest one."""
        nominated: list[LeadershipHint] = []
        for node_id in (ONE, TWO, ONE):
            async with started(make_shared_log(node_id)) as log, _hints(log) as (hints,):
                nominated.append(await _until_agreed(hints, among={node_id}))
        assert [hint.node_id for hint in nominated] == [ONE, TWO, ONE]
        assert nominated[0].generation < nominated[1].generation < nominated[2].generation

    async def test_a_suspicion_leaves_one_nominated_and_is_no_error_even_where_it_is_wrong(
        self, make_shared_log: MakeLog
    ) -> None:
        async with _nodes(make_shared_log, ONE, TWO) as logs, _hints(*logs) as (first, second):
            before = await _until_agreed(first, second, among={ONE, TWO})
            assert before.node_id is not None
            for log in logs:
                log.suspect(CLUSTER_SHARD, THREE)  # no broker at all
                log.suspect(CLUSTER_SHARD, before.node_id)
            await asyncio.sleep(_SUSPICION_S)
            after = await _until_agreed(first, second, among={ONE, TWO})
            assert after.generation >= before.generation
        for log in logs:
            log.suspect(CLUSTER_SHARD, ONE)


@asynccontextmanager
async def _nodes(make_log: MakeLog, *node_ids: int) -> AsyncIterator[Sequence[CoordinatorLog]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(started(make_log(node_id))) for node_id in node_ids]


@asynccontextmanager
async def _hints(*logs: CoordinatorLog) -> AsyncIterator[Sequence[HintStream]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(HintStream(log, CLUSTER_SHARD)) for log in logs]


async def _until_agreed(*streams: HintStream, among: Collection[int | None]) -> LeadershipHint:
    """Wait until the newest hints of all of them are the same one, of a node among these."""

    def newest() -> LeadershipHint | None:
        hints = {stream.newest for stream in streams}
        found = hints.pop()
        return found if not hints and found is not None and found.node_id in among else None

    async with within(f"all nodes come to be told of one leader among {sorted(among, key=str)}"):
        while (agreed := newest()) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return agreed


def _history(entries: Sequence[LogBatch]) -> list[tuple[int, bytes]]:
    return [(entry.offset, settled_bytes(entry.data)) for entry in entries]
