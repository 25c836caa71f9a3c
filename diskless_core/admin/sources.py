"""What the HTTP interface needs from the rest of the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from diskless_core.cluster.view import ClusterView, Speaker
from diskless_core.coordinator.status import ShardStatus
from diskless_core.files.orphans import ScanReport
from diskless_core.metrics import Metrics
from diskless_core.plugin_host.loading import LoadedPlugin
from diskless_core.plugin_host.manager import Catalogue
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from diskless_core.tiering.compaction import Compactor
from diskless_core.tiering.layouts import Layouts

ReadinessCheck = Callable[[], Sequence[str]]
"""Says why the broker can't serve clients yet, a sentence for each reason; empty when it can."""


class ClusterSource(Protocol):
    """Says how the broker sees its cluster."""

    async def __call__(self, *, lag: bool, why_fenced: bool) -> ClusterView:
        """With `lag`, all brokers are asked how far their copies of the shards are.

        With `why_fenced`, the controller is asked why brokers are fenced, if any is.

        Raises:
            CoordinatorError: the broker is starting or stopping.
        """
        ...


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


class RemoteLogSource(Protocol):
    """Knows the segments in remote storage."""

    async def segments(self, *, topic: str | None, partition: int | None) -> Sequence[RemoteLogSegmentMetadata]:
        """Those that are not deleted, by topic, partition and start offset; of one topic, or partition number, or all.

        Raises:
            UnknownTopicError: there is no such topic.
            RemoteLogMetadataError: who keeps that did not answer.
        """
        ...

    async def adopt(
        self, topic: str, partition: int, log_start_offset: int, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> None:
        """Let an empty partition have segments that lie in its remote storage.

        Raises:
            AdoptionError: it cannot have them.
            CoordinatorError, RemoteLogMetadataError: no answer; it can be asked again.
        """
        ...


class PluginSource(Protocol):
    """The part of `PluginManager` that is shown."""

    def catalogue(self) -> Catalogue: ...

    def get(self, noun: str, name: str) -> LoadedPlugin: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All that is shown or done over HTTP. `readiness` is called on the event loop and must not block.

    Attributes:
        warnings: what is wrong with this process though it can serve clients; called as `readiness` is.
        selected: the selected backends and their process, as `models.SelectedAnswer`.
        compactor, remote_log, layouts: raise CoordinatorError while there is none.
    """

    metrics: Metrics
    speaker: Callable[[], Speaker]
    readiness: ReadinessCheck
    warnings: ReadinessCheck
    cluster: ClusterSource
    plugins: PluginSource
    selected: Callable[[], Mapping[str, Any]]
    shards: ShardSource
    orphans: OrphanScan
    compactor: Callable[[], Compactor]
    remote_log: Callable[[], RemoteLogSource]
    layouts: Callable[[], Layouts]
