"""What a compaction has done so far, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from diskless_core.plugin.segment_compaction import SegmentPlan


class JobState(StrEnum):
    """How far a job is."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(slots=True, kw_only=True)
class TopicReport:
    """What was done for one topic.

    Attributes:
        partitions: those that were looked at.
        segments_lost: copies that the coordinator did not take: records were deleted, or another job was quicker.
    """

    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    segments_lost: int = 0


@dataclass(slots=True, kw_only=True)
class JobReport:
    """A compaction. Times are in milliseconds since the epoch, sizes in bytes.

    Attributes:
        bytes_expected: what lies in WAL objects, as far as it is not known yet what of it makes segments.
        bytes_planned: of segments that were planned.
        bytes_copied: of these, what has been copied.
        driver: the id of the process that runs the engine of an external job; None where the engine is the broker's.
        node_id: the broker whose job it is.
        shards: the Diskless coordinators whose partitions it compacts, by index: those that the broker led when it was
            the job's turn.
        moved: those of them that the broker did not lead until the end. Of a job that failed, others may go on there.
        skipped: partitions that another broker has to compact, because it leads their coordinator.
        failures: what went wrong, a sentence each.
    """

    id: str
    node_id: int
    engine: str
    driver: str | None = None
    begun_at_ms: int
    ended_at_ms: int | None = None
    state: JobState = JobState.WAITING
    bytes_expected: int = 0
    bytes_planned: int = 0
    bytes_copied: int = 0
    shards: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    skipped: int = 0
    topics: dict[str, TopicReport] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def segments(self) -> int:
        """How many segments were made."""
        return sum(topic.segments for topic in self.topics.values())

    def of(self, topic: str) -> TopicReport:
        """The part of a topic."""
        return self.topics.setdefault(topic, TopicReport())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSegment:
    """A segment that a compaction would make now."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int
    ranges: int

    @classmethod
    def of(cls, plan: SegmentPlan) -> Self:
        """What is told of a plan."""
        return cls(
            topic=plan.partition.topic,
            partition=plan.partition.partition,
            start_offset=plan.start_offset,
            end_offset=plan.end_offset,
            size_bytes=plan.size_bytes,
            ranges=len(plan.ranges),
        )
