"""FindCoordinator: of a group, and for other brokers of a Diskless coordinator.

(KIP-1164, "Leadership and deployment".)
"""

from __future__ import annotations

from diskless_core.broker.authorization import AclOperation
from diskless_core.broker.dispatch import RequestContext
from diskless_core.diskless.api import FIND_COORDINATOR_KEY_TYPE
from diskless_core.diskless.service import Leader
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

_GROUP_KEY = 0
_TRANSACTION_KEY = 1
_SEVERAL_KEYS_SINCE = 4
_SUCCESS_IN_WORDS = "NONE"
"""What Apache Kafka says of a key that it has a coordinator for; nothing where a request has several keys."""


async def find_coordinator(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """FindCoordinator: who leads the shard of each group; Diskless coordinators are told to other brokers only."""
    if context.api_version < _SEVERAL_KEYS_SINCE:
        leader = _leader(context, request.key_type, request.key)
        return FindCoordinatorResponse(
            error_code=leader.error,
            error_message=leader.message if leader.error is not ErrorCode.NONE else _SUCCESS_IN_WORDS,
            node_id=leader.node_id,
            host=leader.host,
            port=leader.port,
        )
    coordinators = []
    for key in request.coordinator_keys:
        leader = _leader(context, request.key_type, key)
        coordinators.append(
            FindCoordinatorResponse.Coordinator(
                key=key,
                error_code=leader.error,
                error_message=leader.message or "",
                node_id=leader.node_id,
                host=leader.host,
                port=leader.port,
            )
        )
    return FindCoordinatorResponse(coordinators=coordinators)


def _leader(context: RequestContext, key_type: int, key: str) -> Leader:
    services = context.services
    if key_type == _GROUP_KEY:
        return _leader_of_group(context, key)
    if key_type == _TRANSACTION_KEY:
        # The one error that makes a client give up: everything else has it look for a coordinator for ever.
        message = "This broker does not support transactions yet."
        return Leader(error=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message=message)
    if key_type == FIND_COORDINATOR_KEY_TYPE and context.may(AclOperation.CLUSTER_ACTION):
        return services.coordinators.leader_of(key)
    message = f"This broker has no coordinators of key type {key_type}."
    return Leader(error=ErrorCode.INVALID_REQUEST, message=message)


def _leader_of_group(context: RequestContext, group_id: str) -> Leader:
    services = context.services
    shard = services.groups.shard_of(group_id)
    node_id = services.config.node_id if shard.leading else shard.leader_hint
    endpoint = services.reached(node_id, context.listener) if node_id is not None else None
    if endpoint is None:
        message = "The coordinator of the group is not known."
        return Leader(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, message=message)
    return Leader(*endpoint)
