"""How much of a partition retention by time and by size removes. Pure; sees one page of runs at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diskless_core.coordinator.commands import Run

OFF = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """A topic's `retention.ms` and `retention.bytes`; -1 turns one off. They work together: either may remove a run."""

    retention_ms: int
    retention_bytes: int

    def may_remove_from(self, size_bytes: int) -> bool:
        """Whether a partition of this size can have anything to remove."""
        return size_bytes > 0 and (self.retention_ms != OFF or self._is_over(size_bytes))

    def removes(self, run: Run, size_bytes: int, now_ms: int) -> bool:
        """Whether the oldest run of a partition of this size has to go, as Kafka decides for a segment.

        By time, when all of its records are older than `retention_ms`; timestamps in the future keep it, and without
        timestamps the commit's time counts. By size, when what is left without it is `retention_bytes` or more.
        """
        newest = run.max_timestamp if run.max_timestamp >= 0 else run.append_time
        by_time = self.retention_ms != OFF and now_ms - newest > self.retention_ms
        return by_time or self._is_over(size_bytes - run.byte_size + 1)

    def _is_over(self, size_bytes: int) -> bool:
        return self.retention_bytes != OFF and size_bytes > self.retention_bytes


def expired(runs: Sequence[Run], size_bytes: int, rules: RetentionRules, now_ms: int) -> Sequence[Run]:
    """Those of a partition's oldest runs that have to go: whole runs, oldest first, up to the first that stays.

    Args:
        runs: adjacent runs from the log start on.
        size_bytes: the partition's size with all of them.
    """
    for count, run in enumerate(runs):
        if not rules.removes(run, size_bytes, now_ms):
            return runs[:count]
        size_bytes -= run.byte_size
    return runs
