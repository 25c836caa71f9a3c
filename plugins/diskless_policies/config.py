"""Settings of the built-in policies."""

from __future__ import annotations

from diskless_core.plugin.config import PluginSettings


class SequentialSettings(PluginSettings):
    """`offset_assignment.sequential.*`: there is nothing to set."""
