"""The group coordinator of a node: Kafka's requests to the groups of one shard, and their answers.

A thin shell. What a group does about a request is decided in `classic`, who carries it out is `registry`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.errors import CoordinatorError, CoordinatorLoadingError
from diskless_core.groups.administration import ALL_GROUP_OPERATIONS, GroupAdministration
from diskless_core.groups.consumer.service import ConsumerGroups
from diskless_core.groups.consumer.wire import DescribedGroup as DescribedConsumerGroup
from diskless_core.groups.effects import NO_MEMBER_ID, Identity, Join, JoinAnswer, Sync, SyncAnswer
from diskless_core.groups.offset_commit import OffsetCommitter
from diskless_core.groups.offset_fetch import AnsweredGroup, AskedGroup, OffsetFetcher
from diskless_core.groups.registry import GroupRegistry
from diskless_core.groups.retention import OffsetRetention
from diskless_core.groups.settings import ConsumerTimesOf, GroupSettings
from diskless_core.groups.shard import GroupsShard
from diskless_core.groups.topics import CatchUp, TopicCatalog
from diskless_core.protocol import messages
from diskless_core.protocol.errors import ErrorCode

_REBALANCE_TIMEOUT_SINCE = 1
_MEMBER_ID_REQUIRED_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9
_NULL_PROTOCOL_SINCE = 7
_PROTOCOL_IN_SYNC_SINCE = 5
_SEVERAL_LEAVE_SINCE = 3

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Client:
    """Who sent a request: `client.id`, which may be missing, and the address."""

    client_id: str | None
    host: str


class GroupCoordinator:
    """Coordinates the groups of one shard while this node leads it; otherwise answers where to go.

    Each request method takes the decoded request and its version and returns the response message.

    Attributes:
        administration: answers the requests of those who look after groups.
    """

    def __init__(
        self,
        shard: GroupsShard,
        clock: Clock,
        settings: GroupSettings,
        consumer_times: ConsumerTimesOf,
        catch_up: CatchUp,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._registry = GroupRegistry(shard, settings)
        self._consumers = ConsumerGroups(shard, self._registry, clock, settings, consumer_times)
        self._committer = OffsetCommitter(shard, self._registry, settings, catch_up)
        self._fetcher = OffsetFetcher(shard, self._registry, catch_up)
        self._retention = OffsetRetention(shard, self._registry, settings)
        self.administration = GroupAdministration(shard, self._registry)
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to coordinate. The shard has been started."""
        await self._registry.start()
        self._sweeper = asyncio.create_task(self._sweep(), name="offset retention")

    async def stop(self) -> None:
        """Answer everybody who waits with a retriable error. Idempotent; to be called before the shard stops."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        await self._registry.stop()
        await self._consumers.stop()

    # --- membership ----------------------------------------------------------------------------------------------

    async def join_group(
        self, request: messages.JoinGroupRequest, version: int, client: Client
    ) -> messages.JoinGroupResponse:
        """JoinGroup 0 to 9. Waits for the end of the rebalance."""
        try:
            answer = await self._join(request, version, client)
        except CoordinatorError as error:
            answer = JoinAnswer(error=error.code, member_id=request.member_id)
        protocol = answer.protocol if version >= _NULL_PROTOCOL_SINCE else answer.protocol or ""
        member_class = messages.JoinGroupResponse.JoinGroupResponseMember
        return messages.JoinGroupResponse(
            error_code=answer.error,
            generation_id=answer.generation,
            protocol_type=answer.protocol_type,
            protocol_name=protocol,
            leader=answer.leader,
            skip_assignment=answer.skip_assignment,
            member_id=answer.member_id,
            members=[
                member_class(member_id=one.member_id, group_instance_id=one.instance_id, metadata=one.metadata)
                for one in answer.members
            ],
        )

    async def _join(self, request: messages.JoinGroupRequest, version: int, client: Client) -> JoinAnswer:
        refusal = self._refusal(request)
        if refusal is not ErrorCode.NONE:
            return JoinAnswer(error=refusal, member_id=request.member_id)
        await self._registry.require_loaded()
        while self._registry.find_consumer(request.group_id) is not None:  # a new one may come while one goes
            if not await self._consumers.make_way(request.group_id):
                return JoinAnswer(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id)
            await self._registry.require_loaded()
        if request.member_id == NO_MEMBER_ID:
            group = self._registry.find_or_create(request.group_id)
        else:
            found = self._registry.find(request.group_id)
            if found is None:
                return JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id)
            group = found
        name = request.group_instance_id if request.group_instance_id is not None else client.client_id or ""
        new_member_id = f"{name}-{self._clock.new_uuid()}"

        def join(request_id: int) -> None:
            group.join(_join_event(request_id, request, version, client, new_member_id))

        answer: JoinAnswer = await self._registry.ask(group, join)
        return answer

    def _refusal(self, request: messages.JoinGroupRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        minimum_ms, maximum_ms = self._settings.min_session_timeout_ms, self._settings.max_session_timeout_ms
        if not minimum_ms <= request.session_timeout_ms <= maximum_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return ErrorCode.NONE

    async def sync_group(self, request: messages.SyncGroupRequest, version: int) -> messages.SyncGroupResponse:
        """SyncGroup 0 to 5. Waits until the leader's assignment is committed to the shard."""
        try:
            answer = await self._sync(request, version)
        except CoordinatorLoadingError:
            # Clients do not expect the true error here. The rebalance is lost with the load: they have to rejoin.
            answer = SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS)
        except CoordinatorError as error:
            answer = SyncAnswer(error=error.code)
        return messages.SyncGroupResponse(
            error_code=answer.error,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol,
            assignment=answer.assignment,
        )

    async def _sync(self, request: messages.SyncGroupRequest, version: int) -> SyncAnswer:
        if not request.group_id:
            return SyncAnswer(error=ErrorCode.INVALID_GROUP_ID)
        if version >= _PROTOCOL_IN_SYNC_SINCE and None in (request.protocol_type, request.protocol_name):
            return SyncAnswer(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        await self._registry.require_loaded()
        group = self._registry.find(request.group_id)
        if group is None:
            return SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID)
        answer: SyncAnswer = await self._registry.ask(
            group, lambda request_id: group.sync(_sync_event(request_id, request))
        )
        return answer

    async def heartbeat(self, request: messages.HeartbeatRequest) -> messages.HeartbeatResponse:
        """Heartbeat 0 to 4."""
        try:
            error = await self._heartbeat(request)
        except CoordinatorLoadingError:
            error = ErrorCode.NONE
        except CoordinatorError as failure:
            error = failure.code
        return messages.HeartbeatResponse(error_code=error)

    async def _heartbeat(self, request: messages.HeartbeatRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        await self._registry.require_loaded()
        group = self._registry.find(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.heartbeat(request.member_id, request.group_instance_id, request.generation_id)
        self._registry.perform(group)
        return error

    async def leave_group(self, request: messages.LeaveGroupRequest, version: int) -> messages.LeaveGroupResponse:
        """LeaveGroup 0 to 5. Up to version 2 the one member's error is the response's."""
        identities = _identities(request, version)
        try:
            errors = await self._leave(request.group_id, identities)
        except CoordinatorError as error:
            return messages.LeaveGroupResponse(error_code=error.code, members=[])
        if isinstance(errors, ErrorCode):
            return messages.LeaveGroupResponse(error_code=errors, members=[])
        if version < _SEVERAL_LEAVE_SINCE:
            return messages.LeaveGroupResponse(error_code=errors[0])
        member_class = messages.LeaveGroupResponse.MemberResponse
        return messages.LeaveGroupResponse(
            members=[
                member_class(member_id=one.member_id, group_instance_id=one.instance_id, error_code=error)
                for one, error in zip(identities, errors, strict=True)
            ]
        )

    async def _leave(self, group_id: str, identities: list[Identity]) -> list[ErrorCode] | ErrorCode:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        await self._registry.require_loaded()
        group = self._registry.find(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(identities)
        errors = list(group.leave(identities))
        self._registry.perform(group)
        return errors

    # --- the consumer protocol -----------------------------------------------------------------------------------

    async def consumer_group_heartbeat(
        self, request: messages.ConsumerGroupHeartbeatRequest, version: int, client: Client, topics: TopicCatalog
    ) -> messages.ConsumerGroupHeartbeatResponse:
        """ConsumerGroupHeartbeat 0 and 1. Answered once what it changes is committed to the shard."""
        return await self._consumers.heartbeat(request, version, client.client_id, client.host, topics)

    async def consumer_group_describe(
        self, group_id: str, topics: TopicCatalog, with_operations: bool
    ) -> DescribedConsumerGroup:
        """ConsumerGroupDescribe 0 and 1, of one group."""
        operations = ALL_GROUP_OPERATIONS if with_operations else None
        return await self._consumers.describe(group_id, topics, operations)

    # --- offsets -------------------------------------------------------------------------------------------------

    async def offset_commit(
        self, request: messages.OffsetCommitRequest, version: int, topics: TopicCatalog
    ) -> messages.OffsetCommitResponse:
        """OffsetCommit 2 to 10. Answered once the offsets are committed to the shard."""
        return await self._committer.commit(request, version, topics)

    async def offset_fetch(
        self, request: messages.OffsetFetchRequest, version: int, topics: TopicCatalog
    ) -> messages.OffsetFetchResponse:
        """OffsetFetch 1 to 7. Sees every offset whose commit was answered, by whichever node."""
        return await self._fetcher.fetch(request, version, topics)

    async def offset_fetch_of_groups(
        self, groups: Sequence[AskedGroup], version: int, topics: TopicCatalog
    ) -> Sequence[AnsweredGroup]:
        """OffsetFetch 8 to 10, of those groups that are this coordinator's."""
        return await self._fetcher.fetch_of_groups(groups, version, topics)

    async def expire_offsets(self) -> None:
        """Delete offsets and groups that outlived their use; happens by itself from time to time.

        Raises:
            CoordinatorError: this node does not lead the shard, or ceased to; what is left goes the next time.
        """
        await self._retention.expire()

    async def topics_deleted(self, topic_ids: Collection[uuid.UUID], names: Collection[str]) -> None:
        """Delete all groups' offsets of topics that are gone. Newer topics of the same names are not touched.

        Raises:
            CoordinatorError: as `expire_offsets`.
        """
        await self._retention.topics_deleted(topic_ids, names)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.offsets_retention_check_interval_ms / 1000)
            try:
                await self.expire_offsets()
            except CoordinatorError as error:
                _logger.info("offsets are not expired here", reason=str(error))


def _join_event(
    request_id: int, request: messages.JoinGroupRequest, version: int, client: Client, new_member_id: str
) -> Join:
    has_rebalance_timeout = version >= _REBALANCE_TIMEOUT_SINCE
    return Join(
        id=request_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        new_member_id=new_member_id,
        client_id=client.client_id or "",
        client_host=f"/{client.host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple({one.name: bytes(one.metadata) for one in request.protocols}.items()),
        needs_member_id=version >= _MEMBER_ID_REQUIRED_SINCE,
        can_skip_assignment=version >= _SKIP_ASSIGNMENT_SINCE,
        reason=request.reason,
    )


def _sync_event(request_id: int, request: messages.SyncGroupRequest) -> Sync:
    return Sync(
        id=request_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=tuple((one.member_id, bytes(one.assignment)) for one in request.assignments),
    )


def _identities(request: messages.LeaveGroupRequest, version: int) -> list[Identity]:
    if version < _SEVERAL_LEAVE_SINCE:
        return [Identity(member_id=request.member_id)]
    return [
        Identity(member_id=one.member_id, instance_id=one.group_instance_id, reason=one.reason)
        for one in request.members
    ]
