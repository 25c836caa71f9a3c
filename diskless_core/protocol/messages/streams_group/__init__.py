"""KIP-1071 on the wire: groups of Kafka Streams.

Their JSON schemas are in this folder.
"""

from __future__ import annotations

from diskless_core.protocol.codec import ApiMessage


class StreamsGroupHeartbeatRequest(ApiMessage, load_json=__name__):
    """KIP-1071, StreamsGroupHeartbeat."""


class StreamsGroupHeartbeatResponse(ApiMessage, load_json=__name__):
    """KIP-1071, StreamsGroupHeartbeat."""


class StreamsGroupDescribeRequest(ApiMessage, load_json=__name__):
    """KIP-1071, StreamsGroupDescribe."""


class StreamsGroupDescribeResponse(ApiMessage, load_json=__name__):
    """KIP-1071, StreamsGroupDescribe."""
