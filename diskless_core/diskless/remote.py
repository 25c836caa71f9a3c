"""A Diskless coordinator that another node leads (KIP-1164, "Diskless coordinator API", over the wire)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TypedDict, TypeVar

from diskless_core.coordinator.calls import PeerCalls, error_of, require_answer, require_success
from diskless_core.coordinator.errors import OutcomeUnknownError
from diskless_core.diskless.commands import (
    AskedRuns,
    BatchResult,
    CommitFile,
    DeletedRecords,
    FoundRuns,
    HandOver,
    ListedOffset,
    PartitionKey,
)
from diskless_core.diskless.commit_bundles import CommitBundles
from diskless_core.diskless.run_lookup import ANSWER_RUNS, PAGE_RUNS
from diskless_core.protocol.codec import ApiRequest, ResponseT_co
from diskless_core.protocol.errors import ErrorCode, code_of
from diskless_core.protocol.messages import (
    DisklessCreatePartitionsRequest,
    DisklessDeleteRecordsRequest,
    DisklessDeleteTopicsRequest,
    DisklessDescribeFilesRequest,
    DisklessDescribeFilesResponse,
    DisklessFindBatchesRequest,
    DisklessFindBatchesResponse,
    DisklessHandOverFilesRequest,
    DisklessListOffsetsRequest,
    DisklessRaiseHorizonRequest,
)
from diskless_core.wal.runs import Run

ASKED_AT_ONCE = 500
"""Partitions that one DisklessFindBatches asks for batches of, at most."""

_MAX_BYTES = 2**31 - 1

T = TypeVar("T")
_FoundPartition = DisklessFindBatchesResponse.DisklessFindBatchesTopicResponse.DisklessFindBatchesPartitionResponse
_FoundBatch = _FoundPartition.DisklessFindBatchesBatchInfo


class _Common(TypedDict):
    timeout_ms: int
    shard: int


class RemoteCoordinator:
    """The coordinator with the index `shard`, asked at the node `node_id`, whether it leads or not.

    It is a `DisklessCoordinator`: NotCoordinatorError where the node does not lead it.
    """

    def __init__(self, shard: int, node_id: int, calls: PeerCalls, commits: CommitBundles) -> None:
        self._shard = shard
        self._node_id = node_id
        self._calls = calls
        self._commits = commits

    def by(self, calls: PeerCalls) -> RemoteCoordinator:
        """The same, asked by other connections."""
        return RemoteCoordinator(self._shard, self._node_id, calls, self._commits)

    async def create_partitions(self, topic_id: uuid.UUID, name: str, partitions: Sequence[int]) -> None:
        topic = DisklessCreatePartitionsRequest.DisklessCreatablePartitions(
            topic_id=topic_id, name=name, num_partitions=len(partitions), partition_indexes=list(partitions)
        )
        response = await self._call(DisklessCreatePartitionsRequest(topics=[topic], **self._common()))
        result = _only(response.topics)
        require_success(result.error_code, result.error_message)

    async def delete_topic(self, topic_id: uuid.UUID) -> ErrorCode:
        topic = DisklessDeleteTopicsRequest.DisklessDeletableTopicState(topic_id=topic_id)
        response = await self._call(DisklessDeleteTopicsRequest(topics=[topic], **self._common()))
        result = _only(response.responses)
        return require_answer(result.error_code, result.error_message)

    async def commit_files(self, requests: Sequence[CommitFile]) -> list[list[BatchResult]]:
        if len(requests) == 1:
            return [await self._commits.commit(self._node_id, self._shard, requests[0])]
        return await self._commits.commit_list(self._node_id, self._shard, requests)

    async def delete_records(self, partition: PartitionKey, offset: int) -> DeletedRecords:
        topic_class = DisklessDeleteRecordsRequest.DisklessDeleteRecordsTopic
        asked = topic_class.DisklessDeleteRecordsPartition(partition_index=partition.partition, offset=offset)
        topic = topic_class(topic_id=uuid.UUID(bytes=partition.topic_id), partitions=[asked])
        response = await self._call(DisklessDeleteRecordsRequest(topics=[topic], **self._common()))
        result = _only(_only(response.topics).partitions)
        return DeletedRecords(require_answer(result.error_code, result.error_message), result.low_watermark)

    async def list_offsets(self, partition: PartitionKey, timestamp: int) -> ListedOffset:
        topic_class = DisklessListOffsetsRequest.DisklessListOffsetsTopic
        asked = topic_class.DisklessListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
        topic = topic_class(topic_id=uuid.UUID(bytes=partition.topic_id), partitions=[asked])
        response = await self._call(DisklessListOffsetsRequest(topics=[topic], **self._common()))
        result = _only(_only(response.topics).partitions)
        error = require_answer(result.error_code, result.error_message)
        return ListedOffset(error, result.timestamp, result.offset)

    async def find(self, partition: PartitionKey, offset: int, max_bytes: int) -> FoundRuns:
        return _only(await self.find_batches([AskedRuns(partition, offset, max_bytes)], max_bytes))

    async def find_batches(
        self, asked: Sequence[AskedRuns], max_bytes: int, max_runs: int = ANSWER_RUNS
    ) -> list[FoundRuns]:
        """DisklessFindBatches of several partitions, `ASKED_AT_ONCE` at most, answered in order.

        The runs of all of them come to about `max_bytes`, and are about `max_runs`; the first partitions get theirs
        first. A partition that the node could not look into is OFFSET_NOT_AVAILABLE.

        Raises:
            CoordinatorError: no answer.
        """
        answered = await self._find(asked, max_bytes if max_runs > 0 else 0, min(PAGE_RUNS, max(0, max_runs)))
        if [key for key, _ in answered] != [one.partition for one in asked]:
            raise OutcomeUnknownError(f"node {self._node_id} answered for other partitions than it was asked about")
        return [found for _, found in answered]

    async def until_found(self, offsets: Mapping[PartitionKey, int], max_wait_ms: int) -> list[PartitionKey]:
        """Partitions in which there is something from an offset on, or that cannot be read; waits while there are none.

        Raises:
            CoordinatorError: no answer.
        """
        asked = [AskedRuns(key, offset, 0) for key, offset in offsets.items()]
        return [key for key, _ in await self._find(asked, 0, 0, max_wait_ms) if key in offsets]

    async def _find(
        self, asked: Sequence[AskedRuns], max_bytes: int, max_runs: int, max_wait_ms: int = 0
    ) -> list[tuple[PartitionKey, FoundRuns]]:
        topic_class = DisklessFindBatchesRequest.DisklessFindBatchesTopic
        topics = [
            topic_class(
                topic_id=uuid.UUID(bytes=topic_id),
                partitions=[
                    topic_class.DisklessFindBatchesPartition(
                        partition_index=one.partition.partition,
                        offset=one.offset,
                        max_partition_fetch_bytes=min(one.max_bytes, _MAX_BYTES),
                    )
                    for one in some
                ],
            )
            for topic_id, some in groupby(asked, lambda one: one.partition.topic_id)
        ]
        request = DisklessFindBatchesRequest(
            fetch_max_bytes=min(max(0, max_bytes), _MAX_BYTES),
            max_batches_per_partition=max_runs,
            max_wait_ms=max_wait_ms,
            topics=topics,
            **self._common(),
        )
        return _found_in(await self._call(request))

    async def describe_files(self, object_keys: Sequence[str]) -> Mapping[str, bool]:
        files = [DisklessDescribeFilesRequest.DisklessDescribeFileEntry(object_key=key) for key in object_keys]
        response = await self._describe(files, include_oldest=False)
        for result in response.files:
            require_success(result.error_code, result.error_message)
        if [result.object_key for result in response.files] != list(object_keys):
            raise OutcomeUnknownError(f"node {self._node_id} answered for other objects than it was asked about")
        return {result.object_key: result.has_live_batches for result in response.files if result.is_known}

    async def oldest_file_ms(self) -> int | None:
        response = await self._describe([], include_oldest=True)
        return response.oldest_file if response.oldest_file >= 0 else None

    async def _describe(
        self, files: Sequence[DisklessDescribeFilesRequest.DisklessDescribeFileEntry], *, include_oldest: bool
    ) -> DisklessDescribeFilesResponse:
        response = await self._call(
            DisklessDescribeFilesRequest(files=files, include_oldest=include_oldest, **self._common())
        )
        require_success(response.error_code)
        return response

    async def raise_horizon(self, horizon_ms: int) -> None:
        response = await self._call(DisklessRaiseHorizonRequest(horizon=horizon_ms, **self._common()))
        require_success(response.error_code, response.error_message)

    async def hand_over(self, files: Sequence[HandOver]) -> None:
        handed_over = [
            DisklessHandOverFilesRequest.DisklessHandedOverFile(
                object_key=file.object_key,
                owner_ids=list(file.owner_ids),
                committed_at=file.committed_at,
                dead_at=file.dead_at,
            )
            for file in files
        ]
        response = await self._call(DisklessHandOverFilesRequest(files=handed_over, **self._common()))
        require_success(response.error_code, response.error_message)

    def _common(self) -> _Common:
        return {"timeout_ms": self._calls.timeout_ms, "shard": self._shard}

    async def _call(self, request: ApiRequest[ResponseT_co]) -> ResponseT_co:
        return await self._calls.call(self._node_id, request)


def _only(answers: Sequence[T]) -> T:
    if len(answers) != 1:
        raise OutcomeUnknownError(f"a coordinator gave {len(answers)} answers to one question")
    return answers[0]


def _found_in(response: DisklessFindBatchesResponse) -> list[tuple[PartitionKey, FoundRuns]]:
    """What was found, in the order of the answer.

    Raises:
        CoordinatorError: there is no answer for any of the partitions.
    """
    results = [
        (PartitionKey(topic.topic_id.bytes if topic.topic_id is not None else b"", result.partition_index), result)
        for topic in response.topics
        for result in topic.partitions
    ]
    local_starts = response.local_start_offsets or [result.log_start_offset for _, result in results]
    if len(local_starts) != len(results):
        raise OutcomeUnknownError(f"{len(local_starts)} offsets were given for {len(results)} partitions")
    errors = [error_of(result.error_code) for _, result in results]
    if errors and errors[0] is not None and None not in errors:
        raise errors[0]
    return [
        (key, _found(result, local_start) if error is None else FoundRuns(ErrorCode.OFFSET_NOT_AVAILABLE))
        for (key, result), local_start, error in zip(results, local_starts, errors, strict=True)
    ]


def _found(result: _FoundPartition, local_start_offset: int) -> FoundRuns:
    return FoundRuns(
        code_of(result.error_code),
        result.log_start_offset,
        result.high_watermark,
        list(map(_run, result.batches)),
        local_start_offset,
    )


def _run(batch: _FoundBatch) -> Run:
    return Run(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        object_key=batch.object_key,
        byte_offset=batch.byte_offset,
        byte_size=batch.byte_size,
        append_time=batch.log_append_timestamp,
        max_timestamp=batch.batch_max_timestamp,
        timestamp_type=batch.timestamp_type,
    )
