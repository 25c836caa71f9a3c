"""Which segments a compaction would make of a partition whose layout is known. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from diskless_core.layout.partition import PartitionLayout
from diskless_core.plugin.segment_compaction import SegmentPlan
from diskless_core.tiering.planning import SegmentPlanner, SegmentRules


def plan_layout(
    layout: PartitionLayout, rules: SegmentRules, now_ms: int, *, everything: bool = False
) -> Iterator[SegmentPlan]:
    """The segments of what lies in WAL objects, in order. With `everything`, the last one too if it is not full."""
    start_offset = layout.segments[-1].end_offset + 1 if layout.segments else layout.start_offset
    planner = SegmentPlanner(layout.partition, start_offset, rules)
    for found in layout.ranges:
        full = planner.add(found)
        if full is not None:
            yield full
    last = planner.last(now_ms, everything=everything)
    if last is not None:
        yield last
