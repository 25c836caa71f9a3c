"""What the HTTP interface needs from the rest of the broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from diskless_core.coordinator.status import ShardStatus
from diskless_core.files.orphans import ScanReport
from diskless_core.metrics import Metrics
from diskless_core.plugin.loading import LoadedPlugin
from diskless_core.plugin.manager import Catalogue

ReadinessCheck = Callable[[], Sequence[str]]
"""Says why the broker can't serve clients yet, a sentence for each reason; empty when it can."""


class ShardSource(Protocol):
    """Says how the broker's coordinator shards are doing."""

    async def __call__(self, *, count: bool) -> Sequence[ShardStatus]:
        """With `count`, what only the stores have is counted too.

        Raises:
            CoordinatorLogError, CoordinatorStoreError: a backend did not answer.
        """
        ...


class OrphanScan(Protocol):
    """Looks for objects that nobody committed."""

    async def __call__(self, *, dry_run: bool) -> ScanReport:
        """Arguments and errors as `OrphanScanner.scan`."""
        ...


class PluginSource(Protocol):
    """The part of `PluginManager` that is shown."""

    def catalogue(self) -> Catalogue: ...

    def get(self, noun: str, name: str) -> LoadedPlugin: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All that is shown or done over HTTP. `readiness` is called on the event loop and must not block."""

    metrics: Metrics
    readiness: ReadinessCheck
    plugins: PluginSource
    shards: ShardSource
    orphans: OrphanScan
