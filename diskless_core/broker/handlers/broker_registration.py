"""What other brokers ask of the controller (KIP-631, KIP-730), who this one is, and UnregisterBroker."""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.cluster.membership import wire
from diskless_core.cluster.operations import Refusal
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    DisklessAllocateNodeIdRequest,
    DisklessAllocateNodeIdResponse,
    DisklessIdentifyBrokerRequest,
    DisklessIdentifyBrokerResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


async def broker_registration(
    context: RequestContext, request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    """Handle BrokerRegistration."""
    if not context.is_authorized:
        return wire.registration_response(
            Refusal(code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message="only a broker may register")
        )
    return await context.services.membership.service.register(request, context.connection)


async def broker_heartbeat(context: RequestContext, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    """Handle BrokerHeartbeat."""
    if not context.is_authorized:
        return wire.heartbeat_response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, is_fenced=True)
    return await context.services.membership.service.heartbeat(request, context.connection)


async def allocate_producer_ids(
    context: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    """Handle AllocateProducerIds."""
    if not context.is_authorized:
        return wire.producer_ids_response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return await context.services.membership.service.allocate_producer_ids(request)


async def allocate_node_id(
    context: RequestContext, request: DisklessAllocateNodeIdRequest
) -> DisklessAllocateNodeIdResponse:
    """Handle DisklessAllocateNodeId."""
    if not context.is_authorized:
        return wire.node_id_response(
            Refusal(code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message="only a broker may ask for a node id")
        )
    return await context.services.membership.service.allocate_node_id(request)


def identify_broker(context: RequestContext, request: DisklessIdentifyBrokerRequest) -> DisklessIdentifyBrokerResponse:
    """Handle DisklessIdentifyBroker."""
    del request  # whoever listens here answers
    if not context.is_authorized:
        return DisklessIdentifyBrokerResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), cluster_id="")
    return context.services.membership.service.identify()


async def unregister_broker(context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Handle UnregisterBroker."""
    return await context.services.membership.service.unregister(request)
