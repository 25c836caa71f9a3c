"""Which remote segment has a record, whatever copies there are and in whatever order they came."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.remote_log.metadata import RemoteLogSegmentState
from diskless_core.remote_log.partition_log import PartitionLog
from diskless_core.remote_log.states import RemoteLogStateError
from diskless_core.testing.remote_log_metadata_tools import segment, update
from tests.support.remote_log import Life, epoch_range, lives

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED


def copy_finished(log, metadata, after_ms=1):
    log.apply(metadata)
    log.apply(update(metadata, FINISHED, after_ms=after_ms))


def copies_found(log, offsets, epoch=0):
    found = [log.find(epoch, offset) for offset in offsets]
    return [metadata and metadata.segment_id.id.int for metadata in found]


def test_a_segment_is_found_once_it_is_copied_and_until_it_is_deleted():
    log = PartitionLog()
    copied = segment(1, 10, 19)
    seen = []
    for event in (copied, *(update(copied, state) for state in (FINISHED, DELETING, DELETED))):
        assert log.apply(event)
        seen.append((copies_found(log, [15]), log.highest_offset(0), len(log.segments())))
    assert seen == [([None], None, 1), ([1], 19, 1), ([None], None, 1), ([None], None, 0)]
    assert len(log) == 0


def test_an_event_that_changes_nothing_says_so_and_one_that_cannot_be_changes_nothing():
    log = PartitionLog()
    assert log.apply(segment(1, 0, 9))
    assert not log.apply(segment(1, 0, 9))
    with pytest.raises(RemoteLogStateError):
        log.apply(update(segment(1, 0, 9), DELETED))
    assert not log.apply(update(segment(2, 0, 9), DELETED))
    assert log.segments() == [segment(1, 0, 9)]


def test_offsets_between_and_beside_segments_are_in_none():
    log = PartitionLog()
    copy_finished(log, segment(1, 10, 19))
    copy_finished(log, segment(2, 30, 39))
    assert copies_found(log, [9, 10, 19, 20, 29, 30, 39, 40]) == [None, 1, 1, None, None, 2, 2, None]
    assert copies_found(log, [15], epoch=1) == [None]


def test_a_segment_has_the_offsets_of_each_epoch_up_to_the_next():
    log = PartitionLog()
    copy_finished(log, segment(1, 0, 29, epochs={2: 0, 3: 10, 5: 20}))
    copy_finished(log, segment(2, 30, 39, epochs={5: 30}))
    assert copies_found(log, [0, 9, 10], epoch=2) == [1, 1, None]
    assert copies_found(log, [9, 10, 19, 20], epoch=3) == [None, 1, 1, None]
    assert copies_found(log, [19, 20, 30, 39, 40], epoch=5) == [None, 1, 2, 2, None]
    assert [log.highest_offset(epoch) for epoch in (1, 2, 3, 4, 5)] == [None, 9, 19, None, 39]
    assert [m.segment_id.id.int for m in log.segments(5)] == [1, 2]
    assert [m.segment_id.id.int for m in log.segments(3)] == [1]


def test_a_later_copy_of_the_same_records_replaces_the_earlier_which_stays_listed():
    log = PartitionLog()
    copy_finished(log, segment(9, 0, 9), after_ms=1)
    copy_finished(log, segment(3, 0, 9), after_ms=2)
    assert copies_found(log, [0, 9]) == [3, 3]
    assert [m.segment_id.id.int for m in log.segments()] == [3, 9]


def test_a_merged_segment_replaces_the_small_ones_and_they_come_back_should_it_go():
    log = PartitionLog()
    for copy in range(10):
        copy_finished(log, segment(copy, copy * 10, copy * 10 + 9))
    merged = segment(50, 10, 59)
    copy_finished(log, merged, after_ms=2)
    middles = range(5, 100, 10)
    assert copies_found(log, middles) == [0, 50, 50, 50, 50, 50, 6, 7, 8, 9]
    assert len(log.segments()) == 11
    log.apply(update(merged, DELETING))
    assert copies_found(log, middles) == list(range(10))


def test_a_shorter_copy_that_comes_later_hides_no_records_of_the_longer():
    log = PartitionLog()
    copy_finished(log, segment(1, 0, 99), after_ms=1)
    shorter = segment(2, 0, 49)
    copy_finished(log, shorter, after_ms=2)
    assert copies_found(log, [0, 49, 50, 99]) == [1, 1, 1, 1]
    log.apply(update(shorter, DELETING))
    log.apply(update(shorter, DELETED))
    assert copies_found(log, [0, 49, 50, 99]) == [1, 1, 1, 1]


def test_lists_are_by_start_offset():
    log = PartitionLog()
    for copy, start in enumerate((30, 10, 20, 0)):
        log.apply(segment(copy, start, start + 5))
    assert [metadata.start_offset for metadata in log.segments()] == [0, 10, 20, 30]
    assert [metadata.start_offset for metadata in log.segments(0)] == [0, 10, 20, 30]
    assert log.segments(1) == []


def has(metadata, epoch, offset):
    ends = epoch_range(metadata, epoch)
    return ends is not None and ends[0] <= offset <= ends[1]


class Naive:
    """All segments in a dict, and each question by looking at every one."""

    def __init__(self, log):
        self.known = {metadata.segment_id: metadata for metadata in log.segments()}

    def readable(self, epoch):
        return [m for m in self.known.values() if m.state is FINISHED and epoch_range(m, epoch)]

    def find(self, epoch, offset):
        found = [m for m in self.readable(epoch) if has(m, epoch, offset)]
        return max(
            found,
            key=lambda m: (epoch_range(m, epoch)[1], m.event_timestamp_ms, m.segment_id.id),
            default=None,
        )

    def highest_offset(self, epoch):
        return max((epoch_range(m, epoch)[1] for m in self.readable(epoch)), default=None)


@settings(deadline=None, max_examples=150)
@given(lives(), st.randoms(use_true_random=False))
def test_whatever_happens_it_answers_as_a_look_at_every_segment_would(made: list[Life], rng: random.Random):
    log = PartitionLog()
    expected = {}
    steps = [(life, step) for life in made for step in range(len(life.events))]
    rng.shuffle(steps)
    next_step = dict.fromkeys(range(len(made)), 0)
    for life, _ in steps:
        event = life.events[next_step[life.number]]
        next_step[life.number] += 1
        log.apply(event)
        expected[life.number] = life.state_after(next_step[life.number])
        naive = Naive(log)
        assert {m.segment_id.id.int: m.state for m in log.segments()} == {
            number: state for number, state in expected.items() if state is not DELETED
        }
        for epoch in range(3):
            assert log.highest_offset(epoch) == naive.highest_offset(epoch)
            for offset in range(0, 45, 2):
                assert log.find(epoch, offset) == naive.find(epoch, offset)
            assert log.segments(epoch) == [m for m in log.segments() if epoch in m.segment_leader_epochs]
    loaded = list(log.segments())
    rng.shuffle(loaded)
    again = PartitionLog(loaded)
    assert again.segments() == log.segments()
    for epoch in range(3):
        assert [again.find(epoch, offset) for offset in range(45)] == [log.find(epoch, offset) for offset in range(45)]
