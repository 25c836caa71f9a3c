"""When a partition has to be looked at again, and how large a plan may become."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from diskless_core.diskless.tables import PartitionHead
from diskless_core.plugin.segment_compaction import MAX_RANGES
from diskless_core.remote_log.metadata import TopicIdPartition
from diskless_core.tiering import planning
from diskless_core.tiering.planning import Pause, SegmentPlanner, SegmentRules
from diskless_core.wal.runs import Run

PARTITION = TopicIdPartition(uuid.UUID(int=7), "t", 0)
RULES = SegmentRules(segment_bytes=1000, segment_ms=100, index_interval_bytes=4096)
HEAD = PartitionHead(local_start_offset=10, local_start_bytes=500, next_offset=12, appended_bytes=700, max_timestamp=50)


def range_at(offset: int, *, time_ms: int = 50, size: int = 100) -> Run:
    return Run(offset, offset, "o", 0, size, time_ms, time_ms, 0)


def rest_of(*ranges: Run, rules: SegmentRules = RULES) -> planning.NotDue:
    planner = SegmentPlanner(PARTITION, 10, rules)
    assert [planner.add(one) for one in ranges] == [None] * len(ranges)
    assert planner.last(51) is None
    return planner.not_due(HEAD)


@pytest.mark.parametrize(
    ("change", "now_ms", "is_due"),
    [
        ({}, 150, False),
        ({}, 151, True),
        ({"local_start_offset": 11}, 51, True),
        ({"appended_bytes": 1499}, 51, False),
        ({"appended_bytes": 1500}, 51, True),
        ({"max_timestamp": 150}, 51, False),
        ({"max_timestamp": 151}, 51, True),
        ({"next_offset": 12 + MAX_RANGES - 3}, 51, False),
        ({"next_offset": 12 + MAX_RANGES - 2}, 51, True),
    ],
)
def test_a_rest_is_looked_at_again_when_something_can_have_become_due(change, now_ms, is_due) -> None:
    rest = rest_of(range_at(10), range_at(11))
    assert rest.may_be_due(HEAD._replace(**change), RULES, now_ms) is is_due


def test_a_rest_is_looked_at_again_when_the_topic_says_something_else() -> None:
    rest = rest_of(range_at(10))
    assert not rest.may_be_due(HEAD, replace(RULES), 51)
    assert rest.may_be_due(HEAD, replace(RULES, local_retention_ms=50), 51)


def test_without_a_rest_anything_new_is_looked_at() -> None:
    rest = rest_of()
    assert not rest.may_be_due(HEAD, RULES, 10**15)
    assert rest.may_be_due(HEAD._replace(next_offset=13), RULES, 51)


def test_tiny_runs_make_a_segment_before_the_plan_is_too_large(monkeypatch) -> None:
    monkeypatch.setattr(planning, "MAX_RANGES", 3)
    planner = SegmentPlanner(PARTITION, 10, RULES)
    made = [planner.add(range_at(offset, size=1)) for offset in range(10, 18)]
    assert [(segment.start_offset, segment.end_offset) for segment in made if segment] == [(10, 12), (13, 15)]


def test_a_start_within_a_run_takes_the_whole_run() -> None:
    planner = SegmentPlanner(PARTITION, 10, RULES)
    planner.add(Run(8, 12, "o", 0, 100, 0, 0, 0))
    segment = planner.last(0, everything=True)
    assert segment is not None
    assert (segment.start_offset, segment.end_offset) == (8, 12)


def test_a_segment_without_timestamps_ages_from_its_latest_commit() -> None:
    planner = SegmentPlanner(PARTITION, 10, RULES)
    for offset, append_time in ((10, 40), (11, 60), (12, 50)):
        planner.add(Run(offset, offset, "o", 0, 100, append_time, -1, 0))
    made = planner.last(61, everything=True)
    assert made is not None
    assert made.max_timestamp_ms == 60


def test_pauses_double_up_to_an_hour() -> None:
    pause, lengths = None, []
    for _ in range(9):
        pause = Pause.after(pause, now_ms=1000)
        lengths.append(pause.length_ms // 60_000)
    assert lengths == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert Pause.after(rest_of(), now_ms=1000).length_ms == 60_000


@pytest.mark.parametrize(("now_ms", "has_ended"), [(1000, False), (60_999, False), (61_000, True), (999, True)])
def test_a_pause_ends_when_its_time_is_over_or_the_clock_is_set_back(now_ms, has_ended) -> None:
    assert Pause.after(None, now_ms=1000).may_be_due(HEAD, RULES, now_ms) is has_ended


def test_records_with_old_timestamps_make_a_segment_when_there_are_enough_of_them() -> None:
    planner = SegmentPlanner(PARTITION, 10, RULES)
    planner.add(Run(10, 10, "o", 0, 100, append_time=1_000_000, max_timestamp=7, timestamp_type=0))
    assert planner.last(1_000_100) is None
    made = planner.last(1_000_101)
    assert made is not None
    assert made.max_timestamp_ms == 7
