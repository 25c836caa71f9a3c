"""Settings of the keeper. Fields are properties: `file` is `<noun>.<name>.file`."""

from __future__ import annotations

from diskless_core.plugin.config import PluginSettings
from pydantic import Field


class FirstRemoteLogMetadataSettings(PluginSettings):
    """`remote_log_metadata.first_remote_log_metadata.*`"""

    file: str = Field(default="segments.db", description="Name of the file in the plugin's folder.")
