"""What is counted of one shard on this node while it works (KIP-1164, "Monitoring")."""

from __future__ import annotations

from typing import NamedTuple

from diskless_core.metrics import Metrics
from diskless_core.plugin.shard import ShardId


class ShardMeter:
    """One shard's counters, looked up once, so that counting costs an addition.

    What follows from the shard's state is not here: it is read by each scrape, see `Metrics.watch_shard`.
    """

    def __init__(self, metrics: Metrics, shard: ShardId) -> None:
        name = str(shard)
        self.command_seconds = metrics.coordinator_command_seconds.labels(name)
        self.flush_seconds = metrics.coordinator_flush_seconds.labels(name)
        self.flushed_rows = metrics.coordinator_flushed_rows.labels(name)
        self.flush_failures = metrics.coordinator_flush_failures.labels(name)
        self.refused_commands = metrics.coordinator_refused_commands.labels(name)
        self.log_entries = metrics.coordinator_log_entries.labels(name)
        self.streamed_entries = metrics.coordinator_streamed_entries.labels(name)
        self.differences = metrics.coordinator_differences.labels(name)
        self.disputed_claims = metrics.coordinator_disputed_claims.labels(name)
        self.foreign_batches = metrics.coordinator_foreign_batches.labels(name)
        self.snapshots_taken = metrics.coordinator_snapshots_taken.labels(name)
        self.snapshot_failures = metrics.coordinator_snapshot_failures.labels(name)


class SnapshotMark(NamedTuple):
    """The newest snapshot of a shard that this node knows of.

    Attributes:
        applied_offset: everything in the log below it is in the snapshot.
        taken_at: in milliseconds since the epoch.
        applied_bytes: of the log below that offset, by this process; 0 for what an earlier process applied.
        size_bytes: of its parts.
    """

    applied_offset: int
    taken_at: int
    applied_bytes: int
    size_bytes: int
