"""DescribeCluster: the brokers, and which of them leads the cluster shard."""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.broker.handlers.authorized_operations import ALL_CLUSTER_OPERATIONS
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DescribeClusterRequest, DescribeClusterResponse

_BROKERS = 1
_CONTROLLERS = 2


async def describe_cluster(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Handle DescribeCluster."""
    services = context.services
    if request.endpoint_type != _BROKERS:
        return _refused(request.endpoint_type)
    reasons = await services.fenced_brokers.reasons() if request.include_fenced_brokers else {}
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=int(ErrorCode.NONE),
        error_message=None,
        endpoint_type=_BROKERS,
        cluster_id=services.cluster_id,
        controller_id=services.controller_for(context.listener),
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=one.endpoint.node_id,
                host=one.endpoint.host,
                port=one.endpoint.port,
                rack=one.rack,
                is_fenced=one.is_fenced,
                fenced_reason=reasons.get(one.endpoint.node_id) if one.is_fenced else None,
            )
            for one in services.known_brokers(context.listener, with_fenced=request.include_fenced_brokers)
        ],
        authorized_operations=ALL_CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else None,
    )


def _refused(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == _CONTROLLERS:
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    else:
        error, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=int(error),
        error_message=message,
        endpoint_type=_BROKERS,
        cluster_id="",
        controller_id=-1,
        brokers=[],
        authorized_operations=None,
    )
