"""Which segments hold a range of offsets."""

from __future__ import annotations

import uuid
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from diskless_core.tiering.migration.coverage import GapError, chain, in_lineage

PARTITION = TopicIdPartition(uuid.UUID(int=7), "t", 0)
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def segment(start, end, *, epochs=None, state=FINISHED, number=0):
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(PARTITION, uuid.UUID(int=number or start * 1000 + end + 1)),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=5,
        broker_id=1,
        event_timestamp_ms=6,
        segment_size_bytes=100,
        segment_leader_epochs=epochs or {0: start},
        state=state,
    )


def ranges(segments):
    return [(one.start_offset, one.end_offset) for one in segments]


def test_segments_that_follow_each_other_hold_all_between():
    assert ranges(chain([segment(10, 19), segment(0, 9), segment(20, 29)], 0, 30)) == [(0, 9), (10, 19), (20, 29)]


def test_what_lies_outside_of_the_range_is_left_out():
    assert ranges(chain([segment(0, 9), segment(10, 19), segment(20, 29)], 12, 20)) == [(10, 19)]


def test_the_range_may_begin_and_end_within_a_segment():
    assert ranges(chain([segment(0, 9), segment(10, 19)], 5, 15)) == [(0, 9), (10, 19)]


def test_the_longer_of_two_copies_is_taken_and_what_it_contains_is_not():
    assert ranges(chain([segment(0, 9), segment(0, 19), segment(10, 14), segment(15, 29)], 0, 30)) == [
        (0, 19),
        (15, 29),
    ]


def test_an_empty_range_needs_no_segment():
    assert chain([segment(0, 9)], 10, 10) == []
    assert chain([], 0) == []


@pytest.mark.parametrize(
    ("there", "start", "end", "missing"),
    [
        ([(0, 9), (11, 19)], 0, 20, 10),
        ([(5, 9)], 0, 10, 0),
        ([(0, 9)], 0, 20, 10),
        ([], 3, 4, 3),
        ([(0, 9), (11, 19)], 0, None, 10),
        ([(0, 9), (2, 5), (11, 19)], 0, None, 10),
    ],
)
def test_a_gap_is_told_with_its_first_offset(there, start, end, missing):
    with pytest.raises(GapError) as error:
        chain([segment(*one) for one in there], start, end)
    assert error.value.offset == missing


def test_a_copy_that_is_not_complete_holds_nothing():
    started = segment(0, 9, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
    with pytest.raises(GapError):
        chain([started], 0, 10)


def test_without_an_end_it_goes_as_far_as_there_are_segments():
    assert ranges(chain([segment(0, 9), segment(3, 7), segment(10, 19)], 4)) == [(0, 9), (10, 19)]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8))), st.integers(0, 30), st.integers(0, 30))
def test_a_chain_holds_every_offset_or_there_is_none(there, start, length):
    segments = [segment(first, first + more, number=index + 1) for index, (first, more) in enumerate(there)]
    wanted = set(range(start, start + length))
    held = {offset for one in segments for offset in range(one.start_offset, one.end_offset + 1)}
    if not wanted <= held:
        with pytest.raises(GapError) as error:
            chain(segments, start, start + length)
        assert error.value.offset == min(wanted - held)
        return
    found = chain(segments, start, start + length)
    assert wanted <= {offset for one in found for offset in range(one.start_offset, one.end_offset + 1)}
    assert all(a.start_offset < b.start_offset <= a.end_offset + 1 <= b.end_offset for a, b in pairwise(found))


@pytest.mark.parametrize(
    ("start", "end", "epochs", "belongs"),
    [
        (0, 9, {0: 0}, True),
        (0, 49, {0: 0}, True),
        (40, 79, {0: 40, 2: 50}, True),
        (60, 119, {2: 60, 5: 100}, True),
        (0, 50, {0: 0}, False),
        (60, 100, {2: 60}, False),
        (40, 79, {0: 40, 1: 45}, False),
        (40, 79, {0: 40, 2: 51}, False),
        (40, 119, {0: 40, 5: 100}, False),
        (45, 79, {2: 45}, False),
        (200, 300, {5: 200}, True),
        (200, 300, {7: 200}, False),
    ],
)
def test_a_segment_belongs_to_a_log_whose_leader_epochs_it_has(start, end, epochs, belongs):
    assert in_lineage(segment(start, end, epochs=epochs), {0: 0, 2: 50, 5: 100}) is belongs
