"""Which runs of a partition become which segments. Pure, and the same for the same runs, wherever it begins anew.

A segment has whole runs. It is full when the next run would exceed a limit; the last one of a partition, which is not
full, is made when it is old enough, or asked for. Memory goes by one segment, not by the partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from diskless_core.diskless.commands import NO_TIMESTAMP
from diskless_core.diskless.tables import PartitionHead
from diskless_core.layout.partition import PartitionLayout
from diskless_core.log.segment_indexer import MAX_OFFSETS
from diskless_core.plugin.segment_compaction import MAX_RANGES, SegmentPlan
from diskless_core.remote_log.metadata import TopicIdPartition
from diskless_core.wal.runs import Run

FIRST_PAUSE_MS = 60_000
MAX_PAUSE_MS = 3_600_000

OFF = -1
NEVER = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRules:
    """What a topic says of its segments.

    Attributes:
        segment_bytes: size of a `.log` at most; a single larger run makes a segment of its own.
        segment_ms: how far the timestamps of a segment lie apart at most.
        index_interval_bytes: Kafka's `index.interval.bytes`.
        local_retention_ms: time since its latest commit after which the last segment is made; -1 is never.
        local_retention_bytes: size of the last segment above which it is made; -1 is never.
    """

    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    local_retention_ms: int = OFF
    local_retention_bytes: int = OFF


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTiering:
    """What a topic says of its segments; `is_tiered` is whether they are made without being asked for."""

    topic: str
    rules: SegmentRules
    is_tiered: bool


class NotDue(NamedTuple):
    """The batches at the end of a partition that make no segment yet, and what would have to happen.

    Attributes:
        start_offset: where WAL objects began.
        next_offset: the high watermark.
        max_timestamp: the partition's.
        due_at_ms: when it is old enough.
        due_bytes: the size that it must have.
        due_timestamp: a record behind this time begins another segment.
        due_records: so many records more can make too many runs.
        rules: what the topic said when all this was found.
    """

    start_offset: int
    next_offset: int
    max_timestamp: int
    due_at_ms: int
    due_bytes: int
    due_timestamp: int
    due_records: int
    rules: SegmentRules

    def may_be_due(self, head: PartitionHead, rules: SegmentRules, now_ms: int) -> bool:
        """Whether planning can find anything in a partition that this was the rest of."""
        return (
            rules != self.rules
            or head.local_start_offset != self.start_offset
            or now_ms >= self.due_at_ms
            or head.appended_bytes - head.local_start_bytes >= self.due_bytes
            or (head.max_timestamp > self.max_timestamp and head.max_timestamp > self.due_timestamp)
            or head.next_offset - self.next_offset >= self.due_records
        )


class Pause(NamedTuple):
    """How long a partition is left alone whose segments could not be made."""

    begun_at_ms: int
    length_ms: int

    def may_be_due(self, _head: PartitionHead, _rules: SegmentRules, now_ms: int) -> bool:
        """Whether it has ended. A clock that is set back ends it too."""
        return not 0 <= now_ms - self.begun_at_ms < self.length_ms

    @classmethod
    def after(cls, before: NotDue | Pause | None, now_ms: int) -> Pause:
        """The pause after one more failure: twice as long as the pause before, up to a limit."""
        doubled_ms = 2 * before.length_ms if isinstance(before, Pause) else FIRST_PAUSE_MS
        return cls(now_ms, min(doubled_ms, MAX_PAUSE_MS))


class SegmentPlanner:
    """Give it a partition's runs, in order, from the one that contains `start_offset` or the next one on."""

    def __init__(self, partition: TopicIdPartition, start_offset: int, rules: SegmentRules) -> None:
        self._partition = partition
        self._rules = rules
        self._start_offset = start_offset
        self._ranges: list[Run] = []
        self._size_bytes = 0
        self._max_timestamp = NO_TIMESTAMP
        self._first_timestamp = 0
        self._first_append_ms = 0
        self._last_append_ms = 0

    def add(self, found: Run) -> SegmentPlan | None:
        """Take the next run. The segment that is full with what came before, if it is."""
        full = self._take() if self._ranges and not self._fits(found) else None
        if not self._ranges:
            self._start_offset = min(self._start_offset, found.base_offset)
            self._first_timestamp = _time_of(found)
            self._first_append_ms, self._last_append_ms = found.append_time, 0
        self._ranges.append(found)
        self._size_bytes += found.byte_size
        self._max_timestamp = max(self._max_timestamp, found.max_timestamp)
        self._last_append_ms = max(self._last_append_ms, found.append_time)
        return full

    def last(self, now_ms: int, *, everything: bool = False) -> SegmentPlan | None:
        """The segment of what is left when all runs were given, if it is time for it, or `everything` is wanted.

        Its age counts from commits: timestamps are the producers', and old ones would make a segment of every run.
        """
        rules = self._rules
        is_due = (
            everything
            or now_ms - self._first_append_ms > rules.segment_ms
            or (rules.local_retention_ms != OFF and now_ms - self._last_append_ms > rules.local_retention_ms)
            or (rules.local_retention_bytes != OFF and self._size_bytes > rules.local_retention_bytes)
        )
        return self._take() if self._ranges and is_due else None

    def not_due(self, head: PartitionHead) -> NotDue:
        """What is left when `last` found that it is too early, of a partition with this head."""
        rules = self._rules
        if not self._ranges:
            return NotDue(head.local_start_offset, head.next_offset, head.max_timestamp, NEVER, NEVER, NEVER, 1, rules)
        due_at_ms = self._first_append_ms + rules.segment_ms + 1
        if rules.local_retention_ms != OFF:
            due_at_ms = min(due_at_ms, self._last_append_ms + rules.local_retention_ms + 1)
        due_bytes = rules.segment_bytes
        if rules.local_retention_bytes != OFF:
            due_bytes = min(due_bytes, rules.local_retention_bytes + 1)
        return NotDue(
            start_offset=head.local_start_offset,
            next_offset=head.next_offset,
            max_timestamp=head.max_timestamp,
            due_at_ms=due_at_ms,
            due_bytes=due_bytes,
            due_timestamp=self._first_timestamp + rules.segment_ms,
            due_records=MAX_RANGES - len(self._ranges),
            rules=rules,
        )

    def _fits(self, found: Run) -> bool:
        return (
            self._size_bytes + found.byte_size <= min(self._rules.segment_bytes, MAX_OFFSETS)
            and found.last_offset - self._start_offset <= MAX_OFFSETS
            and _time_of(found) - self._first_timestamp <= self._rules.segment_ms
            and len(self._ranges) < MAX_RANGES
        )

    def _take(self) -> SegmentPlan:
        plan = SegmentPlan(
            partition=self._partition,
            start_offset=self._start_offset,
            end_offset=self._ranges[-1].last_offset,
            size_bytes=self._size_bytes,
            max_timestamp_ms=self._max_timestamp if self._max_timestamp >= 0 else self._last_append_ms,
            index_interval_bytes=self._rules.index_interval_bytes,
            ranges=self._ranges,
        )
        self._start_offset = plan.end_offset + 1
        self._ranges, self._size_bytes, self._max_timestamp = [], 0, NO_TIMESTAMP
        return plan


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


def _time_of(found: Run) -> int:
    """Without timestamps, the commit's time counts."""
    return found.max_timestamp if found.max_timestamp >= 0 else found.append_time
