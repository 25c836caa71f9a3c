"""Announces the built-in policies."""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.offset_assignment import OffsetAssignmentPlugin
from diskless_policies.config import SequentialSettings
from diskless_policies.sequential import SequentialAssignment


@hookimpl
def diskless_offset_assignments() -> list[OffsetAssignmentPlugin]:
    """Offset assignment as Kafka does it."""
    return [
        OffsetAssignmentPlugin(
            name="sequential",
            factory=SequentialAssignment,
            settings=SequentialSettings,
            api_version="1.0",
            help="Gives consecutive offsets in order of arrival, as Kafka does.",
        )
    ]
