"""The records of KIP-405's topic `__remote_log_metadata`, as Apache Kafka 4 writes them.

Their JSON schemas are in this folder.
"""

from __future__ import annotations

from collections.abc import Mapping

from diskless_core.protocol.codec import ApiData, CompiledRecord


class RemoteLogSegmentMetadataRecord(CompiledRecord, ApiData, load_json=__name__):
    """A segment is being copied."""


class RemoteLogSegmentMetadataUpdateRecord(CompiledRecord, ApiData, load_json=__name__):
    """A segment has come into another state."""


class RemotePartitionDeleteMetadataRecord(CompiledRecord, ApiData, load_json=__name__):
    """The deletion of a partition's segments has come into another state."""


REMOTE_LOG_RECORDS: Mapping[int, type[CompiledRecord]] = {
    record_class.json["apiKey"]: record_class
    for record_class in (
        RemoteLogSegmentMetadataRecord,
        RemoteLogSegmentMetadataUpdateRecord,
        RemotePartitionDeleteMetadataRecord,
    )
}
"""The records by api key."""
