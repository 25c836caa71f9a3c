"""Says which plugin uses a deprecated name of the author API while it is loaded."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from diskless_core.plugin.deprecation import PluginApiDeprecationWarning
from diskless_core.plugin_host.discovery import PluginEntryPoint

_log = structlog.get_logger(__name__)


@contextmanager
def deprecations_told(entry_point: PluginEntryPoint) -> Iterator[None]:
    """Log the deprecated names that are used in here, with the plugin's name. All warnings are passed on, too."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PluginApiDeprecationWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, PluginApiDeprecationWarning):
            _log.warning(
                "a plugin uses what a later release will not have: ask its author for a newer version",
                plugin=entry_point.key,
                distribution=entry_point.provider,
                deprecated=str(warning.message),
            )
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
