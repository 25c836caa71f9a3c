"""ListOffsets' special offsets where records are in segments, and what it says when segments cannot be read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from diskless_core.diskless.commands import ListedOffset, SpecialTimestamp
from diskless_core.diskless.trimming import trim_page
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.remote_storage import Operation
from tests.support.guarantees import guarantee
from tests.support.produce_path import batch_of, key_of
from tests.support.tiered_path import TieredPath, small_chunks
from tests.support.virtual_time import START_MS, run

KEY = key_of(0)


async def fill(path: TieredPath, count: int) -> None:
    """Batches of one record, a millisecond apart."""
    for number in range(count):
        await path.produce((0, batch_of(b"value", timestamp_ms=START_MS + number)))


async def specials(path: TieredPath, *, is_tiered: bool) -> list[int]:
    """Earliest, earliest local, latest, latest tiered, earliest pending upload."""
    path.is_tiered = is_tiered
    asked = (
        SpecialTimestamp.EARLIEST,
        SpecialTimestamp.EARLIEST_LOCAL,
        SpecialTimestamp.LATEST,
        SpecialTimestamp.LATEST_TIERED,
        SpecialTimestamp.EARLIEST_PENDING_UPLOAD,
    )
    listed = [await path.lookup.list(path.node.shard, KEY, special) for special in asked]
    assert all((one.error, one.timestamp) == (ErrorCode.NONE, -1) for one in listed)
    return [one.offset for one in listed]


@guarantee(
    "Reads",
    "ListOffsets knows where WAL objects begin (-4), the last offset in segments (-5) and the first that goes there "
    "next (-6); without segments the last is -1, and so is the next unless the topic is tiered.",
)
def test_special_offsets_follow_the_tiers() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 10)
            assert await specials(path, is_tiered=False) == [0, 0, 10, -1, -1]
            assert await specials(path, is_tiered=True) == [0, 0, 10, -1, 0]
            await path.tier(through=5)
            for is_tiered in (False, True):
                assert await specials(path, is_tiered=is_tiered) == [0, 6, 10, 5, 6]
            await path.node.shard.delete_records(KEY, 3)
            assert await specials(path, is_tiered=True) == [3, 6, 10, 5, 6]
            await path.node.shard.delete_records(KEY, 8)
            assert await specials(path, is_tiered=True) == [8, 8, 10, -1, 8]

    run(main)


def test_by_time_few_bytes_are_read_whatever_the_size_of_the_segments() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 200)
            for through in (99, 199):
                await path.tier(through=through, interval_bytes=0)
            with small_chunks(500):
                listed = await path.lookup.list(path.node.shard, KEY, START_MS + 150)
            assert listed == ListedOffset(timestamp=START_MS + 150, offset=150)
            assert path.storage.calls[Operation.FETCH] <= 2
            assert path.storage.calls[Operation.FETCH_INDEX] == 2

    run(main)


@pytest.mark.parametrize("damage", ["missing", "torn", "of another segment"])
def test_a_time_index_that_is_missing_or_damaged_is_built_again(damage: str) -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 40)
            metadata = await path.tier(through=29, interval_bytes=100)
            indexes = path.storage.segments[metadata.segment_id].indexes
            match damage:
                case "missing":
                    del indexes[IndexType.TIMESTAMP]
                case "torn":
                    indexes[IndexType.TIMESTAMP] = indexes[IndexType.TIMESTAMP][:-1]
                case "of another segment":
                    await fill(path, 40)
                    other = await path.tier(interval_bytes=100)
                    indexes[IndexType.TIMESTAMP] = path.storage.segments[other.segment_id].indexes[IndexType.TIMESTAMP]
            for number in (0, 17, 29):
                listed = await path.lookup.list(path.node.shard, KEY, START_MS + number)
                assert listed == ListedOffset(timestamp=START_MS + number, offset=number)

    run(main)


@pytest.mark.parametrize("timestamp", [START_MS + 5, SpecialTimestamp.MAX_TIMESTAMP])
@pytest.mark.parametrize("has_segments", [False, True])
def test_records_that_go_into_a_segment_while_they_are_looked_up_are_found(timestamp: int, has_segments: bool) -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 6)
            await path.produce((0, batch_of(b"value", timestamp_ms=START_MS)))
            if has_segments:
                await path.tier(through=3)
            begun = 0

            async def after_a_swap(look_up: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
                nonlocal begun
                begun += 1
                if begun == 1:
                    await path.tier(through=5)
                    await shard.flush()
                    await shard.with_store(lambda store: trim_page(store, 0))
                return await look_up(*arguments)

            shard = path.node.shard
            with (
                patch.object(shard, "first_run_at_or_after", partial(after_a_swap, shard.first_run_at_or_after)),
                patch.object(shard, "latest_runs", partial(after_a_swap, shard.latest_runs)),
            ):
                listed = await path.lookup.list(shard, KEY, timestamp)
            assert listed == ListedOffset(timestamp=START_MS + 5, offset=5)
            assert begun > 0

    run(main)


def test_segments_that_cannot_be_read_are_an_error_and_those_that_need_not_be_are_none() -> None:
    async def main() -> None:
        async with TieredPath(chunk_cache_bytes=0) as path:
            await fill(path, 20)
            metadata = await path.tier(through=9)
            failed = ListedOffset(ErrorCode.KAFKA_STORAGE_ERROR)
            with path.storage.failing(Operation.FETCH):
                assert await path.lookup.list(path.node.shard, KEY, START_MS + 5) == failed
                after = ListedOffset(timestamp=START_MS + 15, offset=15)
                assert await path.lookup.list(path.node.shard, KEY, START_MS + 15) == after
                latest = ListedOffset(timestamp=START_MS + 19, offset=19)
                assert await path.lookup.list(path.node.shard, KEY, SpecialTimestamp.MAX_TIMESTAMP) == latest
            stored = path.storage.segments[metadata.segment_id]
            stored.log = bytes(len(stored.log))
            corrupt = ListedOffset(ErrorCode.CORRUPT_MESSAGE)
            assert await path.lookup.list(path.node.shard, KEY, START_MS + 5) == corrupt
            del path.storage.segments[metadata.segment_id]
            assert await path.lookup.list(path.node.shard, KEY, START_MS + 5) == failed

    run(main)
