"""Announces the modules of this folder as if distributions with them were installed."""

from __future__ import annotations

import importlib

from diskless_core.plugin_host.discovery import PluginEntryPoint
from diskless_core.plugin_host.loading import QuarantinedPlugin, load_plugin


def announce(
    module: str,
    *,
    noun: str = "offset_assignment",
    name: str = "animal",
    distribution: str = "zoo",
    version: str = "1.2",
) -> PluginEntryPoint:
    """The entry point of a module of this folder, by its name without the package."""
    path = f"tests.broken_plugins.{module}"
    return PluginEntryPoint(
        noun=noun,
        name=name,
        value=path,
        distribution=distribution,
        version=version,
        load=lambda: importlib.import_module(path),
    )


def quarantined(entry_point: PluginEntryPoint) -> QuarantinedPlugin:
    """Load a plugin that must fail."""
    result = load_plugin(entry_point)
    assert isinstance(result, QuarantinedPlugin), f"{entry_point.value} was loaded"
    return result
