"""Settings of the log. Fields are properties: `rewrite_bytes` is `<noun>.<name>.rewrite.bytes`."""

from __future__ import annotations

from diskless_core.plugin.config import PluginSettings
from pydantic import Field


class FirstCoordinatorLogSettings(PluginSettings):
    """`coordinator_log.first_coordinator_log.*`"""

    rewrite_bytes: int = Field(
        default=16 << 20, ge=0, description="How much of a file may be forgotten before it is written anew, in bytes."
    )
