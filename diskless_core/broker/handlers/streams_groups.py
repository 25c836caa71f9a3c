"""The APIs of streams groups (KIP-1071): refused, as by a Kafka whose `streams.version` is 0."""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

_ERROR = int(ErrorCode.UNSUPPORTED_VERSION)
_MESSAGE = "This broker does not support streams groups."


def streams_group_heartbeat(
    _context: RequestContext, _request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    """Handle StreamsGroupHeartbeat."""
    return StreamsGroupHeartbeatResponse(throttle_time_ms=0, error_code=_ERROR, error_message=_MESSAGE)


def streams_group_describe(
    _context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Handle StreamsGroupDescribe."""
    group_class = StreamsGroupDescribeResponse.DescribedGroup
    groups = [group_class(group_id=one, error_code=_ERROR, error_message=_MESSAGE) for one in request.group_ids]
    return StreamsGroupDescribeResponse(throttle_time_ms=0, groups=groups)
