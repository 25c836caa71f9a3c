"""A compaction job for an engine in this process, whose coordinators are a broker's: every step asks that."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TypeVar

from diskless_core.admin.driver_models import (
    AbandonAnswer,
    AbandonStep,
    BeginAnswer,
    BeginStep,
    FinishAnswer,
    FinishStep,
    JobAnswer,
    SegmentsAnswer,
    SegmentsStep,
    Step,
    StepAnswer,
    WrittenBody,
)
from diskless_core.cli.admin_client import AdminClientError, RefusedError
from diskless_core.cli.external_job_client import ExternalJobClient
from diskless_core.clock import Clock
from diskless_core.log.producer_snapshot import ProducerState
from diskless_core.plugin.remote_storage import RemoteStorage, RemoteStorageError
from diskless_core.plugin.segment_building.comparing import CopyDiffersError, NotingRemoteStorage, compare
from diskless_core.plugin.segment_compaction import (
    BackendSources,
    CompactionJob,
    SegmentCompactionError,
    SegmentPlan,
    WrittenCopy,
)
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStore, WalObjectStoreError
from diskless_core.protocol.names import uuid_text
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, TopicIdPartition

AnswerT = TypeVar("AnswerT", bound=StepAnswer)


class RemoteJob(CompactionJob):
    """See `CompactionJob`. `bytes_copied` is what the engine has told of."""

    def __init__(
        self,
        job_id: str,
        described: JobAnswer,
        client: ExternalJobClient,
        clock: Clock,
        *,
        objects: WalObjectStore,
        remote_storage: RemoteStorage,
        backends: BackendSources,
    ) -> None:
        self.partitions = list(described.partitions())
        self.parallel_partitions = described.parallel_partitions
        self.producer_id_expiration_ms = described.producer_id_expiration_ms
        self.objects = objects
        self.remote_storage = self._noting = NotingRemoteStorage(remote_storage)
        self.backends = backends
        self.bytes_copied = 0
        self._indexes = {partition: index for index, partition in enumerate(self.partitions)}
        self._steps = client.steps(job_id)
        self._clock = clock
        self._producers: dict[TopicIdPartition, ProducerState] = {}
        self._looking = asyncio.Lock()
        self._sees_objects = False

    async def segments(self, partition: TopicIdPartition) -> AsyncGenerator[SegmentPlan, None]:
        index = self._indexes[partition]
        for number in itertools.count():
            answer = await self._step(SegmentsStep(partition=index, number=number), SegmentsAnswer)
            portion = answer.portion(partition)
            if portion.producers is not None:
                self._producers[partition] = portion.producers
            for plan in portion.segments:
                await self._require_object(plan)
                yield plan
            if portion.is_last:
                return

    async def producers_before(self, segment: SegmentPlan) -> ProducerState:
        return self._producers[segment.partition]

    async def begin(self, segment: SegmentPlan) -> RemoteLogSegmentMetadata:
        index, token = self._indexes[segment.partition], uuid_text(self._clock.new_uuid())
        step = BeginStep(partition=index, start_offset=segment.start_offset, token=token)
        return (await self._step(step, BeginAnswer)).metadata()

    async def finish(
        self, metadata: RemoteLogSegmentMetadata, custom_metadata: bytes | None, written: WrittenCopy | None = None
    ) -> bool:
        if written is None:
            written = await self._compared(replace(metadata, custom_metadata=custom_metadata))
        step = FinishStep(
            segment_id=metadata.segment_id.id,
            custom_metadata=custom_metadata,
            written=None if written is None else WrittenBody.of(written),
        )
        return (await self._step(step, FinishAnswer)).taken

    async def abandon(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._noting.take_written(metadata.segment_id)
        await self._step(AbandonStep(segment_id=metadata.segment_id.id), AbandonAnswer)

    async def _compared(self, metadata: RemoteLogSegmentMetadata) -> WrittenCopy | None:
        """Compare a copy of this process with what was written: its bytes are read back here, not by the broker.

        Raises:
            SegmentCompactionError: it is not the same, and is removed; or it cannot be read.
        """
        written = self._noting.take_written(metadata.segment_id)
        if written is None:
            return None
        try:
            await compare(self.remote_storage, metadata, written)
        except CopyDiffersError:
            await self.abandon(metadata)
            raise
        except RemoteStorageError as error:
            partition = metadata.segment_id.topic_id_partition
            raise SegmentCompactionError(
                f"the segment of {partition.name} at offset {metadata.start_offset} cannot be read back: {error}"
            ) from error
        return written

    def progressed(self, size_bytes: int) -> None:
        self.bytes_copied += size_bytes

    async def _step(self, step: Step, answer: type[AnswerT]) -> AnswerT:
        try:
            return await self._steps.ask(step, answer)
        except RefusedError as error:
            raise SegmentCompactionError(error.reason) from error
        except AdminClientError as error:
            raise SegmentCompactionError(str(error)) from error

    async def _require_object(self, plan: SegmentPlan) -> None:
        """Look for an object of the job's first segment: in another store than the broker's there is none of them."""
        async with self._looking:
            if self._sees_objects:
                return
            first = plan.ranges[0]
            try:
                await self.objects.get(first.object_key, first.byte_offset, first.byte_offset + 1)
            except ObjectNotFoundError as error:
                raise SegmentCompactionError(
                    f"{error}, of {plan.partition.topic}, where this command looks: it needs the same "
                    "wal_object_store settings as the broker"
                ) from error
            except WalObjectStoreError as error:
                raise SegmentCompactionError(str(error)) from error
            self._sees_objects = True
