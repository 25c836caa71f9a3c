"""What brokers tell a share coordinator (KIP-932): refused, because there are no share groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from diskless_core.broker.dispatch import RequestContext
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)

_ERROR = int(ErrorCode.UNSUPPORTED_VERSION)
_MESSAGE = "This broker does not support share groups."


def initialize_share_group_state(
    _context: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """Handle InitializeShareGroupState."""
    return InitializeShareGroupStateResponse(
        results=_refused(request.topics, InitializeShareGroupStateResponse.InitializeStateResult)
    )


def read_share_group_state(
    _context: RequestContext, request: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    """Handle ReadShareGroupState."""
    return ReadShareGroupStateResponse(results=_refused(request.topics, ReadShareGroupStateResponse.ReadStateResult))


def write_share_group_state(
    _context: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    """Handle WriteShareGroupState."""
    return WriteShareGroupStateResponse(results=_refused(request.topics, WriteShareGroupStateResponse.WriteStateResult))


def delete_share_group_state(
    _context: RequestContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    """Handle DeleteShareGroupState."""
    return DeleteShareGroupStateResponse(
        results=_refused(request.topics, DeleteShareGroupStateResponse.DeleteStateResult)
    )


def read_share_group_state_summary(
    _context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    """Handle ReadShareGroupStateSummary."""
    return ReadShareGroupStateSummaryResponse(
        results=_refused(request.topics, ReadShareGroupStateSummaryResponse.ReadStateSummaryResult)
    )


def _refused(topics: Iterable[Any], topic_class: Any) -> list[Any]:
    """The results of these topics, of the class that the response has for one: each of their partitions is refused."""
    return [
        topic_class(
            topic_id=topic.topic_id,
            partitions=[
                topic_class.PartitionResult(partition=one.partition, error_code=_ERROR, error_message=_MESSAGE)
                for one in topic.partitions
            ],
        )
        for topic in topics
    ]
