"""Handlers of what an administrator asks of the group coordinator."""

from __future__ import annotations

from typing import Any

from diskless_core.broker.handlers.groups import GroupContext


async def list_groups(context: GroupContext, request: Any) -> Any:
    """ListGroups."""
    return await context.services.groups.administration.list(request)


async def describe_groups(context: GroupContext, request: Any) -> Any:
    """DescribeGroups."""
    return await context.services.groups.administration.describe(request, context.api_version)


async def consumer_group_describe(context: GroupContext, request: Any) -> Any:
    """ConsumerGroupDescribe."""
    services = context.services
    return await services.groups.consumer_group_describe(request, services.topics)


async def delete_groups(context: GroupContext, request: Any) -> Any:
    """DeleteGroups."""
    return await context.services.groups.administration.delete(request)


async def offset_delete(context: GroupContext, request: Any) -> Any:
    """OffsetDelete."""
    services = context.services
    return await services.groups.administration.delete_offsets(request, services.topics)
