"""What a world needs of its metadata log, whichever it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from diskless_core.clock import Clock
from diskless_core.plugin.coordinator_log import CoordinatorLog, LogBatch
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import WalObjectStore

Watcher = Callable[[ShardId, LogBatch], None]
"""Is shown every entry of each log, in order, when it is in it for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One life of a broker, as its log plugin sees it."""

    node_id: int
    clock: Clock
    objects: WalObjectStore


class WorldLog(Protocol):
    """The log itself, and what can go wrong with it.

    Attributes:
        error_rate: how often (0 to 1) what a broker asks for fails; it may have happened, or happen later.
        slow_rate: how often it takes seconds.
        nominates_all_shards: whether its hints are followed for all shards, or for the cluster shard only.
        notices_the_dead: whether it nominates another node by itself when the nominated one falls silent.
    """

    error_rate: float
    slow_rate: float
    nominates_all_shards: bool
    notices_the_dead: bool

    def plugin(self, host: Host) -> CoordinatorLog:
        """The plugin of one life of a broker, not started."""

    def end(self, shard: ShardId) -> int:
        """The high watermark."""

    def pause_reads(self, node_id: int) -> None:
        """A node gets nothing new from the log until `resume_reads`."""

    def resume_reads(self, node_id: int) -> None:
        """Let the node catch up."""

    def nominates(self, shard: ShardId, node_id: int) -> bool:
        """Whether it nominates a node, as that node hears."""

    def nominate(self, shard: ShardId, leader: int, seen_by: Iterable[int] | None = None) -> None:
        """Nominate another leader, as the log may at any time; None: everybody hears of it."""

    def land_all(self) -> None:
        """What was to come later comes now, or never."""
