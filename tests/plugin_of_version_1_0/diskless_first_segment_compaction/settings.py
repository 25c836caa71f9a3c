"""Settings of the engine. Fields are properties: `max_segment_bytes` is `<noun>.<name>.max.segment.bytes`."""

from __future__ import annotations

from diskless_core.plugin.config import PluginSettings
from pydantic import Field


class FirstSegmentCompactionSettings(PluginSettings):
    """`segment_compaction.first_segment_compaction.*`"""

    max_segment_bytes: int = Field(
        default=1 << 30, ge=1, description="The largest segment that is made, in bytes: it has to fit into memory."
    )
