"""Begins every batch at an even offset."""

from __future__ import annotations

from collections.abc import Sequence

from diskless_core.plugin.config import PluginSettings
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.offset_assignment import OffsetAssignment


class EvenOffsets(OffsetAssignment):
    """Leaves an offset out behind each batch of an odd number of records."""

    def __init__(self, context: PluginContext, settings: PluginSettings) -> None:
        del context, settings

    def assign(self, next_offset: int, record_counts: Sequence[int]) -> Sequence[int]:
        offsets = []
        for count in record_counts:
            base_offset = next_offset + next_offset % 2
            offsets.append(base_offset)
            next_offset = base_offset + count
        return offsets
