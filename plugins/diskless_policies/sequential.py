"""Offsets without gaps: each batch starts where the one before it ended, as in Kafka's log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.offset_assignment import OffsetAssignment
from diskless_policies.config import SequentialSettings


class SequentialAssignment(OffsetAssignment):
    """Consecutive offsets in order of arrival, beginning with the partition's first free one."""

    def __init__(self, context: PluginContext, settings: SequentialSettings) -> None:
        """Make the policy; it needs nothing of its context."""
        del context, settings

    def assign(self, next_offset: int, record_counts: Sequence[int]) -> Sequence[int]:
        return list(accumulate(record_counts, initial=next_offset))[: len(record_counts)]
