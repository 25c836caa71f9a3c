"""Which byte ranges of which objects to read for a set of runs. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from diskless_core.plugin.wal_object_store import MAX_GAP_BYTES
from diskless_core.wal.runs import Run

MAX_RANGE_BYTES = 8 << 20


class ObjectRange(NamedTuple):
    """Bytes `start` (inclusive) to `end` (exclusive) of an object."""

    object_key: str
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    def covers(self, other: ObjectRange) -> bool:
        return self.object_key == other.object_key and self.start <= other.start and other.end <= self.end


def ranges(runs: Iterable[Run]) -> list[ObjectRange]:
    """As few ranges as make sense that together cover all runs; each run lies wholly in one of them."""
    wanted = sorted({ObjectRange(run.object_key, run.byte_offset, run.byte_offset + run.byte_size) for run in runs})
    merged: list[ObjectRange] = []
    for part in wanted:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.object_key == part.object_key
            and part.start - last.end <= MAX_GAP_BYTES
            and max(part.end, last.end) - last.start <= MAX_RANGE_BYTES
        ):
            merged[-1] = last._replace(end=max(last.end, part.end))
        else:
            merged.append(part)
    return merged


def starved_first(partitions: Sequence[Hashable], starved: Sequence[Hashable]) -> list[int]:
    """Indexes of `partitions` in the order to serve them: those that starved, the longest first, then as requested."""
    if not starved:
        return list(range(len(partitions)))
    turn = {partition: place for place, partition in enumerate(starved)}
    return sorted(range(len(partitions)), key=lambda index: turn.get(partitions[index], len(turn)))
