"""The backends that this broker has selected: where they come from, how they are set, and how they are doing."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from diskless_core.config.keys import is_secret, model_keys
from diskless_core.config.load import LoadedConfig
from diskless_core.plugin.config import REDACTED
from diskless_core.plugin_host.manager import PluginManager

DEFAULT = "default"


def selected_plugins(loaded: LoadedConfig, plugins: PluginManager) -> dict[str, Any]:
    """Every selected backend, and the process that they share, as JSON has it. No secret is in it."""
    return {
        "process": {
            "pid": os.getpid(),
            "resident_bytes": _resident_bytes(),
            "threads": len(list(Path("/proc/self/task").iterdir())),
            "python_threads": threading.active_count(),
        },
        "selected": [_backend(noun, loaded, plugins) for noun in loaded.plugins],
    }


def plugin_packages(loaded: LoadedConfig, plugins: PluginManager) -> Mapping[str, str]:
    """Which selected plugin a package of Python belongs to."""
    found: dict[str, str] = {}
    for noun, (descriptor, _) in loaded.plugins.items():
        plugin = f"{noun}.{descriptor.name}"
        module = plugins.get(noun, descriptor.name).entry_point.value.partition(":")[0]
        for one in (getattr(descriptor.factory, "__module__", module), module, module.partition(".")[0]):
            found.setdefault(one, plugin)
    return found


def _backend(noun: str, loaded: LoadedConfig, plugins: PluginManager) -> dict[str, Any]:
    descriptor, _ = loaded.plugins[noun]
    plugin = plugins.get(noun, descriptor.name)
    health = plugins.health.of(noun, descriptor.name)
    return {
        "noun": noun,
        "name": descriptor.name,
        "distribution": plugin.entry_point.distribution,
        "version": plugin.entry_point.version,
        "location": plugin.location,
        "api_version": descriptor.api_version,
        "source": loaded.origins.get(noun, DEFAULT),
        "state": health.state.value,
        "settings": _settings(noun, loaded),
        "health": health.as_json(),
    }


def _settings(noun: str, loaded: LoadedConfig) -> list[dict[str, Any]]:
    descriptor, settings = loaded.plugins[noun]
    shown = []
    for (key, field), name in zip(
        model_keys(type(settings), f"{noun}.{descriptor.name}.").items(), type(settings).model_fields, strict=True
    ):
        value = getattr(settings, name)
        if value is not None:
            value = REDACTED if is_secret(field) or isinstance(value, SecretStr) else str(value)
        shown.append({"name": key, "value": value, "source": loaded.origins.get(key, DEFAULT)})
    return shown


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
