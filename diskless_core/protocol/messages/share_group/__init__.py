"""KIP-932 on the wire: share groups and the state of their partitions.

Their JSON schemas are in this folder.
"""

from __future__ import annotations

from diskless_core.protocol.codec import ApiMessage


class ShareGroupHeartbeatRequest(ApiMessage, load_json=__name__):
    """KIP-932, ShareGroupHeartbeat."""


class ShareGroupHeartbeatResponse(ApiMessage, load_json=__name__):
    """KIP-932, ShareGroupHeartbeat."""


class ShareGroupDescribeRequest(ApiMessage, load_json=__name__):
    """KIP-932, ShareGroupDescribe."""


class ShareGroupDescribeResponse(ApiMessage, load_json=__name__):
    """KIP-932, ShareGroupDescribe."""


class ShareFetchRequest(ApiMessage, load_json=__name__):
    """KIP-932, ShareFetch."""


class ShareFetchResponse(ApiMessage, load_json=__name__):
    """KIP-932, ShareFetch."""


class ShareAcknowledgeRequest(ApiMessage, load_json=__name__):
    """KIP-932, ShareAcknowledge."""


class ShareAcknowledgeResponse(ApiMessage, load_json=__name__):
    """KIP-932, ShareAcknowledge."""


class InitializeShareGroupStateRequest(ApiMessage, load_json=__name__):
    """KIP-932, InitializeShareGroupState."""


class InitializeShareGroupStateResponse(ApiMessage, load_json=__name__):
    """KIP-932, InitializeShareGroupState."""


class ReadShareGroupStateRequest(ApiMessage, load_json=__name__):
    """KIP-932, ReadShareGroupState."""


class ReadShareGroupStateResponse(ApiMessage, load_json=__name__):
    """KIP-932, ReadShareGroupState."""


class WriteShareGroupStateRequest(ApiMessage, load_json=__name__):
    """KIP-932, WriteShareGroupState."""


class WriteShareGroupStateResponse(ApiMessage, load_json=__name__):
    """KIP-932, WriteShareGroupState."""


class DeleteShareGroupStateRequest(ApiMessage, load_json=__name__):
    """KIP-932, DeleteShareGroupState."""


class DeleteShareGroupStateResponse(ApiMessage, load_json=__name__):
    """KIP-932, DeleteShareGroupState."""


class ReadShareGroupStateSummaryRequest(ApiMessage, load_json=__name__):
    """KIP-932, ReadShareGroupStateSummary."""


class ReadShareGroupStateSummaryResponse(ApiMessage, load_json=__name__):
    """KIP-932, ReadShareGroupStateSummary."""


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=__name__):
    """KIP-932, DescribeShareGroupOffsets."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=__name__):
    """KIP-932, DescribeShareGroupOffsets."""


class AlterShareGroupOffsetsRequest(ApiMessage, load_json=__name__):
    """KIP-932, AlterShareGroupOffsets."""


class AlterShareGroupOffsetsResponse(ApiMessage, load_json=__name__):
    """KIP-932, AlterShareGroupOffsets."""


class DeleteShareGroupOffsetsRequest(ApiMessage, load_json=__name__):
    """KIP-932, DeleteShareGroupOffsets."""


class DeleteShareGroupOffsetsResponse(ApiMessage, load_json=__name__):
    """KIP-932, DeleteShareGroupOffsets."""
