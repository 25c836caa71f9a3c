"""How much of a partition retention by time and size removes. Pure; sees its segments, then runs page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from diskless_core.passed_time import Passed
from diskless_core.remote_log.tiered import TieredSegment
from diskless_core.wal.runs import Run

OFF = -1
_NEVER = 2**63


class Piece(NamedTuple):
    """What retention removes as a whole: a segment or a run. `newest_ms` is the time that its age counts from."""

    base_offset: int
    last_offset: int
    size_bytes: int
    newest_ms: int


def piece_of_run(run: Run) -> Piece:
    """Without timestamps the commit's time counts."""
    newest_ms = run.max_timestamp if run.max_timestamp >= 0 else run.append_time
    return Piece(run.base_offset, run.last_offset, run.byte_size, newest_ms)


def piece_of_segment(segment: TieredSegment, latest_ms: int) -> Piece:
    """Without timestamps that of the partition's latest record counts; without any, it does not age."""
    newest_ms = segment.max_timestamp if segment.max_timestamp >= 0 else latest_ms
    return Piece(segment.start_offset, segment.end_offset, segment.size_bytes, newest_ms if newest_ms >= 0 else _NEVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """A topic's `retention.ms` and `retention.bytes`; -1 turns one off. They work together: either may remove."""

    retention_ms: int
    retention_bytes: int

    def may_remove_from(self, size_bytes: int) -> bool:
        """Whether a partition of this size can have anything to remove."""
        return size_bytes > 0 and (self.retention_ms != OFF or self._is_over(size_bytes))

    def removes(self, piece: Piece, size_bytes: int, passed: Passed) -> bool:
        """Whether the oldest piece of a partition of this size has to go, as Kafka decides for a segment.

        By time, when all of its records are certainly older than `retention_ms`; timestamps in the future keep it. By
        size, when what is left without it is `retention_bytes` or more.
        """
        by_time = self.retention_ms != OFF and passed.since(piece.newest_ms) > self.retention_ms
        return by_time or self._is_over(size_bytes - piece.size_bytes + 1)

    def _is_over(self, size_bytes: int) -> bool:
        return self.retention_bytes != OFF and size_bytes > self.retention_bytes


def expired(pieces: Sequence[Piece], size_bytes: int, rules: RetentionRules, passed: Passed) -> Sequence[Piece]:
    """Those of a partition's oldest pieces that have to go: whole ones, oldest first, up to the first that stays.

    Args:
        pieces: adjacent ones from the log start on.
        size_bytes: the partition's size with all of them.
    """
    for count, piece in enumerate(pieces):
        if not rules.removes(piece, size_bytes, passed):
            return pieces[:count]
        size_bytes -= piece.size_bytes
    return pieces
