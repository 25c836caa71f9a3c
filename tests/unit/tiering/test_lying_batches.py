"""Batches whose headers claim more records than they have, in a log from an earlier release: compaction goes on."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest

from diskless_core.diskless import coalescing
from diskless_core.log.segment_indexer import MAX_OFFSETS
from diskless_core.plugin.segment_compaction import SegmentCompactionError
from diskless_core.protocol import record_batch
from diskless_core.tiering.compaction import CompactionRequest
from tests.support.batches import batch_of, with_header
from tests.support.compaction_world import CompactionWorld
from tests.support.guarantees import guarantee
from tests.support.produce_path import ProducePath, key_of
from tests.support.stored_batches import store_batches
from tests.support.virtual_time import START_MS, run

MOST = 2**31 - 1
"""Records that a header can claim."""

GOOD = batch_of(b"one", b"two", timestamp_ms=START_MS)
LYING = with_header(GOOD, record_count=MOST, last_offset_delta=MOST - 1)

of_any_span = patch.object(coalescing, "MAX_OFFSETS", 2**63)
"""Runs as earlier releases made them."""


def checked_segments(world: CompactionWorld, *batches: bytes) -> list[tuple[int, int]]:
    """The offsets of the segments, which have exactly these batches, with the offsets that they were given."""
    found, headers = [], list[Any]()
    for tiered, segment_id in zip(world.shard.tiered(key_of(0)), world.tiered_ids(), strict=True):
        found.append((tiered.start_offset, tiered.end_offset))
        log = world.remote.segments[segment_id].log
        for position, header in record_batch.walk(log):
            assert tiered.start_offset <= header.base_offset <= header.last_offset <= tiered.end_offset
            assert header.last_offset - tiered.start_offset <= MAX_OFFSETS
            headers.append(header)
            assert log[position + 12 : position + header.size] == batches[len(headers) - 1][12:]
    assert len(headers) == len(batches)
    assert all(after.base_offset == before.last_offset + 1 for before, after in pairwise(headers))
    return found


@guarantee(
    "Reads",
    "Batches whose headers claim more records than they have do not stop compaction: a segment ends where offsets "
    "would not fit the indexes.",
)
@pytest.mark.parametrize("as_earlier_releases", [False, True])
def test_batches_that_claim_all_the_offsets_that_there_are_go_into_segments_of_their_own(
    as_earlier_releases: bool,
) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            batches = [GOOD, LYING, LYING, GOOD, GOOD]
            if as_earlier_releases:
                with of_any_span:
                    await store_batches(path, *batches)
            else:
                await store_batches(path, *batches)
            runs = await world.shard.runs_from(key_of(0), 0)
            assert (len(runs) == 1) is as_earlier_releases
            report = await world.compact()
            assert report.failures == []
            found = checked_segments(world, *batches)
            assert found[0][0] == 0
            assert found[-1][1] == 2 * MOST + 5
            head = world.shard.head(key_of(0))
            assert head is not None
            assert head.local_start_offset == head.next_offset
            assert head.local_start_bytes == head.appended_bytes
            await store_batches(path, GOOD)
            assert (await world.compact()).failures == []
            checked_segments(world, *batches, GOOD)

    run(main)


def test_a_compaction_goes_on_within_a_run_of_which_a_segment_has_the_first_batches() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            with of_any_span:
                await store_batches(path, LYING, LYING, GOOD)
            await world.compact(everything=False)
            assert checked_segments(world, LYING, LYING) == [(0, MOST - 1), (MOST, 2 * MOST - 1)]
            assert (await world.compact()).failures == []
            assert checked_segments(world, LYING, LYING, GOOD)

    run(main)


def test_what_a_segment_has_of_a_run_does_not_count_once_records_behind_it_are_deleted() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            with of_any_span:
                await store_batches(path, LYING, LYING, GOOD)
            await world.compact(everything=False)
            await world.shard.delete_records(key_of(0), 2 * MOST + 1)
            head = world.shard.head(key_of(0))
            assert head is not None
            assert head.size_bytes == len(GOOD)
            assert (await world.compact()).failures == []
            assert [one.end_offset for one in world.shard.tiered(key_of(0))] == [2 * MOST + 1]

    run(main)


def test_a_run_that_fits_no_segment_and_cannot_be_read_is_named() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            with of_any_span:
                await store_batches(path, LYING, LYING)
            [key] = path.objects.objects
            path.objects.objects[key] = path.objects.objects[key][:100]
            [failure] = (await world.compact()).failures
            assert f"byte 16 of {key}" in failure
            with pytest.raises(SegmentCompactionError, match="cannot be cut"):
                [_ async for _ in world.compactor().plan(CompactionRequest(everything=True))]

    run(main)
