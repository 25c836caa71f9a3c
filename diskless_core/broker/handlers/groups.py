"""Handlers of the group coordinator's requests."""

from __future__ import annotations

from typing import Protocol

from diskless_core.groups.coordinators import GroupCoordinators
from diskless_core.groups.service import Client
from diskless_core.groups.topics import TopicCatalog
from diskless_core.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


class GroupServices(Protocol):
    """What these handlers need of the broker."""

    @property
    def groups(self) -> GroupCoordinators: ...

    @property
    def topics(self) -> TopicCatalog: ...


class GroupContext(Protocol):
    """What these handlers need of a request's context."""

    @property
    def api_version(self) -> int: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def client_host(self) -> str: ...

    @property
    def services(self) -> GroupServices: ...


async def join_group(context: GroupContext, request: JoinGroupRequest) -> JoinGroupResponse:
    """JoinGroup."""
    client = Client(context.client_id, context.client_host)
    return await context.services.groups.of(request.group_id).join_group(request, context.api_version, client)


async def sync_group(context: GroupContext, request: SyncGroupRequest) -> SyncGroupResponse:
    """SyncGroup."""
    return await context.services.groups.of(request.group_id).sync_group(request, context.api_version)


async def heartbeat(context: GroupContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Heartbeat."""
    return await context.services.groups.of(request.group_id).heartbeat(request)


async def leave_group(context: GroupContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """LeaveGroup."""
    return await context.services.groups.of(request.group_id).leave_group(request, context.api_version)


async def consumer_group_heartbeat(
    context: GroupContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """ConsumerGroupHeartbeat."""
    client = Client(context.client_id, context.client_host)
    services = context.services
    coordinator = services.groups.of(request.group_id)
    return await coordinator.consumer_group_heartbeat(request, context.api_version, client, services.topics)


async def offset_commit(context: GroupContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """OffsetCommit."""
    services = context.services
    return await services.groups.of(request.group_id).offset_commit(request, context.api_version, services.topics)


async def offset_fetch(context: GroupContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """OffsetFetch."""
    services = context.services
    return await services.groups.offset_fetch(request, context.api_version, services.topics)
