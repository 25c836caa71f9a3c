"""KIP-848 on the wire and in `__consumer_offsets`: heartbeat, describe, and the records of groups of that protocol.

Their JSON schemas are in this folder. Version 4.1 of Apache Kafka and later keep no ConsumerGroupPartitionMetadata (4).
"""

from __future__ import annotations

from diskless_core.protocol.codec import ApiData, ApiMessage, CompiledRecord


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=__name__):
    """KIP-848, "ConsumerGroupHeartbeat API"."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=__name__):
    """KIP-848, "ConsumerGroupHeartbeat API"."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__name__):
    """KIP-848, "ConsumerGroupDescribe API"."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__name__):
    """KIP-848, "ConsumerGroupDescribe API"."""


class ConsumerGroupMetadataKey(CompiledRecord, ApiData, load_json=__name__):
    """Key of a group."""


class ConsumerGroupMetadataValue(CompiledRecord, ApiData, load_json=__name__):
    """A group: its epoch, and the hash of what it subscribes to."""


class ConsumerGroupMemberMetadataKey(CompiledRecord, ApiData, load_json=__name__):
    """Key of a member."""


class ConsumerGroupMemberMetadataValue(CompiledRecord, ApiData, load_json=__name__):
    """What a member said of itself."""


class ConsumerGroupTargetAssignmentMetadataKey(CompiledRecord, ApiData, load_json=__name__):
    """Key of a group's target assignment."""


class ConsumerGroupTargetAssignmentMetadataValue(CompiledRecord, ApiData, load_json=__name__):
    """The epoch of a group's target assignment."""


class ConsumerGroupTargetAssignmentMemberKey(CompiledRecord, ApiData, load_json=__name__):
    """Key of a member's target assignment."""


class ConsumerGroupTargetAssignmentMemberValue(CompiledRecord, ApiData, load_json=__name__):
    """A member's target assignment."""


class ConsumerGroupCurrentMemberAssignmentKey(CompiledRecord, ApiData, load_json=__name__):
    """Key of what a member owns."""


class ConsumerGroupCurrentMemberAssignmentValue(CompiledRecord, ApiData, load_json=__name__):
    """What a member owns, and its epoch."""


class ConsumerGroupRegularExpressionKey(CompiledRecord, ApiData, load_json=__name__):
    """Key of a resolved regular expression."""


class ConsumerGroupRegularExpressionValue(CompiledRecord, ApiData, load_json=__name__):
    """The topics that a regular expression matches."""
