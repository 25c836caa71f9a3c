"""Handlers of the group coordinator's requests."""

from __future__ import annotations

from typing import Any, Protocol

from diskless_core.groups.service import Client, GroupCoordinator
from diskless_core.groups.topics import TopicCatalog
from diskless_core.protocol import messages
from diskless_core.protocol.errors import ErrorCode

_GROUP_KEY = 0
_TRANSACTION_KEY = 1
_SEVERAL_KEYS_SINCE = 4
_NO_NODE = (-1, "", -1)


class GroupServices(Protocol):
    """What these handlers need of the broker."""

    @property
    def groups(self) -> GroupCoordinator: ...

    @property
    def topics(self) -> TopicCatalog: ...

    def advertised(self, listener: str) -> tuple[int, str, int]:
        """This node's id, host and port for clients of a listener."""
        ...


class GroupContext(Protocol):
    """What these handlers need of a request's context."""

    @property
    def api_version(self) -> int: ...

    @property
    def client_id(self) -> str | None: ...

    @property
    def client_host(self) -> str: ...

    @property
    def listener(self) -> str: ...

    @property
    def services(self) -> GroupServices: ...


async def find_coordinator(context: GroupContext, request: Any) -> Any:
    """FindCoordinator: this node coordinates every group; there are no coordinators of any other kind."""
    if context.api_version < _SEVERAL_KEYS_SINCE:
        (node_id, host, port), error, message = _coordinator(context, request.key_type)
        return messages.FindCoordinatorResponse(
            error_code=error, error_message=message, node_id=node_id, host=host, port=port
        )
    coordinators = []
    for key in request.coordinator_keys:
        (node_id, host, port), error, message = _coordinator(context, request.key_type)
        coordinators.append(
            messages.FindCoordinatorResponse.Coordinator(
                key=key, error_code=error, error_message=message, node_id=node_id, host=host, port=port
            )
        )
    return messages.FindCoordinatorResponse(coordinators=coordinators)


def _coordinator(context: GroupContext, key_type: int) -> tuple[tuple[int, str, int], ErrorCode, str | None]:
    if key_type == _TRANSACTION_KEY:
        # The one error that makes a client give up: everything else has it look for a coordinator for ever.
        message = "This broker does not support transactions yet."
        return _NO_NODE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message
    if key_type != _GROUP_KEY:
        return _NO_NODE, ErrorCode.INVALID_REQUEST, f"This broker has no coordinators of key type {key_type}."
    return context.services.advertised(context.listener), ErrorCode.NONE, None


async def join_group(context: GroupContext, request: Any) -> Any:
    """JoinGroup."""
    client = Client(context.client_id, context.client_host)
    return await context.services.groups.join_group(request, context.api_version, client)


async def sync_group(context: GroupContext, request: Any) -> Any:
    """SyncGroup."""
    return await context.services.groups.sync_group(request, context.api_version)


async def heartbeat(context: GroupContext, request: Any) -> Any:
    """Heartbeat."""
    return await context.services.groups.heartbeat(request)


async def leave_group(context: GroupContext, request: Any) -> Any:
    """LeaveGroup."""
    return await context.services.groups.leave_group(request, context.api_version)


async def consumer_group_heartbeat(context: GroupContext, request: Any) -> Any:
    """ConsumerGroupHeartbeat."""
    client = Client(context.client_id, context.client_host)
    services = context.services
    return await services.groups.consumer_group_heartbeat(request, context.api_version, client, services.topics)


async def offset_commit(context: GroupContext, request: Any) -> Any:
    """OffsetCommit."""
    services = context.services
    return await services.groups.offset_commit(request, context.api_version, services.topics)


async def offset_fetch(context: GroupContext, request: Any) -> Any:
    """OffsetFetch."""
    services = context.services
    return await services.groups.offset_fetch(request, context.api_version, services.topics)
