"""What the HTTP interface needs from the rest of the broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from diskless_core.plugin.loading import LoadedPlugin
from diskless_core.plugin.manager import Catalogue

ReadinessCheck = Callable[[], Sequence[str]]
"""Says why the broker can't serve clients yet, a sentence for each reason; empty when it can."""


class PluginSource(Protocol):
    """The part of `PluginManager` that is shown."""

    def catalogue(self) -> Catalogue: ...

    def get(self, noun: str, name: str) -> LoadedPlugin: ...
