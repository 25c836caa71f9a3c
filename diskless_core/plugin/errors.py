"""What can be wrong with a plugin, and the nearest-name hint that messages end with.

PluginError
├── PluginNotFoundError   the configured name belongs to no installed plugin
├── PluginConflictError   two distributions provide the same name
├── PluginLoadError       it is installed, but loading it failed
└── PluginFactoryError    it was loaded, but did not make a backend
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PluginError(Exception):
    """Base of all; the message tells the operator what to do. Retrying cannot help."""


class PluginNotFoundError(PluginError):
    """No installed plugin has that name. `suggestion` is the nearest name that exists, if any is near."""

    def __init__(self, message: str, *, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.suggestion = suggestion


class PluginConflictError(PluginError):
    """Two or more distributions provide one (noun, name); the message names them all."""


class PluginLoadError(PluginError):
    """An installed plugin can't be used. `traceback_text` is what `diskless plugins list` shows."""

    def __init__(self, message: str, *, traceback_text: str) -> None:
        super().__init__(message)
        self.traceback_text = traceback_text


class PluginFactoryError(PluginError):
    """A plugin's factory raised, or made something that is no backend. Free of the values of secrets."""

    def __init__(self, message: str, *, traceback_text: str = "") -> None:
        super().__init__(message)
        self.traceback_text = traceback_text


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` is most likely meant to be, or None when none is near."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return matches[0] if matches else None
