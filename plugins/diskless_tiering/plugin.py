"""Announces the built-in parts of tiered storage."""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataPlugin
from diskless_core.plugin.segment_compaction import SegmentCompactionPlugin
from diskless_tiering.config import CoordinatorMetadataSettings, InlineSettings
from diskless_tiering.coordinator_metadata import CoordinatorMetadata
from diskless_tiering.inline import InlineCompaction


@hookimpl
def diskless_remote_log_metadatas() -> list[RemoteLogMetadataPlugin]:
    """The metadata of segments where that of WAL objects is."""
    return [
        RemoteLogMetadataPlugin(
            name="coordinator",
            factory=CoordinatorMetadata,
            settings=CoordinatorMetadataSettings,
            api_version="1.0",
            help="Keeps the metadata of segments with the Diskless coordinators, in their own log.",
        )
    ]


@hookimpl
def diskless_segment_compactions() -> list[SegmentCompactionPlugin]:
    """Compaction without a cluster beside the broker."""
    return [
        SegmentCompactionPlugin(
            name="inline",
            factory=InlineCompaction,
            settings=InlineSettings,
            api_version="1.0",
            help="Compacts in the broker itself, a few partitions at once.",
        )
    ]
