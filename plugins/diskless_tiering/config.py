"""Settings of the built-in parts of tiered storage."""

from __future__ import annotations

from diskless_core.plugin.config import PluginSettings
from diskless_core.plugin.segment_building.settings import SegmentBuildingSettings


class CoordinatorMetadataSettings(PluginSettings):
    """`remote_log_metadata.coordinator.*`: there is nothing to set."""


class InlineSettings(SegmentBuildingSettings):
    """`segment_compaction.inline.*`"""
