"""Segments are cut into tasks of about the same size; states of producers are put together as if read in one go."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.log import producer_snapshot
from diskless_core.log.producer_snapshot import ProducerEntry, ProducerState
from diskless_spark.planning import cut, producers_after


@dataclass(frozen=True)
class Segment:
    partition: int
    number: int
    size_bytes: int


def segments_of(sizes: list[list[int]]) -> list[list[Segment]]:
    return [
        [Segment(partition, number, size) for number, size in enumerate(one)] for partition, one in enumerate(sizes)
    ]


def size(task: list) -> int:
    return sum(segment.size_bytes for part in task for segment in part)


def test_small_neighbours_are_together_and_a_large_partition_is_cut_at_its_segments() -> None:
    partitions = segments_of([[10], [10], [10], [10], [20, 20, 20, 20]])
    tasks = cut(partitions, task_bytes=40, least_tasks=1, can_cut=True)
    assert tasks == [
        [partitions[0], partitions[1], partitions[2], partitions[3]],
        [partitions[4][:2]],
        [partitions[4][2:]],
    ]


def test_a_partition_that_must_not_be_cut_is_one_task() -> None:
    partitions = segments_of([[20, 20, 20, 20], [10], [10]])
    assert cut(partitions, task_bytes=40, least_tasks=1, can_cut=False) == [
        [partitions[0]],
        [partitions[1], partitions[2]],
    ]


def test_no_core_is_idle_that_could_have_a_segment() -> None:
    partitions = segments_of([[10], [10], [10], [10]])
    assert len(cut(partitions, task_bytes=1000, least_tasks=3, can_cut=True)) == 3
    assert len(cut(partitions, task_bytes=1000, least_tasks=99, can_cut=True)) == 4


def test_nothing_is_no_task() -> None:
    assert cut([], task_bytes=1, least_tasks=4, can_cut=True) == []


SIZES = st.lists(st.lists(st.integers(1, 200), max_size=8), max_size=8)


@given(SIZES, st.integers(1, 500), st.integers(1, 9), st.booleans())
@settings(deadline=None)
def test_every_segment_is_in_one_task_neighbours_together_and_no_task_is_much_larger_than_it_should_be(
    sizes: list[list[int]], task_bytes: int, least_tasks: int, can_cut: bool
) -> None:
    partitions = segments_of(sizes)
    tasks = cut(partitions, task_bytes=task_bytes, least_tasks=least_tasks, can_cut=can_cut)
    in_order = sorted(tasks, key=lambda task: (task[0][0].partition, task[0][0].number))
    flat = [segment for task in in_order for part in task for segment in part]
    assert flat == [segment for one in partitions for segment in one]
    assert all(len({segment.partition for segment in part}) == 1 for task in tasks for part in task)
    assert [size(task) for task in tasks] == sorted(map(size, tasks), reverse=True)
    largest = max((max(one) if can_cut else sum(one) for one in sizes if one), default=0)
    assert all(size(task) <= max(task_bytes, largest) + largest for task in tasks)
    if not can_cut:
        whole = [part for task in tasks for part in task]
        assert len(whole) == len([one for one in sizes if one])


def entry(producer: int, offset: int, timestamp: int) -> ProducerEntry:
    return ProducerEntry(producer, 0, offset, offset, 0, timestamp)


BATCHES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 100)), min_size=1, max_size=5)


@given(st.lists(BATCHES, min_size=1, max_size=6), st.integers(1, 60))
@settings(deadline=None)
def test_states_of_segments_make_the_state_that_one_reading_of_all_would_have(
    segments: list[list[tuple[int, int]]], expiration_ms: int
) -> None:
    """Each batch is (producer, timestamp), in any order of time."""
    offset, read, put_together = 0, dict[int, ProducerEntry](), dict[int, ProducerEntry]()
    for batches in segments:
        noted: ProducerState = {}
        for producer, timestamp in batches:
            read[producer] = noted[producer] = entry(producer, offset, timestamp)
            offset += 1
        latest = max(timestamp for _, timestamp in batches)
        read = producer_snapshot.without_expired(read, latest, expiration_ms)
        put_together = producers_after(put_together, noted, max_timestamp_ms=latest, expiration_ms=expiration_ms)
        assert put_together == read
