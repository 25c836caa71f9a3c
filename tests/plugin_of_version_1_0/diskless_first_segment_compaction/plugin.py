"""What this distribution announces: the entry point in pyproject.toml names this module.

It is imported whenever plugins are listed, so it should import little that takes long.
"""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.segment_compaction import SegmentCompactionPlugin

from diskless_first_segment_compaction.engine import FirstSegmentCompactionCompaction
from diskless_first_segment_compaction.settings import FirstSegmentCompactionSettings


@hookimpl
def diskless_segment_compactions() -> list[SegmentCompactionPlugin]:
    """A list, as one module can bring several backends. Each has an entry point of its own."""
    return [
        SegmentCompactionPlugin(
            name="first_segment_compaction",
            factory=FirstSegmentCompactionCompaction,
            settings=FirstSegmentCompactionSettings,
            # The plugin API that this was written for, not the newest one: older brokers can use it too.
            api_version="1.0",
            help="Makes one segment after the other, in memory.",
        )
    ]
