"""What the broker and the driver of an external compaction job say to each other, as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from diskless_core.admin.models import Base64Text, ErrorAnswer, KafkaUuid
from diskless_core.log import producer_snapshot
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.plugin.segment_compaction import CompactionJob, SegmentPlan, WrittenCopy, WrittenFile
from diskless_core.remote_log import records
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.tiering.external_job import Portion
from diskless_core.wal.runs import run_rows, runs_of

STEPS_IN_REQUEST = 256
"""Steps that a driver may ask for at once."""


class Body(BaseModel):
    """What a driver sends: nothing but what is known."""

    model_config = ConfigDict(extra="forbid")


class TopicPartitions(BaseModel):
    """Partitions of one topic."""

    topic_id: KafkaUuid
    topic: str
    partitions: list[int]


class JobAnswer(BaseModel):
    """What there is to do. Steps name a partition by its index in all `topics`, counted from 0, in their order.

    A driver that is silent for `session_timeout_ms` has lost the job.
    """

    topics: list[TopicPartitions]
    parallel_partitions: int
    producer_id_expiration_ms: int
    session_timeout_ms: int

    @classmethod
    def of(cls, job: CompactionJob, session_timeout_ms: int) -> Self:
        """What a driver is told of a job."""
        return cls(
            topics=[
                TopicPartitions(topic_id=topic_id, topic=topic, partitions=[one.partition for one in partitions])
                for (topic_id, topic), partitions in groupby(job.partitions, lambda one: (one.topic_id, one.topic))
            ],
            parallel_partitions=job.parallel_partitions,
            producer_id_expiration_ms=job.producer_id_expiration_ms,
            session_timeout_ms=session_timeout_ms,
        )

    def partitions(self) -> Iterator[TopicIdPartition]:
        """As in `CompactionJob`."""
        for topic in self.topics:
            for partition in topic.partitions:
                yield TopicIdPartition(topic.topic_id, topic.topic, partition)


class PlannedAnswer(BaseModel):
    """A segment to be made; see `SegmentPlan`.

    Attributes:
        object_keys: the keys of the objects that have its batches.
        ranges: the columns of its runs' rows, see `run_rows`; no columns where there are no runs.
    """

    start_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    index_interval_bytes: int
    object_keys: list[str]
    ranges: list[list[int]]

    @classmethod
    def of(cls, plan: SegmentPlan) -> Self:
        """What a driver is told of a plan: all but the partition, which it has asked for."""
        object_keys, rows = run_rows(plan.ranges)
        return cls(
            start_offset=plan.start_offset,
            end_offset=plan.end_offset,
            size_bytes=plan.size_bytes,
            max_timestamp_ms=plan.max_timestamp_ms,
            index_interval_bytes=plan.index_interval_bytes,
            object_keys=object_keys,
            ranges=[list(column) for column in zip(*rows, strict=True)],
        )

    def plan(self, partition: TopicIdPartition) -> SegmentPlan:
        """The plan back.

        Raises:
            ValueError: they are no columns of such rows.
        """
        return SegmentPlan(
            partition=partition,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            size_bytes=self.size_bytes,
            max_timestamp_ms=self.max_timestamp_ms,
            index_interval_bytes=self.index_interval_bytes,
            ranges=list(runs_of(self.object_keys, zip(*self.ranges, strict=True))),
        )


class SegmentsStep(Body):
    """Plan on in a partition: its next portion of segments, counted from 0, or again the one before."""

    step: Literal["segments"] = "segments"
    partition: int
    number: int


class BeginStep(Body):
    """Note that the copy of a planned segment begins. The same token gets the same copy."""

    step: Literal["begin"] = "begin"
    partition: int
    start_offset: int
    token: str


class WrittenFileBody(Body):
    """The size of a file, and the CRC-32C of its bytes."""

    size_bytes: int
    crc32c: int

    @classmethod
    def of(cls, file: WrittenFile) -> Self:
        """What a driver says of a file."""
        return cls(size_bytes=file.size_bytes, crc32c=file.crc32c)

    def file(self) -> WrittenFile:
        """The file back."""
        return WrittenFile(size_bytes=self.size_bytes, crc32c=self.crc32c)


class WrittenBody(Body):
    """What the driver's engine gave to the remote storage: the log, and each index by the suffix of its file."""

    log: WrittenFileBody
    indexes: dict[IndexType, WrittenFileBody]

    @classmethod
    def of(cls, written: WrittenCopy) -> Self:
        """What a driver says of a copy."""
        indexes = {index: WrittenFileBody.of(file) for index, file in written.indexes.items()}
        return cls(log=WrittenFileBody.of(written.log), indexes=indexes)

    def written(self) -> WrittenCopy:
        """The copy back."""
        return WrittenCopy(log=self.log.file(), indexes={index: body.file() for index, body in self.indexes.items()})


class FinishStep(Body):
    """Note that a copy is complete, with what the remote storage wants to have with it, and have it taken.

    `written` says that the driver has read the log back, and that it is the same. Null, the broker checks each batch.
    """

    step: Literal["finish"] = "finish"
    segment_id: KafkaUuid
    custom_metadata: Base64Text | None
    written: WrittenBody | None = None


class AbandonStep(Body):
    """Remove a copy that failed."""

    step: Literal["abandon"] = "abandon"
    segment_id: KafkaUuid


Step = SegmentsStep | BeginStep | FinishStep | AbandonStep


class StepsBody(Body):
    """Steps, which are taken at once, in no order."""

    steps: list[Annotated[Step, Field(discriminator="step")]] = Field(max_length=STEPS_IN_REQUEST)


class SegmentsAnswer(BaseModel):
    """The portion that was asked for, which may be empty. `producers` are those before the partition's first segment,
    as in a file of Kafka's, `.snapshot`; null in other portions.
    """

    step: Literal["segments"] = "segments"
    segments: list[PlannedAnswer]
    is_last: bool
    producers: Base64Text | None

    @classmethod
    def of(cls, portion: Portion) -> Self:
        """What a driver is told of a portion."""
        producers = portion.producers
        return cls(
            segments=[PlannedAnswer.of(plan) for plan in portion.segments],
            is_last=portion.is_last,
            producers=None if producers is None else producer_snapshot.encode(producers.values()),
        )

    def portion(self, partition: TopicIdPartition) -> Portion:
        """The portion back."""
        return Portion(
            segments=[planned.plan(partition) for planned in self.segments],
            is_last=self.is_last,
            producers=None if self.producers is None else producer_snapshot.decode(self.producers),
        )


class BeginAnswer(BaseModel):
    """A copy that has begun: the value of its record in `__remote_log_metadata`."""

    step: Literal["begin"] = "begin"
    record: Base64Text

    @classmethod
    def of(cls, metadata: RemoteLogSegmentMetadata) -> Self:
        """What a driver is told of a copy."""
        return cls(record=records.encode(metadata))

    def metadata(self) -> RemoteLogSegmentMetadata:
        """The copy back."""
        event = records.decode(self.record)
        if not isinstance(event, RemoteLogSegmentMetadata):
            raise TypeError(f"a copy was expected, not {type(event).__name__}")
        return event


class FinishAnswer(BaseModel):
    """Whether the coordinator has taken the copy."""

    step: Literal["finish"] = "finish"
    taken: bool


class AbandonAnswer(BaseModel):
    """The copy has been removed, if that can be done now."""

    step: Literal["abandon"] = "abandon"


class RefusedAnswer(ErrorAnswer):
    """The step was not taken, or its outcome is not known. The others of its request do not depend on it."""

    step: Literal["refused"] = "refused"


StepAnswer = SegmentsAnswer | BeginAnswer | FinishAnswer | AbandonAnswer | RefusedAnswer


class StepsAnswer(BaseModel):
    """An answer to each step, in their order; null where it has to be asked for again, because the others are large."""

    answers: list[Annotated[StepAnswer, Field(discriminator="step")] | None]


class ProgressBody(Body):
    """Bytes of segments that have been copied, since the beginning of the job."""

    bytes_copied: int


class EndBody(ProgressBody):
    """What failed; null when nothing did."""

    failure: str | None
