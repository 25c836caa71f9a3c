"""A plugin with nothing wrong, and one setting of each interesting kind."""

from __future__ import annotations

from pydantic import Field, SecretStr

from diskless_core.plugin.config import CommaSeparated, PluginSettings
from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.offset_assignment import OffsetAssignment, OffsetAssignmentPlugin


class HealthySettings(PluginSettings):
    step_size: int = Field(default=1, ge=1, description="Distance between batches, in offsets.")
    access_key: SecretStr | None = Field(default=None, description="Key to nothing.")
    favourite_racks: CommaSeparated = Field(default=(), description="Racks that it likes.")


class Healthy(OffsetAssignment):
    def __init__(self, context, settings):
        self.context = context
        self.settings = settings

    def assign(self, next_offset, record_counts):
        return [next_offset + sum(record_counts[:index]) for index in range(len(record_counts))]


@hookimpl
def diskless_offset_assignments() -> list[OffsetAssignmentPlugin]:
    return [
        OffsetAssignmentPlugin(
            name="animal", factory=Healthy, settings=HealthySettings, api_version="1.0", help="Lives in a zoo."
        )
    ]
