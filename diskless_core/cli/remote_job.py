"""A compaction job for an engine in this process, whose coordinators are a broker's: every step asks that."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from typing import TypeVar

from pydantic import BaseModel

from diskless_core.admin.driver_models import (
    CopyAnswer,
    CopyBody,
    FinishAnswer,
    FinishBody,
    JobAnswer,
    ProducersAnswer,
    SegmentAnswer,
)
from diskless_core.cli.admin_client import AdminClientError, RefusedError
from diskless_core.cli.lent_job_client import LentJobClient
from diskless_core.clock import Clock, uuid_text
from diskless_core.log import producer_snapshot
from diskless_core.log.producer_snapshot import ProducerState
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.segment_compaction import BackendSources, CompactionJob, SegmentCompactionError, SegmentPlan
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStore, WalObjectStoreError
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, TopicIdPartition

AnswerT = TypeVar("AnswerT", bound=BaseModel)


class RemoteJob(CompactionJob):
    """See `CompactionJob`. `bytes_copied` is what the engine has told of."""

    def __init__(
        self,
        job_id: str,
        described: JobAnswer,
        client: LentJobClient,
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
        self.remote_storage = remote_storage
        self.backends = backends
        self.bytes_copied = 0
        self._indexes = {partition: index for index, partition in enumerate(self.partitions)}
        self._job_id = job_id
        self._client = client
        self._clock = clock
        self._looking = asyncio.Lock()
        self._sees_objects = False

    async def segments(self, partition: TopicIdPartition) -> AsyncGenerator[SegmentPlan, None]:
        index = self._indexes[partition]
        for number in itertools.count():
            answer = await self._step("GET", f"/partitions/{index}/segments/{number}", SegmentAnswer)
            if answer.segment is None:
                return
            plan = answer.segment.plan(partition)
            await self._require_object(plan)
            yield plan

    async def producers_before(self, segment: SegmentPlan) -> ProducerState:
        answer = await self._step("GET", f"{self._place(segment)}/producers", ProducersAnswer)
        return producer_snapshot.decode(answer.snapshot)

    async def begin(self, segment: SegmentPlan) -> RemoteLogSegmentMetadata:
        body = CopyBody(token=uuid_text(self._clock.new_uuid()))
        return (await self._step("POST", f"{self._place(segment)}/copy", CopyAnswer, body)).metadata()

    async def finish(self, metadata: RemoteLogSegmentMetadata, custom_metadata: bytes | None) -> bool:
        body = FinishBody(custom_metadata=custom_metadata)
        return (await self._step("POST", f"{_copy(metadata)}/finish", FinishAnswer, body)).taken

    async def abandon(self, metadata: RemoteLogSegmentMetadata) -> None:
        await self._step("POST", f"{_copy(metadata)}/abandon", FinishAnswer)

    def progressed(self, size_bytes: int) -> None:
        self.bytes_copied += size_bytes

    def _place(self, segment: SegmentPlan) -> str:
        return f"/partitions/{self._indexes[segment.partition]}/offsets/{segment.start_offset}"

    async def _step(self, method: str, path: str, answer: type[AnswerT], body: BaseModel | None = None) -> AnswerT:
        try:
            return await self._client.step(self._job_id, method, path, answer, body)
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


def _copy(metadata: RemoteLogSegmentMetadata) -> str:
    return f"/copies/{uuid_text(metadata.segment_id.id)}"
