"""Planning of segments, for any runs and rules."""

from __future__ import annotations

import uuid
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.layout.partition import PartitionLayout
from diskless_core.log.segment_indexer import MAX_OFFSETS
from diskless_core.plugin.segment_compaction import SegmentPlan
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.tiering.planning import OFF, SegmentPlanner, SegmentRules, plan_layout
from diskless_core.wal.runs import Run

PARTITION = TopicIdPartition(uuid.UUID(int=7), "t", 0)
NOW_MS = 10_000

rules_of = st.builds(
    SegmentRules,
    segment_bytes=st.integers(1, 300),
    segment_ms=st.integers(1, 2_000),
    index_interval_bytes=st.just(4096),
    local_retention_ms=st.sampled_from([OFF, 0, 500]),
    local_retention_bytes=st.sampled_from([OFF, 0, 100]),
)


@st.composite
def runs_of(draw: st.DrawFn) -> list[Run]:
    """Runs in order, with gaps between offsets, and timestamps or none."""
    offset, found = draw(st.integers(0, 5)), []
    for index in range(draw(st.integers(0, 25))):
        offset += draw(st.sampled_from([0, 0, 0, 3, MAX_OFFSETS // 2]))
        records = draw(st.integers(1, 5))
        found.append(
            Run(
                base_offset=offset,
                last_offset=offset + records - 1,
                object_key=f"o{index}",
                byte_offset=index,
                byte_size=draw(st.integers(61, 120)),
                append_time=draw(st.integers(0, NOW_MS)),
                max_timestamp=draw(st.one_of(st.just(-1), st.integers(0, NOW_MS + 100))),
                timestamp_type=0,
            )
        )
        offset += records
    return found


def plan(
    runs: list[Run], start: int, rules: SegmentRules, *, now_ms: int = NOW_MS, everything: bool = False
) -> list[SegmentPlan]:
    planner = SegmentPlanner(PARTITION, start, rules)
    full = [segment for segment in map(planner.add, runs) if segment is not None]
    last = planner.last(now_ms, everything=everything)
    return full if last is None else [*full, last]


def time_of(run: Run) -> int:
    return run.max_timestamp if run.max_timestamp >= 0 else run.append_time


@settings(deadline=None)
@given(runs=runs_of(), rules=rules_of, everything=st.booleans(), early=st.integers(0, 3))
def test_plans_are_a_prefix_without_gaps_within_the_limits(
    runs: list[Run], rules: SegmentRules, everything: bool, early: int
) -> None:
    start = max(0, runs[0].base_offset - early) if runs else 0
    segments = plan(runs, start, rules, everything=everything)
    ranges = [one for segment in segments for one in segment.ranges]
    assert ranges == runs[: len(ranges)]
    if everything:
        assert len(ranges) == len(runs)
    behind = start
    for segment in segments:
        assert segment.start_offset == behind
        assert segment.end_offset == segment.ranges[-1].last_offset
        assert segment.size_bytes == sum(one.byte_size for one in segment.ranges)
        latest = max(one.max_timestamp for one in segment.ranges)
        assert segment.max_timestamp_ms == (latest if latest >= 0 else max(one.append_time for one in segment.ranges))
        if len(segment.ranges) > 1:
            assert segment.size_bytes <= rules.segment_bytes
            assert segment.end_offset - segment.start_offset <= MAX_OFFSETS
        behind = segment.end_offset + 1


@settings(deadline=None)
@given(runs=runs_of(), rules=rules_of, everything=st.booleans(), data=st.data())
def test_a_plan_is_the_same_again_and_resumed_anywhere(
    runs: list[Run], rules: SegmentRules, everything: bool, data: st.DataObject
) -> None:
    segments = plan(runs, 0, rules, everything=everything)
    assert plan(runs, 0, rules, everything=everything) == segments
    done = data.draw(st.integers(0, len(segments)))
    if done:
        behind = segments[done - 1].end_offset + 1
        left = [run for run in runs if run.base_offset >= behind]
        assert plan(left, behind, rules, everything=everything) == segments[done:]


@settings(deadline=None)
@given(runs=runs_of(), rules=rules_of)
def test_a_segment_is_as_full_as_it_can_be(runs: list[Run], rules: SegmentRules) -> None:
    """The run behind a segment did not fit into it."""
    segments = plan(runs, 0, rules, everything=True)
    by_offset = {run.base_offset: run for run in runs}
    for segment, behind in pairwise(segments):
        first, following = by_offset[segment.ranges[0].base_offset], by_offset[behind.ranges[0].base_offset]
        assert (
            segment.size_bytes + following.byte_size > rules.segment_bytes
            or time_of(following) - time_of(first) > rules.segment_ms
            or following.last_offset - segment.start_offset > MAX_OFFSETS
        )


@settings(deadline=None)
@given(runs=runs_of(), rules=rules_of)
def test_the_rest_waits_until_it_is_old_or_large(runs: list[Run], rules: SegmentRules) -> None:
    made = plan(runs, 0, rules)
    everything = plan(runs, 0, rules, everything=True)
    assert made in (everything, everything[:-1])
    if everything:
        last = everything[-1]
        times = [run.append_time for run in runs if run.base_offset >= last.ranges[0].base_offset]
        is_due = (
            NOW_MS - times[0] > rules.segment_ms
            or (rules.local_retention_ms != OFF and NOW_MS - max(times) > rules.local_retention_ms)
            or (rules.local_retention_bytes != OFF and last.size_bytes > rules.local_retention_bytes)
        )
        assert (made == everything) == is_due


@settings(deadline=None)
@given(runs=runs_of(), rules=rules_of, tiered=st.integers(0, 3), everything=st.booleans())
def test_a_layout_is_planned_as_the_runs_that_it_lists(
    runs: list[Run], rules: SegmentRules, tiered: int, everything: bool
) -> None:
    start = runs[0].base_offset if runs else 0
    layout = PartitionLayout(
        partition=PARTITION,
        start_offset=start - tiered,
        end_offset=runs[-1].last_offset + 1 if runs else start,
        segments=[_segment(start - tiered, start - 1)] if tiered else [],
        ranges=runs,
    )
    planned = list(plan_layout(layout, rules, NOW_MS, everything=everything))
    assert planned == plan(runs, start, rules, everything=everything)


def _segment(start_offset: int, end_offset: int) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(PARTITION, uuid.UUID(int=1)),
        start_offset=start_offset,
        end_offset=end_offset,
        max_timestamp_ms=1,
        broker_id=1,
        event_timestamp_ms=1,
        segment_size_bytes=1,
        segment_leader_epochs={0: start_offset},
    )
