"""The entries of KIP-405's flat file, a node's own copy of what it knows of a partition's remote segments.

Their JSON schemas are in this folder.
"""

from __future__ import annotations

from collections.abc import Mapping

from diskless_core.protocol.codec import ApiData, CompiledRecord


class RemoteLogSegmentMetadataSnapshotRecord(CompiledRecord, ApiData, load_json=__name__):
    """A segment is known, in this state."""


class RemotePartitionDeleteMetadataSnapshotRecord(CompiledRecord, ApiData, load_json=__name__):
    """Extension: the partition's segments are being deleted."""


class RemoteLogSnapshotChecksumRecord(CompiledRecord, ApiData, load_json=__name__):
    """Extension: the file ends here, and this is its checksum."""


SNAPSHOT_RECORDS: Mapping[int, type[CompiledRecord]] = {
    record_class.json["apiKey"]: record_class
    for record_class in (
        RemoteLogSegmentMetadataSnapshotRecord,
        RemotePartitionDeleteMetadataSnapshotRecord,
        RemoteLogSnapshotChecksumRecord,
    )
}
"""The entries by api key."""
