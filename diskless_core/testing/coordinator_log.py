"""Contract suite of the noun `coordinator_log`: what every log plugin has to pass.

Subclass `CoordinatorLogContract` in a test module and give it the fixture `make_log`; needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from itertools import pairwise
from typing import ClassVar

import pytest

from diskless_core.plugin.coordinator_log import (
    CoordinatorLog,
    CoordinatorLogError,
    EntryRefusedError,
    LogBatch,
    LogBounds,
)
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import DISKLESS, SHARD_KINDS
from diskless_core.testing.coordinator_log_failures import LogFailureContract
from diskless_core.testing.coordinator_log_life import LogLifeContract
from diskless_core.testing.coordinator_log_sharing import LogSharingContract
from diskless_core.testing.coordinator_log_tools import (
    OTHER_SHARD,
    SHARD,
    HangBackend,
    MakeLog,
    batch_of,
    batch_of_size,
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

APPEND_LIMIT_S = 60.0
"""How long an append may take when nothing answers: the 30 seconds of the contract, and what a slow machine needs."""


@pytest.mark.asyncio
class CoordinatorLogContract(LogLifeContract, LogSharingContract, LogFailureContract):
    """Every sentence of `diskless_core.plugin.coordinator_log.CoordinatorLog`, as tests.

    Fixtures and attributes are those of `LogLifeContract` too: `make_log` has to be given, `killable_log` and
    `hang_backend` may be, as those of `LogFailureContract`, and `outlives_instance` and `prunes` may be set to False.

    Attributes:
        largest_tried_entry_bytes: the tests of `max_entry_bytes` are skipped for a log that takes larger ones.
    """

    largest_tried_entry_bytes: ClassVar[int] = 16 << 20

    # -- append ---------------------------------------------------------------------------------------------------

    async def test_a_log_never_written_has_both_bounds_at_0(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            assert await log.bounds(SHARD) == LogBounds(0, 0)

    async def test_append_returns_offsets_that_grow(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            first, second, third = await log.append(SHARD, [batch_of(b"a", b"b", b"c"), batch_of(b"d"), batch_of(b"e")])
            (fourth,) = await log.append(SHARD, [batch_of(b"f")])
            assert 0 <= first < second < third < fourth

    async def test_what_was_acknowledged_is_below_the_high_watermark_at_once(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            for _ in range(5):
                _, last = await log.append(SHARD, [batch_of(b"a"), batch_of(b"b", b"c")])
                assert (await log.bounds(SHARD)).end > last

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
        for entry, records in zip(entries, (2, 1, 3), strict=True):
            assert 1 <= entry.next_offset - entry.offset <= records

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

    async def test_a_cancelled_append_takes_place_wholly_or_not_at_all_and_before_the_next(
        self, make_log: MakeLog
    ) -> None:
        surely = []
        async with started(make_log()) as log:
            for turns in range(1, 5):
                append = asyncio.create_task(log.append(SHARD, [batch_of(b"perhaps %d" % turns)]))
                for _ in range(turns):
                    await asyncio.sleep(0)
                append.cancel()
                async with within("an append that is cancelled ends"):
                    await asyncio.wait([append])
                for number in range(3):
                    surely.append(batch_of(b"surely %d, %d" % (turns, number)))
                    await log.append(SHARD, [surely[-1]])
            entries = await read_all(log, SHARD)
        expected = [settled_bytes(batch) for batch in surely]
        for turns in range(1, 5):
            perhaps = settled_bytes(batch_of(b"perhaps %d" % turns))
            if perhaps in [settled_bytes(entry.data) for entry in entries]:
                expected.insert(expected.index(settled_bytes(surely[3 * turns - 3])), perhaps)
        assert [settled_bytes(entry.data) for entry in entries] == expected, "a cancelled append came later, or in part"

    # -- refusals and silence -------------------------------------------------------------------------------------

    async def test_an_entry_as_large_as_the_log_allows_is_taken(self, make_log: MakeLog) -> None:
        async with started(make_log()) as log:
            largest = batch_of_size(self._max_entry_bytes(log))
            await log.append(SHARD, [largest])
            await log.append(SHARD, [batch_of(b"behind")])
            assert same_content(await read_all(log, SHARD), [largest, batch_of(b"behind")])

    async def test_an_entry_that_is_too_large_is_refused_for_good_and_the_log_goes_on(self, make_log: MakeLog) -> None:
        """The batches before it are appended, it is not and those after it are not either."""
        async with started(make_log()) as log:
            too_large = batch_of_size(self._max_entry_bytes(log) + 1)
            with pytest.raises(EntryRefusedError) as refused:
                await log.append(SHARD, [batch_of(b"0"), batch_of(b"1"), too_large, batch_of(b"3")])
            assert refused.value.position == 2
            await log.append(SHARD, [batch_of(b"next")])
            expected = [batch_of(b"0"), batch_of(b"1"), batch_of(b"next")]
            assert same_content(await read_all(log, SHARD), expected)
            with pytest.raises(EntryRefusedError) as refused:
                await log.append(SHARD, [too_large])
            assert refused.value.position == 0

    def _max_entry_bytes(self, log: CoordinatorLog) -> int:
        if log.max_entry_bytes > self.largest_tried_entry_bytes:
            pytest.skip(f"this log takes entries of {log.max_entry_bytes} bytes")
        return log.max_entry_bytes

    async def test_an_append_that_the_backend_never_answers_ends_all_the_same(
        self, make_log: MakeLog, hang_backend: HangBackend | None
    ) -> None:
        """It is never said to be refused: it may be there, once, or come to be."""
        if hang_backend is None:
            pytest.skip("the backend of this log cannot be made to hang")
        first, perhaps = batch_of(b"first"), batch_of(b"perhaps")
        async with started(make_log()) as log:
            await log.append(SHARD, [first])
            async with hang_backend():
                with pytest.raises(CoordinatorLogError) as failed:
                    async with within("an append ends whatever the backend does", APPEND_LIMIT_S):
                        await log.append(SHARD, [perhaps])
                assert not isinstance(failed.value, EntryRefusedError)
            recovered = await _append_until_taken(log)
            entries = [settled_bytes(entry.data) for entry in await read_all(log, SHARD)]
        assert entries[0] == settled_bytes(first)
        assert entries.count(settled_bytes(perhaps)) <= 1
        assert settled_bytes(recovered) in entries

    # -- shards ---------------------------------------------------------------------------------------------------

    async def test_shards_know_nothing_of_each_other(self, make_log: MakeLog) -> None:
        kinds = [kind.shard(0) for kind in SHARD_KINDS]
        async with started(make_log()) as log:
            for shard in kinds:
                await log.append(shard, [batch_of(str(shard).encode())])
            assert await log.bounds(OTHER_SHARD) == LogBounds(0, 0)
            for shard in kinds:
                assert same_content(await read_all(log, shard), [batch_of(str(shard).encode())])

    async def test_many_shards_append_at_once_each_in_its_own_order(self, make_log: MakeLog) -> None:
        shards = [DISKLESS.shard(index) for index in range(16)]

        async def append_in_turn(shard: ShardId) -> None:
            for number in range(10):
                await log.append(shard, [batch_of(b"%s: %d" % (str(shard).encode(), number))])

        async with started(make_log()) as log:
            async with within("appends to many shards at once end"):
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
            _, second, third = await log.append(SHARD, batches)
            for offset in range(second, third):
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
                for number in range(5):
                    waiting = asyncio.create_task(next_batches(reader))
                    for _ in range(5):
                        await asyncio.sleep(0)  # it has come to the end, and waits there again
                    await log.append(SHARD, [batch_of(b"newer %d" % number)])
                    assert same_content(await waiting, [batch_of(b"newer %d" % number)])

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
                if number % 3 == 0:
                    await asyncio.sleep(0)  # a log in memory may have answered without a pause
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
                async with within("appends go on beside a reader that takes nothing"):
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


async def _append_until_taken(log: CoordinatorLog) -> bytes:
    """Append something new until the log, which may need a moment after trouble, acknowledges it. What that was."""
    async with within("an append is taken once the backend answers again"):
        for number in itertools.count():
            batch = batch_of(b"recovered %d" % number)
            try:
                await log.append(SHARD, [batch])
            except CoordinatorLogError:
                await asyncio.sleep(0.1)
            else:
                return batch
    raise AssertionError
