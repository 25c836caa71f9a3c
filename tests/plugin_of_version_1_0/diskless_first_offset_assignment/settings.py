"""Settings of the policy. Fields are properties: `multiple_of` is `<noun>.<name>.multiple.of`."""

from __future__ import annotations

from diskless_core.plugin.config import PluginSettings
from pydantic import Field


class FirstOffsetAssignmentSettings(PluginSettings):
    """`offset_assignment.first_offset_assignment.*`"""

    multiple_of: int = Field(default=1, ge=1, description="Every batch begins at a multiple of this number.")
