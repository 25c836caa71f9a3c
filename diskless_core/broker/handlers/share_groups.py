"""The APIs of share groups (KIP-932): refused, as by a Kafka whose `share.version` is 0."""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_ERROR = int(ErrorCode.UNSUPPORTED_VERSION)
_MESSAGE = "This broker does not support share groups."


def share_group_heartbeat(
    _context: RequestContext, _request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Handle ShareGroupHeartbeat."""
    return ShareGroupHeartbeatResponse(throttle_time_ms=0, error_code=_ERROR, error_message=_MESSAGE)


def share_group_describe(_context: RequestContext, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """Handle ShareGroupDescribe."""
    group_class = ShareGroupDescribeResponse.DescribedGroup
    groups = [group_class(group_id=one, error_code=_ERROR, error_message=_MESSAGE) for one in request.group_ids]
    return ShareGroupDescribeResponse(throttle_time_ms=0, groups=groups)


def share_fetch(_context: RequestContext, _request: ShareFetchRequest) -> ShareFetchResponse:
    """Handle ShareFetch."""
    return ShareFetchResponse(throttle_time_ms=0, error_code=_ERROR, error_message=_MESSAGE)


def share_acknowledge(_context: RequestContext, _request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    """Handle ShareAcknowledge."""
    return ShareAcknowledgeResponse(throttle_time_ms=0, error_code=_ERROR, error_message=_MESSAGE)


def describe_share_group_offsets(
    _context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Handle DescribeShareGroupOffsets."""
    group_class = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
    return DescribeShareGroupOffsetsResponse(
        throttle_time_ms=0,
        groups=[
            group_class(group_id=group.group_id, topics=[], error_code=_ERROR, error_message=_MESSAGE)
            for group in request.groups
        ],
    )


def alter_share_group_offsets(
    _context: RequestContext, _request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Handle AlterShareGroupOffsets."""
    return AlterShareGroupOffsetsResponse(throttle_time_ms=0, error_code=_ERROR, error_message=_MESSAGE)


def delete_share_group_offsets(
    _context: RequestContext, _request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Handle DeleteShareGroupOffsets."""
    return DeleteShareGroupOffsetsResponse(throttle_time_ms=0, error_code=_ERROR, error_message=_MESSAGE)
