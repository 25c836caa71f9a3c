"""Contract suite of the noun `coordinator_log`: what every log plugin has to pass.

Subclass `CoordinatorLogContract` in a test module and give it the fixture `make_log`; needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import ClassVar

import pytest

from diskless_core.plugin.coordinator_log import (
    CoordinatorLog,
    CoordinatorLogError,
    LogBatch,
    LogBounds,
    LogOffsetPrunedError,
)
from diskless_core.plugin.shard import ShardId, ShardKind
from diskless_core.protocol.record_batch import read_header
from diskless_core.testing.coordinator_log_appender import Acknowledged, KillableLog, append_and_kill
from diskless_core.testing.coordinator_log_tools import (
    OTHER_SHARD,
    SHARD,
    TIMEOUT_S,
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


@pytest.mark.asyncio
class CoordinatorLogContract:
    """Every sentence of `diskless_core.plugin.coordinator_log.CoordinatorLog`, as tests.

    Attributes:
        outlives_instance: whether a new instance finds what an earlier one appended.
        prunes: whether `make_log` is configured so that pruning half of 64 KiB moves the start of a log. A log may keep
            what it was allowed to forget, but then that part of it stays untested.
    """

    outlives_instance: ClassVar[bool] = True
    prunes: ClassVar[bool] = True

    @pytest.fixture
    def make_log(self) -> MakeLog:
        """Makes instances, not started, that open one and the same log, which is empty when the test begins."""
        raise NotImplementedError("give the suite a fixture make_log")

    @pytest.fixture
    def killable_log(self) -> KillableLog | None:
        """How a process of its own opens the log of `make_log`; None skips the tests that kill it."""
        return None

    # -- append ---------------------------------------------------------------------------------------------------

    async def test_a_log_never_written_has_both_bounds_at_0(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            assert await log.bounds(SHARD) == LogBounds(0, 0)

    async def test_append_returns_base_offsets_that_leave_room_for_every_record(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            first, second, third = await log.append(SHARD, [batch_of(b"a", b"b", b"c"), batch_of(b"d"), batch_of(b"e")])
            assert first >= 0
            assert second >= first + 3
            assert third >= second + 1
            (fourth,) = await log.append(SHARD, [batch_of(b"f")])
            assert fourth >= third + 1

    async def test_what_was_acknowledged_is_below_the_high_watermark_at_once(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            for _ in range(5):
                _, last = await log.append(SHARD, [batch_of(b"a"), batch_of(b"b", b"c")])
                assert (await log.bounds(SHARD)).end >= last + 2

    async def test_batches_come_back_in_order_with_the_offsets_that_append_returned(self, make_log: MakeLog) -> None:
        batches = [batch_of(*(b"%d" % record for record in range(1 + number % 4))) for number in range(20)]
        async with started(make_log()) as log:
            offsets = [*await log.append(SHARD, batches[:7]), *await log.append(SHARD, batches[7:])]
            entries = await read_all(log, SHARD)
        assert same_content(entries, batches)
        assert [entry.offset for entry in entries] == offsets

    async def test_an_entry_says_where_the_following_one_may_begin(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            await log.append(SHARD, [batch_of(b"a", b"b"), batch_of(b"c"), batch_of(b"d", b"e", b"f")])
            entries = await read_all(log, SHARD)
            assert (await log.bounds(SHARD)).end >= entries[-1].next_offset
        for entry, following in pairwise(entries):
            assert entry.next_offset <= following.offset
        for entry in entries:
            assert entry.next_offset >= entry.offset + read_header(entry.data).record_count

    async def test_appending_nothing_is_no_error(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            assert list(await log.append(SHARD, [])) == []
            assert await log.bounds(SHARD) == LogBounds(0, 0)

    async def test_a_batch_of_a_mebibyte_comes_back_unchanged(self, make_log: MakeLog) -> None:
        batches = [batch_of(b"before"), batch_of(bytes(range(256)) * 3900), batch_of(b"behind")]
        async with started(make_log()) as log:
            await log.append(SHARD, batches)
            assert same_content(await read_all(log, SHARD), batches)

    @pytest.mark.parametrize(
        "broken",
        [
            pytest.param(lambda batch: batch[:-1], id="truncated"),
            pytest.param(lambda batch: batch + batch, id="two in one"),
            pytest.param(lambda batch: batch[:-1] + bytes([batch[-1] ^ 1]), id="wrong CRC"),
            pytest.param(lambda batch: batch[:20], id="too short"),
        ],
    )
    async def test_what_is_no_intact_batch_is_refused_and_harms_nothing(
        self, make_log: MakeLog, broken: Callable[[bytes], bytes]
    ) -> None:
        async with started(make_log()) as log:
            await log.append(SHARD, [batch_of(b"before")])
            with pytest.raises(CoordinatorLogError):
                await log.append(SHARD, [broken(batch_of(b"broken"))])
            await log.append(SHARD, [batch_of(b"behind")])
            assert same_content(await read_all(log, SHARD), [batch_of(b"before"), batch_of(b"behind")])

    async def test_a_cancelled_append_takes_place_wholly_or_not_at_all(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            append = asyncio.create_task(log.append(SHARD, [batch_of(b"perhaps")]))
            await asyncio.sleep(0)
            append.cancel()
            await asyncio.wait([append])
            await log.append(SHARD, [batch_of(b"surely")])
            entries = await read_all(log, SHARD)
        assert same_content(entries, [batch_of(b"surely")]) or same_content(
            entries, [batch_of(b"perhaps"), batch_of(b"surely")]
        )

    # -- shards ---------------------------------------------------------------------------------------------------

    async def test_shards_know_nothing_of_each_other(self, make_log: MakeLog) -> None:
        kinds = [ShardId(kind, 0) for kind in ShardKind]
        async with started(make_log()) as log:
            for shard in kinds:
                await log.append(shard, [batch_of(str(shard).encode())])
            assert await log.bounds(OTHER_SHARD) == LogBounds(0, 0)
            for shard in kinds:
                assert same_content(await read_all(log, shard), [batch_of(str(shard).encode())])

    async def test_many_shards_append_at_once_each_in_its_own_order(self, make_log: MakeLog) -> None:
        shards = [ShardId(ShardKind.DISKLESS, index) for index in range(16)]

        async def append_in_turn(shard: ShardId) -> None:
            for number in range(10):
                await log.append(shard, [batch_of(b"%s: %d" % (str(shard).encode(), number))])

        async with started(make_log()) as log:
            async with asyncio.timeout(TIMEOUT_S):
                await asyncio.gather(*(append_in_turn(shard) for shard in shards))
            for shard in shards:
                expected = [batch_of(b"%s: %d" % (str(shard).encode(), number)) for number in range(10)]
                assert same_content(await read_all(log, shard), expected)

    async def test_a_refused_append_to_one_shard_does_not_disturb_another(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            refused, _ = await asyncio.gather(
                log.append(SHARD, [b"no batch"]),
                log.append(OTHER_SHARD, [batch_of(b"fine")]),
                return_exceptions=True,
            )
            assert isinstance(refused, CoordinatorLogError)
            assert same_content(await read_all(log, OTHER_SHARD), [batch_of(b"fine")])

    # -- read -----------------------------------------------------------------------------------------------------

    async def test_reading_inside_a_batch_begins_with_that_whole_batch(self, make_log: MakeLog) -> None:
        batches = [batch_of(b"a", b"b"), batch_of(b"c", b"d", b"e"), batch_of(b"f")]
        async with started(make_log()) as log:
            _, second, _ = await log.append(SHARD, batches)
            for offset in (second, second + 1, second + 2):
                assert same_content(await read_batches(log, SHARD, offset, 2), batches[1:])

    async def test_reading_from_any_entry_gives_the_rest_of_the_log(self, make_log: MakeLog) -> None:
        batches = numbered_batches(40, size_bytes=3000)
        async with started(make_log()) as log:
            offsets = [offset for batch in batches for offset in await log.append(SHARD, [batch])]
            for position in (0, 1, 13, 26, 39):
                entries = await read_batches(log, SHARD, offsets[position], len(batches) - position)
                assert same_content(entries, batches[position:])

    async def test_a_reader_at_the_end_waits_and_wakes_at_the_next_append(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            await log.append(SHARD, [batch_of(b"old")])
            end = (await log.bounds(SHARD)).end
            async with reading(log, SHARD, end) as reader:
                waiting = asyncio.create_task(next_batches(reader))
                await log.append(OTHER_SHARD, [batch_of(b"of another shard")])
                assert not waiting.done()
                await log.append(SHARD, [batch_of(b"new")])
                assert same_content(await waiting, [batch_of(b"new")])

    async def test_a_reader_may_be_there_before_the_first_append(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log, reading(log, SHARD, 0) as reader:
            waiting = asyncio.create_task(next_batches(reader))
            await asyncio.sleep(0)
            await log.append(SHARD, [batch_of(b"first")])
            assert same_content(await waiting, [batch_of(b"first")])

    async def test_a_reader_ahead_of_the_log_gets_nothing_below_its_offset(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            await log.append(SHARD, [batch_of(b"0")])
            end = (await log.bounds(SHARD)).end
            async with reading(log, SHARD, end + 1) as reader:
                waiting = asyncio.create_task(next_batches(reader))
                await log.append(SHARD, [batch_of(b"below")])
                await log.append(SHARD, [batch_of(b"at last")])
                assert settled_bytes((await waiting)[0].data) == settled_bytes(batch_of(b"at last"))

    async def test_readers_never_skip_and_never_repeat_while_appends_go_on(self, make_log: MakeLog) -> None:
        batches = numbered_batches(60)

        async def read_from_the_start() -> list[LogBatch]:
            return await read_batches(log, SHARD, 0, len(batches))

        async with started(make_log()) as log:
            readers = [asyncio.create_task(read_from_the_start()) for _ in range(2)]
            for number, batch in enumerate(batches):
                await log.append(SHARD, [batch])
                if number % 20 == 19:
                    readers.append(asyncio.create_task(read_from_the_start()))
            for reader in readers:
                assert same_content(await reader, batches)

    async def test_a_reader_that_takes_nothing_holds_nobody_up(self, make_log: MakeLog) -> None:
        batches = numbered_batches(60)
        async with started(make_log()) as log:
            await log.append(SHARD, batches[:1])
            async with reading(log, SHARD, 0) as slow:
                entries = list(await next_batches(slow))
                for batch in batches[1:]:
                    await log.append(SHARD, [batch])
                assert same_content(await read_all(log, SHARD), batches)
                while len(entries) < len(batches):
                    entries.extend(await next_batches(slow))
            assert same_content(entries, batches)

    async def test_a_cancelled_reader_leaves_the_others_alone(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log, reading(log, SHARD, 0) as staying, reading(log, SHARD, 0) as leaving:
            cancelled, kept = asyncio.create_task(next_batches(leaving)), asyncio.create_task(next_batches(staying))
            await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.wait([cancelled])
            await log.append(SHARD, [batch_of(b"a")])
            assert same_content(await kept, [batch_of(b"a")])

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
            await log.prune(ShardId(ShardKind.GROUPS, 0), 5)
            assert await log.bounds(ShardId(ShardKind.GROUPS, 0)) == LogBounds(0, 0)

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
        async with started(make_log()) as log, asyncio.timeout(TIMEOUT_S):
            for shard in (SHARD, SHARD, OTHER_SHARD):
                assert isinstance(await anext(log.leadership(shard)), int | None)

    async def test_stopping_ends_readers_and_hints_and_may_be_repeated(self, make_log: MakeLog) -> None:
        async def exhaust(iterator: AsyncIterator[object]) -> None:
            async for _ in iterator:
                pass

        log = make_log()
        async with started(log):
            await log.append(SHARD, [batch_of(b"a")])
            tasks = [asyncio.create_task(exhaust(log.read(shard, 0))) for shard in (SHARD, OTHER_SHARD)]
            tasks.append(asyncio.create_task(exhaust(log.leadership(SHARD))))
            await log.append(SHARD, [batch_of(b"b")])
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(*tasks)
            await log.stop()

    async def test_nothing_is_appended_once_the_log_is_stopped(self, make_log: MakeLog) -> None:
        log = make_log()
        async with started(log):
            pass
        with pytest.raises(CoordinatorLogError):
            await log.append(SHARD, [batch_of(b"late")])

    async def test_appends_under_way_when_the_log_stops_succeed_or_raise(self, make_log: MakeLog) -> None:
        log = make_log()
        shards = [ShardId(ShardKind.DISKLESS, index) for index in range(8)]
        async with started(log):
            appends = [asyncio.create_task(log.append(shard, [batch_of(b"a")])) for shard in shards]
            await asyncio.sleep(0)
        async with asyncio.timeout(TIMEOUT_S):
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
