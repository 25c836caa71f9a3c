"""The part of the `coordinator_log` contract that is about a log's life: pruning, hints, stopping, restarts, kills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest

from diskless_core.plugin.context import TOOL_NODE_ID
from diskless_core.plugin.coordinator_log import (
    CoordinatorLog,
    CoordinatorLogError,
    LeadershipHint,
    LogBounds,
    LogOffsetPrunedError,
)
from diskless_core.shards import DISKLESS, GROUPS
from diskless_core.testing.coordinator_log_appender import Acknowledged, KillableLog, append_and_kill
from diskless_core.testing.coordinator_log_tools import (
    OTHER_SHARD,
    SHARD,
    HangBackend,
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


@pytest.mark.asyncio
class LogLifeContract:
    """What becomes of a log over its life; `CoordinatorLogContract` includes it.

    Attributes:
        outlives_instance: whether a new instance finds what an earlier one appended.
        prunes: whether `make_log` is configured so that pruning half of 64 KiB moves the start of a log. A log may keep
            what it was allowed to forget, but then that part of it stays untested.
    """

    outlives_instance: ClassVar[bool] = True
    prunes: ClassVar[bool] = True

    @pytest.fixture
    def make_log(self) -> MakeLog:
        """Makes instances, not started, that open one and the same log, which is empty when the test begins.

        The instances of a log that is shared are used at once, each with the node id that it was made with.
        """
        raise NotImplementedError("give the suite a fixture make_log")

    @pytest.fixture
    def killable_log(self) -> KillableLog | None:
        """How a process of its own opens the log of `make_log`; None skips the tests that kill it."""
        return None

    @pytest.fixture
    def hang_backend(self) -> HangBackend | None:
        """Lets the backend of `make_log` fall silent; None skips the test that needs it.

        The log under test may be configured to give an append up after less than 30 seconds.
        """
        return None

    # -- a tool beside the broker ---------------------------------------------------------------------------------

    async def test_a_tool_that_reads_sees_at_each_look_what_was_acknowledged_before(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            appended = [batch_of(b"before")]
            await log.append(SHARD, appended)
            tool = make_log(TOOL_NODE_ID)
            try:
                await tool.start_reading()
            except CoordinatorLogError as error:
                pytest.skip(f"this log can't be read beside the broker that uses it: {error}")
            try:
                for number in range(3):
                    assert same_content(await read_all(tool, SHARD), appended)
                    appended.append(batch_of(b"meanwhile %d" % number))
                    (offset,) = await log.append(SHARD, appended[-1:])
                    assert (await tool.bounds(SHARD)).end > offset
                assert await tool.bounds(OTHER_SHARD) == LogBounds(0, 0)
                await log.append(OTHER_SHARD, appended)
                assert same_content(await read_all(tool, OTHER_SHARD), appended)
            finally:
                async with within("a stop ends"):
                    await tool.stop()

    # -- prune ----------------------------------------------------------------------------------------------------

    async def test_pruning_never_takes_what_is_not_below_the_offset(self, make_log: MakeLog) -> None:
        batches = numbered_batches(64)
        async with started(make_log()) as log:
            offsets = [offset for batch in batches for offset in await log.append(SHARD, [batch])]
            end = (await log.bounds(SHARD)).end
            for position in (0, 1, 31, 63):
                await log.prune(SHARD, offsets[position])
                bounds = await log.bounds(SHARD)
                assert bounds.start <= offsets[position]
                assert bounds.end == end
                entries = await read_batches(log, SHARD, offsets[position], len(batches) - position)
                assert same_content(entries, batches[position:])

    async def test_reading_below_the_start_says_that_it_is_pruned(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            start = await self._prune_half(log)
            for offset in (0, start - 1):
                async with reading(log, SHARD, offset) as reader:
                    with pytest.raises(LogOffsetPrunedError):
                        await next_batches(reader)
            assert (await read_batches(log, SHARD, start, 1))[0].offset == start

    async def test_pruning_reaches_a_reader_that_had_not_come_so_far(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            await log.append(SHARD, [batch_of(b"first")])
            async with reading(log, SHARD, 0) as reader:
                behind = (await next_batches(reader))[-1].next_offset
                start = await self._prune_half(log)
                assert behind < start
                with pytest.raises(LogOffsetPrunedError):
                    await next_batches(reader)

    async def test_pruning_everything_keeps_the_end_and_the_offsets_to_come(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            await log.append(SHARD, numbered_batches(20))
            end = (await log.bounds(SHARD)).end
            await log.prune(SHARD, end + 1000)
            bounds = await log.bounds(SHARD)
            assert bounds.start <= bounds.end == end
            (offset,) = await log.append(SHARD, [batch_of(b"new")])
            assert offset >= end
            assert same_content(await read_batches(log, SHARD, offset, 1), [batch_of(b"new")])

    async def test_pruning_one_shard_leaves_another(self, make_log: MakeLog) -> None:
        batches = numbered_batches(64)
        async with started(make_log()) as log:
            await log.append(OTHER_SHARD, batches)
            await self._prune_half(log)
            assert same_content(await read_all(log, OTHER_SHARD), batches)
            await log.prune(GROUPS.shard(0), 5)
            assert await log.bounds(GROUPS.shard(0)) == LogBounds(0, 0)

    async def test_what_is_pruned_stays_so_after_a_restart(self, make_log: MakeLog) -> None:
        self._require_outliving()
        async with started(make_log()) as log:
            start = await self._prune_half(log)
            entries = await read_all(log, SHARD)
        async with started(make_log()) as log:
            assert (await log.bounds(SHARD)).start == start
            assert await read_all(log, SHARD) == entries

    async def _prune_half(self, log: CoordinatorLog) -> int:
        if not self.prunes:
            pytest.skip("this log keeps what it was allowed to forget")
        for batch in numbered_batches(64):
            await log.append(SHARD, [batch])
        end = (await log.bounds(SHARD)).end
        await log.prune(SHARD, end // 2)
        start = (await log.bounds(SHARD)).start
        assert 0 < start <= end // 2
        return start

    # -- start, stop and leadership -------------------------------------------------------------------------------

    async def test_a_hint_of_who_leads_comes_at_once_and_to_everybody_who_asks(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log, within("a hint of who leads comes at once"):
            for shard in (SHARD, SHARD, OTHER_SHARD):
                assert isinstance(await anext(log.leadership(shard)), LeadershipHint)

    async def test_a_node_that_is_no_candidate_is_not_nominated(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log, within("a node that is no candidate gets a hint too"):
            for shard in (SHARD, OTHER_SHARD):
                hint = await anext(log.leadership(shard, candidate=False))
                assert hint.node_id is None, "there is no other node"

    async def test_stopping_ends_readers_and_hints_and_may_be_repeated(self, make_log: MakeLog) -> None:
        seen = asyncio.Semaphore(0)

        async def exhaust(iterator: AsyncIterator[object]) -> None:
            async for _ in iterator:
                seen.release()

        log = make_log()
        async with started(log):
            await log.append(SHARD, [batch_of(b"a")])
            tasks = [asyncio.create_task(exhaust(log.read(shard, 0))) for shard in (SHARD, OTHER_SHARD)]
            tasks.append(asyncio.create_task(exhaust(log.leadership(SHARD))))
            await log.append(SHARD, [batch_of(b"b")])
            async with within("a reader and a listener get what there is"):
                for _ in range(2):
                    await seen.acquire()
            for _ in range(5):
                await asyncio.sleep(0)  # now they wait for more
        async with within("a stop ends readers and hints"):
            await asyncio.gather(*tasks)
            await log.stop()

    async def test_stop_may_be_called_twice_and_before_start(self, make_log: MakeLog) -> None:
        log = make_log()
        await log.stop()
        await log.stop()

    async def test_nothing_is_appended_once_the_log_is_stopped(self, make_log: MakeLog) -> None:
        log = make_log()
        async with started(log):
            pass
        with pytest.raises(CoordinatorLogError):
            await log.append(SHARD, [batch_of(b"late")])

    async def test_appends_under_way_when_the_log_stops_succeed_or_raise(self, make_log: MakeLog) -> None:
        log = make_log()
        shards = [DISKLESS.shard(index) for index in range(8)]
        async with started(log):
            appends = [asyncio.create_task(log.append(shard, [batch_of(b"a")])) for shard in shards]
            await asyncio.sleep(0)
        async with within("appends under way when the log stops end"):
            outcomes = await asyncio.gather(*appends, return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert all(isinstance(error, CoordinatorLogError) for error in failed)
        if self.outlives_instance:
            async with started(make_log()) as reopened:
                for shard, outcome in zip(shards, outcomes, strict=True):
                    if not isinstance(outcome, BaseException):
                        assert same_content(await read_all(reopened, shard), [batch_of(b"a")])

    async def test_a_log_opened_again_goes_on_where_it_was(self, make_log: MakeLog) -> None:
        self._require_outliving()
        batches = numbered_batches(30)
        for first in range(0, 30, 10):
            async with started(make_log()) as log:
                assert same_content(await read_all(log, SHARD), batches[:first])
                end = (await log.bounds(SHARD)).end
                offsets = await log.append(SHARD, batches[first : first + 10])
                assert offsets[0] >= end
        async with started(make_log()) as log:
            assert same_content(await read_all(log, SHARD), batches)
            assert same_content(await read_batches(log, SHARD, offsets[5], 5), batches[25:])

    async def test_catching_up_with_a_long_log_meets_new_appends_without_a_seam(self, make_log: MakeLog) -> None:
        self._require_outliving()
        batches = numbered_batches(260, size_bytes=10_000)
        async with started(make_log()) as log:
            for first in range(0, 240, 40):
                await log.append(SHARD, batches[first : first + 40])
        async with started(make_log()) as log:
            reader = asyncio.create_task(read_batches(log, SHARD, 0, len(batches)))
            for batch in batches[240:]:
                await log.append(SHARD, [batch])
            assert same_content(await reader, batches)

    async def test_everything_acknowledged_is_there_after_kill_9(
        self, make_log: MakeLog, killable_log: KillableLog | None
    ) -> None:
        if killable_log is None:
            pytest.skip("this log has no process that could be killed")
        acknowledged: Acknowledged = {}
        for lines in (40, 1, 150):
            await append_and_kill(killable_log, lines, acknowledged)
        async with started(make_log()) as log:
            for shard, expected in acknowledged.items():
                entries = await read_all(log, shard)
                found = {entry.offset: settled_bytes(entry.data) for entry in entries}
                assert len(found) == len(entries)
                assert {offset: found.get(offset) for offset in expected} == {
                    offset: settled_bytes(batch) for offset, batch in expected.items()
                }
                assert (await log.append(shard, [batch_of(b"on")]))[0] >= entries[-1].next_offset

    def _require_outliving(self) -> None:
        if not self.outlives_instance:
            pytest.skip("this log ends with its instance")
