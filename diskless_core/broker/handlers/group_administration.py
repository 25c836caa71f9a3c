"""Handlers of what an administrator asks of the group coordinator."""

from __future__ import annotations

from diskless_core.broker.handlers.groups import GroupContext
from diskless_core.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)


async def list_groups(context: GroupContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """ListGroups."""
    return await context.services.groups.list(request)


async def describe_groups(context: GroupContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """DescribeGroups."""
    return await context.services.groups.describe(request, context.api_version)


async def consumer_group_describe(
    context: GroupContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """ConsumerGroupDescribe."""
    services = context.services
    return await services.groups.consumer_group_describe(request, services.topics)


async def delete_groups(context: GroupContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """DeleteGroups."""
    return await context.services.groups.delete(request)


async def offset_delete(context: GroupContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """OffsetDelete."""
    services = context.services
    coordinator = services.groups.of(request.group_id)
    return await coordinator.administration.delete_offsets(request, services.topics)
