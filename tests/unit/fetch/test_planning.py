"""The pure parts of Fetch: which ranges to read, where to cut, who comes first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from diskless_core.fetch import planner
from diskless_core.fetch.batch_slicing import cut
from diskless_core.plugin.wal_object_store import MAX_GAP_BYTES
from diskless_core.protocol import record_batch
from diskless_core.wal.runs import Run
from tests.support.produce_path import batch_of


def run_at(object_key: str, start: int, size: int) -> Run:
    return Run(0, 0, object_key, start, size, 0, 0, 0)


pieces = st.builds(
    run_at,
    st.sampled_from(["a", "b"]),
    st.one_of(st.integers(0, 500), st.integers(0, 40 << 20)),
    st.one_of(st.integers(61, 100), st.integers(1 << 19, 1 << 20)),
)


@given(st.lists(pieces, max_size=12))
def test_ranges_cover_every_run_whole_and_read_little_else(runs: list[Run]) -> None:
    found = planner.ranges(runs)
    for run in runs:
        assert any(
            part.object_key == run.object_key
            and part.start <= run.byte_offset
            and run.byte_offset + run.byte_size <= part.end
            for part in found
        )
    assert found == sorted(set(found))
    for part in found:
        mine = sorted(
            (run.byte_offset, run.byte_offset + run.byte_size)
            for run in runs
            if run.object_key == part.object_key
            and part.start <= run.byte_offset
            and run.byte_offset + run.byte_size <= part.end
        )
        assert part.start == mine[0][0]
        assert part.end == max(end for _, end in mine)
        assert part.end - part.start <= planner.MAX_RANGE_BYTES
        reached = mine[0][0]
        for start, end in mine:
            assert start - reached <= MAX_GAP_BYTES
            reached = max(reached, end)


def test_neighbours_become_one_request_and_what_lies_far_apart_does_not() -> None:
    near = [run_at("a", 0, 100), run_at("a", 100 + MAX_GAP_BYTES, 100)]
    assert planner.ranges(near) == [planner.ObjectRange("a", 0, 200 + MAX_GAP_BYTES)]
    far = [run_at("a", 0, 100), run_at("a", 101 + MAX_GAP_BYTES, 100)]
    assert len(planner.ranges(far)) == 2
    assert len(planner.ranges([run_at("a", 0, 100), run_at("b", 100, 100)])) == 2


def test_who_starved_comes_first_and_the_longest_before_the_others() -> None:
    assert planner.starved_first("abcd", []) == [0, 1, 2, 3]
    assert planner.starved_first("abcd", ["d", "b", "gone"]) == [3, 1, 0, 2]


def prepared(counts: list[list[int]]) -> list[tuple[Run, memoryview]]:
    """Runs of batches with so many records each, with offsets from 0."""
    offset, position, runs = 0, 0, []
    for batches in counts:
        data, first = bytearray(), offset
        for count in batches:
            data += batch_of(*([b"v"] * count), base_offset=offset)
            offset += count
        runs.append((Run(first, offset - 1, "o", position, len(data), 0, 0, 0), memoryview(data)))
        position += len(data)
    return runs


@given(
    counts=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=3),
    at=st.integers(0, 100),
    budget=st.integers(-10, 600),
    at_least_one=st.booleans(),
)
def test_a_cut_is_whole_batches_from_the_one_with_the_offset_within_the_budget(
    counts: list[list[int]], at: int, budget: int, at_least_one: bool
) -> None:
    runs = prepared(counts)
    first = runs[0][0]
    offset = at % (first.last_offset + 1)
    slices = cut(runs, offset, budget, at_least_one=at_least_one)
    wanted = [
        (header.base_offset, header.size)
        for _, view in runs
        for _, header in record_batch.walk(view)
        if header.last_offset >= offset
    ]
    expected, left = [], budget
    for base_offset, size in wanted:
        if size > left and not (at_least_one and not expected):
            break
        expected.append(base_offset)
        left -= size
    found = [header.base_offset for part in slices for _, header in record_batch.walk(part)]
    assert found == expected
