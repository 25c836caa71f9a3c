"""Settings of the detector. Fields are properties: `pause_ms` is `<noun>.<name>.pause.ms`."""

from __future__ import annotations

from diskless_core.plugin.config import PluginSettings
from pydantic import Field


class FirstOrphanDetectionSettings(PluginSettings):
    """`orphan_detection.first_orphan_detection.*`"""

    pause_ms: int = Field(default=0, ge=0, description="Pause after each page of a listing, in milliseconds.")
