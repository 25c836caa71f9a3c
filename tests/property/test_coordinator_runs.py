"""Coalescing and the two places that runs are read from change no answer: compared with plain lists of batches."""

from __future__ import annotations

import asyncio
import uuid
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.coordinator.tables import State
from diskless_core.diskless import run_lookup as runs_module
from diskless_core.diskless import shard as shard_module
from diskless_core.diskless.coalescing import MAX_RUN_BYTES, coalesce
from diskless_core.diskless.commands import CommitBatch, PartitionKey
from diskless_core.diskless.run_lookup import RecentRuns, within_budget
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.diskless.tables import BATCHES
from diskless_core.log.segment_indexer import MAX_OFFSETS
from diskless_core.protocol.file_committed import CommittedBatch
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.wal.runs import Run
from tests.support.commit_model import Appended, assert_runs_are
from tests.support.shards import TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

P0 = PartitionKey(TOPIC, 0)

shapes = st.tuples(
    st.sampled_from([1, 2, 3, 4, 5, MAX_OFFSETS - 3, MAX_OFFSETS]),  # records
    st.sampled_from([61, 100, 400_000, MAX_RUN_BYTES, MAX_RUN_BYTES + 1]),
    st.sampled_from([0, 0, 0, 16]),  # bytes of others before it
    st.sampled_from([0, 0, 0, 5]),  # offsets left out before it
    st.sampled_from([0, 0, 0, 1]),  # timestamp type
    st.integers(0, 100),  # maximum timestamp
)


@given(st.lists(shapes, max_size=12))
def test_runs_hold_exactly_their_batches_and_never_grow_beyond_the_limit(wanted: list[tuple[int, ...]]) -> None:
    position = offset = 0
    committed, expected = [], []
    for count, size, gap_bytes, gap_offsets, timestamp_type, max_timestamp in wanted:
        position, offset = position + gap_bytes, offset + gap_offsets
        latest = 777 if timestamp_type else max_timestamp
        committed.append(
            CommittedBatch(2, position, size, offset, offset + count - 1, 777, latest, timestamp_type, -1, -1, -1, -1)
        )
        one = CommitBatch(TOPIC, 0, position, size, count, max_timestamp, timestamp_type, -1, -1, -1, -1)
        expected.append(Appended("object", one, offset, 777))
        position, offset = position + size, offset + count
    made = list(coalesce("object", committed))
    assert_runs_are(made, expected)
    assert all(run.byte_size <= max(MAX_RUN_BYTES, max(one[1] for one in wanted)) for run in made)
    assert all(run.byte_size <= MAX_RUN_BYTES or run.byte_size == MAX_RUN_BYTES + 1 for run in made)
    assert all(run.last_offset - run.base_offset <= MAX_OFFSETS for run in made)


@settings(max_examples=30, deadline=None)
@given(
    objects=st.lists(st.lists(st.tuples(st.integers(0, 1), shapes), min_size=1, max_size=5), min_size=1, max_size=12),
    flushed_after=st.sets(st.integers(0, 12), max_size=3),
    restarted_after=st.sets(st.integers(0, 12), max_size=2),
    limit=st.sampled_from([1, 3, 1000]),
    page=st.sampled_from([1, 2, 256]),
    budget=st.sampled_from([0, 1, 500, 1 << 22]),
)
def test_every_offset_is_found_wherever_its_run_is(
    objects: list[list[tuple[int, tuple[int, ...]]]],
    flushed_after: set[int],
    restarted_after: set[int],
    limit: int,
    page: int,
    budget: int,
) -> None:
    async def main() -> None:
        node = ShardNode(SharedLog(), VirtualClock(asyncio.get_running_loop()))
        await node.start()
        node.shard._recent._limit = limit
        await node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0, 1])
        expected: dict[int, list[Appended]] = {0: [], 1: []}
        for number, wanted in enumerate(objects):
            batches = [
                batch(partition, size=size, count=count, max_timestamp=latest, timestamp_type=timestamp_type)
                for partition, (count, size, _, _, timestamp_type, latest) in sorted(wanted)
            ]
            request = commit_of(f"{number}", *batches)
            for one, result in zip(request.batches, await node.commit(request), strict=True):
                expected[one.partition].append(Appended(f"{number}", one, result.base_offset, result.append_time))
            if number in flushed_after:
                await asyncio.sleep(1)
            if number in restarted_after:
                await node.stop()
                await node.start()
                node.shard._recent._limit = limit
        for partition, appended in expected.items():
            key = PartitionKey(TOPIC, partition)
            assert_runs_are(await node.read_all(key), appended)
            for one in appended:
                for offset in {one.base_offset, one.base_offset + one.batch.record_count - 1}:
                    found = await node.shard.find(key, offset, budget)
                    if not found.runs:
                        assert budget == 0
                        continue
                    assert found.runs[0].base_offset <= offset <= found.runs[0].last_offset
                    assert found.high_watermark == sum(one.batch.record_count for one in appended)
                    assert len(found.runs) == 1 or sum(run.byte_size for run in found.runs[:-1]) < budget
        await node.stop()

    with (
        patch.object(runs_module, "PAGE_RUNS", page),
        patch.object(shard_module, "PAGE_RUNS", page),
        patch.object(runs_module, "FEW_RUNS", 1),
    ):
        run(main)


@given(
    lengths=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), max_size=30),
    flushed=st.sets(st.integers(0, 30)),
    limit=st.integers(1, 10),
)
def test_memory_keeps_the_newest_runs_without_holes_and_all_that_the_store_lacks(
    lengths: list[tuple[int, int]], flushed: set[int], limit: int
) -> None:
    state = State(DisklessMachine().tables)
    recent = RecentRuns(state, limit)
    ends: dict[int, int] = {}
    noted: dict[int, list[Run]] = {}
    unflushed = 0
    for number, (partition, count) in enumerate(lengths):
        start = ends.get(partition, 0)
        ends[partition] = start + count
        made = Run(start, start + count - 1, f"{number}", 0, 100, 0, 0, 0)
        noted.setdefault(partition, []).append(made)
        writes = {BATCHES: {(TOPIC, partition, start): made}}
        state.commit(writes)
        unflushed += 1
        if number in flushed:
            state.close_page(0)
            state.page_stored()
            unflushed = 0
        recent.note(writes)
        kept = {name: recent.after(PartitionKey(TOPIC, name), 0) for name in noted}
        assert all(list(noted[name][len(noted[name]) - len(found) :]) == list(found) for name, found in kept.items())
        assert sum(map(len, kept.values())) <= max(limit, unflushed)
        assert sum(map(len, kept.values())) >= min(limit, number + 1)
    for partition, runs in noted.items():
        key = PartitionKey(TOPIC, partition)
        kept_from = (recent.after(key, 0) or [Run(ends[partition], -1, "", 0, 0, 0, 0, 0)])[0].base_offset
        for offset in range(ends[partition]):
            found = recent.since(key, offset)
            expected = [run for run in runs if run.last_offset >= offset] if offset >= kept_from else None
            assert (list(found) if found is not None else None) == expected


@given(sizes=st.lists(st.integers(1, 100), min_size=1, max_size=10), budget=st.integers(-1, 1000))
def test_a_budget_is_reached_and_not_overrun_by_more_than_one_run(sizes: list[int], budget: int) -> None:
    runs = [Run(number, number, "o", 0, size, 0, 0, 0) for number, size in enumerate(sizes)]
    taken = within_budget(runs, budget)
    assert list(taken) == runs[: len(taken)]
    assert len(taken) >= 1
    assert sum(run.byte_size for run in taken[:-1]) < max(budget, 1)
    assert len(taken) == len(runs) or sum(run.byte_size for run in taken) >= budget
