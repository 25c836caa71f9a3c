"""What this distribution announces: the entry point in pyproject.toml names this module.

It is imported whenever plugins are listed, so it should import little that takes long.
"""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.offset_assignment import OffsetAssignmentPlugin

from diskless_first_offset_assignment.assignment import FirstOffsetAssignmentAssignment
from diskless_first_offset_assignment.settings import FirstOffsetAssignmentSettings


@hookimpl
def diskless_offset_assignments() -> list[OffsetAssignmentPlugin]:
    """A list, as one module can bring several backends. Each has an entry point of its own."""
    return [
        OffsetAssignmentPlugin(
            name="first_offset_assignment",
            factory=FirstOffsetAssignmentAssignment,
            settings=FirstOffsetAssignmentSettings,
            # The plugin API that this was written for, not the newest one: older brokers can use it too.
            api_version="1.0",
            help="Starts every batch at a multiple of a configured number.",
        )
    ]
