"""Answers the Diskless coordinator's requests from this node's shards (KIP-1164, "Diskless coordinator API").

It knows no connection: the broker's inter-broker listener and a simulated network put their requests to it alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.feeds import ShardFeeds
from diskless_core.coordinator.peers import PeerRequest, Peers
from diskless_core.diskless import peer_checks
from diskless_core.diskless.api import FIND_COORDINATOR_KEY_TYPE
from diskless_core.diskless.attempts import Attempt, RefusedAttempts, ShardAttempts, named_index
from diskless_core.diskless.commands import BatchResult, DeletedRecords, HandOver
from diskless_core.diskless.peer_checks import PeerRules
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.service_commits import FileCommits
from diskless_core.diskless.service_reads import CoordinatorReads, key_of
from diskless_core.diskless.shard import DisklessShard
from diskless_core.protocol.codec import ApiMessage
from diskless_core.protocol.commit_file import CommitFileRequest, CommitFileResponse
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.follow_shard import FollowShardAnswer
from diskless_core.protocol.framing import Request, Response, decode_request, encode_body
from diskless_core.protocol.messages import (
    DISKLESS_APIS,
    DisklessCommitFileRequest,
    DisklessCreatePartitionsRequest,
    DisklessCreatePartitionsResponse,
    DisklessDeleteRecordsRequest,
    DisklessDeleteRecordsResponse,
    DisklessDeleteTopicsRequest,
    DisklessDeleteTopicsResponse,
    DisklessDescribeFilesRequest,
    DisklessDescribeFilesResponse,
    DisklessFindBatchesRequest,
    DisklessFindBatchesResponse,
    DisklessFollowShardRequest,
    DisklessHandOverFilesRequest,
    DisklessHandOverFilesResponse,
    DisklessListOffsetsRequest,
    DisklessListOffsetsResponse,
    DisklessRaiseHorizonRequest,
    DisklessRaiseHorizonResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from diskless_core.side_by_side import side_by_side, side_by_side_in_groups

_log = structlog.get_logger(__name__)

R = TypeVar("R")
RequestT = TypeVar("RequestT", bound="ApiMessage")

NO_OLDEST_FILE = -1

_LONGEST_INDEX = 10
"""Digits of a coordinator's index as text."""

CreatedTopic = DisklessCreatePartitionsResponse.DisklessCreatablePartitionsResult
DeletedTopic = DisklessDeleteTopicsResponse.DisklessDeletableTopicResult
RecordsTopic = DisklessDeleteRecordsResponse.DisklessDeleteRecordsTopicResult
RecordsPartition = RecordsTopic.DisklessDeleteRecordsPartitionResult
AskedTopic = DisklessDeleteRecordsRequest.DisklessDeleteRecordsTopic
DescribedFile = DisklessDescribeFilesResponse.DisklessDescribeFileResult
FoundCoordinator = FindCoordinatorResponse.Coordinator


class _ForShard(Protocol):
    """A request that names the coordinator it is for, and how long it has."""

    shard: int
    timeout_ms: int


class Leader(NamedTuple):
    """Where a coordinator is led; ids and port are -1 with an error."""

    node_id: int = -1
    host: str = ""
    port: int = -1
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class CoordinatorService:
    """The Diskless coordinators of one node, for other nodes.

    Args:
        peers: know this node's own address, too.
        feeds: all shards of the node, for the replicas that follow them.
        object_prefix: what the keys of WAL objects begin with, without the '/' after it.
        refused_with: the error of every answer, of a service for somebody who may not ask.
    """

    def __init__(
        self,
        node_id: int,
        shards: Mapping[int, DisklessShard],
        peers: Peers,
        purgatory: Purgatory,
        feeds: ShardFeeds,
        clock: Clock,
        *,
        object_prefix: str,
        refused_with: ErrorCode | None = None,
    ) -> None:
        self._node_id = node_id
        self._shards = shards
        self._rules = PeerRules(object_prefix=object_prefix, shards=shards.keys())
        self._refusals: dict[str, str] = {}
        self._peers = peers
        self._feeds = feeds
        self._refused_with = refused_with
        self._attempts = RefusedAttempts(refused_with) if refused_with is not None else ShardAttempts(shards)
        self._commits = FileCommits(self._attempts)
        self._reads = CoordinatorReads(self._attempts, purgatory, clock)
        self.refusing = (
            CoordinatorService(
                node_id,
                shards,
                peers,
                purgatory,
                feeds,
                clock,
                object_prefix=object_prefix,
                refused_with=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            )
            if refused_with is None
            else self
        )

    async def answer(self, request: PeerRequest) -> bytes:
        """The body of a response to the body of a request, as a `PeerTransport` carries them.

        Raises:
            FrameError: the request is malformed.
        """
        message = decode_request(_ANSWERS[request.api_key].request, request.api_version, memoryview(request.body), 0)
        response = await self.handle(request.api_key, message)
        return b"".join(encode_body(response, request.api_version))

    async def handle(self, api_key: int, request: Request) -> Response:
        """The response to a request, each item of it by itself: one that fails has an error code, and fails no other.

        Raises:
            KeyError: the api key is none of a coordinator's.
        """
        return await _ANSWERS[api_key].handle(self, request)

    def leader_of(self, key: str) -> Leader:
        """FindCoordinator of a coordinator by its index as text: by the log's hint, which may be stale."""
        if not (key.isascii() and key.isdecimal() and len(key) <= _LONGEST_INDEX) or int(key) not in self._shards:
            return Leader(error=ErrorCode.INVALID_REQUEST, message=f"There is no Diskless coordinator {key!r}.")
        shard = self._shards[int(key)]
        node_id = self._node_id if shard.leading else shard.leader_hint
        address = self._peers.address_of(node_id) if node_id is not None else None
        if node_id is None or address is None:
            message = f"Nobody is known to lead the Diskless coordinator {key}."
            return Leader(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, message=message)
        return Leader(node_id, address.host, address.port)

    async def _ask(self, request: _ForShard, question: Callable[[DisklessShard], Awaitable[R]]) -> Attempt[R]:
        return await self._attempts.ask(request.shard, question, request.timeout_ms)

    def _sound(self, api: str, problem: str | None) -> bool:
        """Whether there is no problem. It is logged unless the API's last problem was the same."""
        if self._refused_with is not None:
            return True  # the answer says no more than that the sender may not ask
        if problem is not None and self._refusals.get(api) != problem:
            self._refusals[api] = problem
            _log.warning("a request of another broker makes no sense and is refused", api=api, reason=problem)
        return problem is None

    async def find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        found = []
        for key in request.coordinator_keys:
            leader = Leader(error=ErrorCode.INVALID_REQUEST)
            if request.key_type == FIND_COORDINATOR_KEY_TYPE:
                leader = self.leader_of(key)
            found.append(
                FoundCoordinator(
                    key=key,
                    node_id=leader.node_id,
                    host=leader.host,
                    port=leader.port,
                    error_code=int(leader.error),
                    error_message=leader.message,
                )
            )
        return FindCoordinatorResponse(throttle_time_ms=0, coordinators=found)

    async def commit_file(self, request: CommitFileRequest) -> CommitFileResponse:
        problem = peer_checks.problem_of_commit(request, self._rules)
        if not self._sound("DisklessCommitFile", problem):
            refused = BatchResult(ErrorCode.INVALID_REQUEST, message=problem)
            return CommitFileResponse(results=[refused] * request.batch_count)
        return await self._commits.answer(request)

    async def list_offsets(self, request: DisklessListOffsetsRequest) -> DisklessListOffsetsResponse:
        return await self._reads.list_offsets(request)

    async def find_batches(self, request: DisklessFindBatchesRequest) -> DisklessFindBatchesResponse:
        return await self._reads.find_batches(request)

    async def create_partitions(self, request: DisklessCreatePartitionsRequest) -> DisklessCreatePartitionsResponse:
        topics = await side_by_side(partial(self._create_topic, request), request.topics)
        return DisklessCreatePartitionsResponse(throttle_time_ms=0, topics=topics)

    async def _create_topic(
        self,
        request: DisklessCreatePartitionsRequest,
        topic: DisklessCreatePartitionsRequest.DisklessCreatablePartitions,
    ) -> CreatedTopic:
        topic_id = topic.topic_id
        problem = peer_checks.problem_of_partitions(topic.name, topic.num_partitions, topic.partition_indexes)
        if topic_id is None:
            problem = "the topic has no id"
        if not self._sound("DisklessCreatePartitions", problem) or topic_id is None:
            return CreatedTopic(topic_id=topic_id, error_code=int(ErrorCode.INVALID_REQUEST), error_message=problem)
        indexes: Sequence[int] = topic.partition_indexes or range(topic.num_partitions)
        done = await self._ask(request, lambda shard: shard.create_partitions(topic_id, topic.name, indexes))
        return CreatedTopic(topic_id=topic.topic_id, error_code=int(done.error), error_message=done.message)

    async def delete_topics(self, request: DisklessDeleteTopicsRequest) -> DisklessDeleteTopicsResponse:
        topics = await side_by_side(partial(self._delete_topic, request), request.topics)
        return DisklessDeleteTopicsResponse(throttle_time_ms=0, responses=topics)

    async def _delete_topic(
        self, request: DisklessDeleteTopicsRequest, topic: DisklessDeleteTopicsRequest.DisklessDeletableTopicState
    ) -> DeletedTopic:
        topic_id = topic.topic_id
        if topic_id is None:
            return DeletedTopic(topic_id=None, error_code=int(ErrorCode.UNKNOWN_TOPIC_ID))
        done = await self._ask(request, lambda shard: shard.delete_topic(topic_id))
        error = done.error if done.answer is None else done.answer
        return DeletedTopic(topic_id=topic.topic_id, error_code=int(error), error_message=done.message)

    async def delete_records(self, request: DisklessDeleteRecordsRequest) -> DisklessDeleteRecordsResponse:
        deleted = await side_by_side_in_groups(
            partial(self._delete, request), [(topic, topic.partitions) for topic in request.topics]
        )
        topics = [
            RecordsTopic(topic_id=topic.topic_id, partitions=partitions)
            for topic, partitions in zip(request.topics, deleted, strict=True)
        ]
        return DisklessDeleteRecordsResponse(throttle_time_ms=0, topics=topics)

    async def _delete(
        self, request: DisklessDeleteRecordsRequest, topic: AskedTopic, asked: AskedTopic.DisklessDeleteRecordsPartition
    ) -> RecordsPartition:
        done = await self._ask(request, lambda shard: shard.delete_records(key_of(topic, asked), asked.offset))
        deleted = done.answer or DeletedRecords(done.error)
        return RecordsPartition(
            partition_index=asked.partition_index,
            low_watermark=deleted.log_start_offset,
            error_code=int(deleted.error),
            error_message=done.message,
        )

    async def describe_files(self, request: DisklessDescribeFilesRequest) -> DisklessDescribeFilesResponse:
        keys = [file.object_key for file in request.files]
        problem = peer_checks.problem_of_keys(keys)
        if self._sound("DisklessDescribeFiles", problem):
            known = await self._ask(request, lambda shard: shard.describe_files(keys))
        else:
            known = Attempt(None, ErrorCode.INVALID_REQUEST, problem)
        has_live_batches = known.answer or {}
        files = [
            DescribedFile(
                object_key=key,
                error_code=int(known.error),
                error_message=known.message,
                has_live_batches=has_live_batches.get(key, False),
                is_known=key in has_live_batches,
            )
            for key in keys
        ]
        if not request.include_oldest:
            return DisklessDescribeFilesResponse(throttle_time_ms=0, files=files)
        oldest = await self._ask(request, lambda shard: shard.oldest_file_ms())
        return DisklessDescribeFilesResponse(
            throttle_time_ms=0,
            files=files,
            oldest_file=NO_OLDEST_FILE if oldest.answer is None else oldest.answer,
            error_code=int(oldest.error),
        )

    async def hand_over_files(self, request: DisklessHandOverFilesRequest) -> DisklessHandOverFilesResponse:
        files = [
            HandOver(file.object_key, tuple(file.owner_ids), file.committed_at, file.dead_at) for file in request.files
        ]
        shard_index = named_index(request.shard, self._shards)
        is_known = shard_index in self._shards  # of another one the answer is NOT_COORDINATOR
        problem = peer_checks.problem_of_hand_over(files, shard_index, self._rules) if is_known else None
        if not self._sound("DisklessHandOverFiles", problem):
            return DisklessHandOverFilesResponse(
                throttle_time_ms=0, error_code=int(ErrorCode.INVALID_REQUEST), error_message=problem
            )
        done = await self._ask(request, lambda shard: shard.hand_over(files))
        return DisklessHandOverFilesResponse(throttle_time_ms=0, error_code=int(done.error), error_message=done.message)

    async def follow_shard(self, request: DisklessFollowShardRequest) -> FollowShardAnswer:
        if self._refused_with is not None:
            return FollowShardAnswer(error_code=int(self._refused_with))
        return await self._feeds.follow(request)

    async def raise_horizon(self, request: DisklessRaiseHorizonRequest) -> DisklessRaiseHorizonResponse:
        problem = peer_checks.problem_of_horizon(request.horizon)
        if not self._sound("DisklessRaiseHorizon", problem):
            return DisklessRaiseHorizonResponse(
                throttle_time_ms=0, error_code=int(ErrorCode.INVALID_REQUEST), error_message=problem
            )
        done = await self._ask(request, lambda shard: shard.raise_horizon(request.horizon))
        return DisklessRaiseHorizonResponse(throttle_time_ms=0, error_code=int(done.error), error_message=done.message)


class _Answer:
    """What answers a request. It takes what `decode_request` gives for the request's class."""

    def __init__(
        self, request: type[RequestT], handle: Callable[[CoordinatorService, RequestT], Awaitable[Response]]
    ) -> None:
        self.request: type[ApiMessage] = request
        self.handle: Callable[[CoordinatorService, Any], Awaitable[Response]] = handle


_ANSWERS = {
    answer.request.API_KEY: answer
    for answer in (
        _Answer(DisklessCreatePartitionsRequest, CoordinatorService.create_partitions),
        _Answer(DisklessDeleteTopicsRequest, CoordinatorService.delete_topics),
        # The only request that `decode_request` makes no message of.
        _Answer(DisklessCommitFileRequest, CoordinatorService.commit_file),  # type: ignore[arg-type]
        _Answer(DisklessDeleteRecordsRequest, CoordinatorService.delete_records),
        _Answer(DisklessListOffsetsRequest, CoordinatorService.list_offsets),
        _Answer(DisklessFindBatchesRequest, CoordinatorService.find_batches),
        _Answer(DisklessHandOverFilesRequest, CoordinatorService.hand_over_files),
        _Answer(DisklessDescribeFilesRequest, CoordinatorService.describe_files),
        _Answer(DisklessRaiseHorizonRequest, CoordinatorService.raise_horizon),
        _Answer(DisklessFollowShardRequest, CoordinatorService.follow_shard),
        _Answer(FindCoordinatorRequest, CoordinatorService.find_coordinator),
    )
}

DISKLESS_REQUESTS = [answer.request for api_key, answer in _ANSWERS.items() if api_key in DISKLESS_APIS]
"""The requests that the service has an answer for and no client sends."""
