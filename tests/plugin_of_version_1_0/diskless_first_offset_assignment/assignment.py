"""The policy `first_offset_assignment`: which offsets the batches of a commit get."""

from __future__ import annotations

from collections.abc import Sequence

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.offset_assignment import OffsetAssignment

from diskless_first_offset_assignment.settings import FirstOffsetAssignmentSettings


class FirstOffsetAssignmentAssignment(OffsetAssignment):
    """Each batch begins where the one before it ended, or at the next multiple of a number.

    Every node calls this at every replay of its log. So it must be pure: no clock, no randomness, no state. A setting
    that is changed on one node only makes nodes disagree: say so in your README.
    """

    def __init__(self, context: PluginContext, settings: FirstOffsetAssignmentSettings) -> None:
        """A factory does no I/O."""
        del context
        self._multiple_of = settings.multiple_of

    def assign(self, next_offset: int, record_counts: Sequence[int]) -> Sequence[int]:
        # Replace this by your rule. Offsets may have gaps; they never go back, and never overlap.
        offsets = []
        for count in record_counts:
            base_offset = -(-next_offset // self._multiple_of) * self._multiple_of  # rounded up
            offsets.append(base_offset)
            next_offset = base_offset + count
        return offsets
