"""Cuts what was read at batch boundaries, so that it begins at the batch of the fetch offset and keeps to a budget.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from diskless_core.fetch.object_reader import ReadError, ReadRun
from diskless_core.protocol import record_batch
from diskless_core.wal.runs import Run


def cut(runs: Sequence[tuple[Run, memoryview]], offset: int, max_bytes: int, *, at_least_one: bool) -> list[memoryview]:
    """Whole batches from the one that contains `offset` on, at most `max_bytes` of them.

    Args:
        runs: adjacent runs with their prepared bytes; the first contains `offset`.
        at_least_one: return the first batch even when it alone is larger than `max_bytes`.
    """
    slices: list[memoryview] = []
    left = max_bytes
    for run, view in runs:
        start = 0 if offset <= run.base_offset else _position_of(view, offset)
        end = _end_within(view, start, left, at_least_one=at_least_one and not slices)
        if end > start:
            slices.append(view[start:end])
            left -= end - start
        if end < len(view):
            break
    return slices


def within(slices: Sequence[memoryview], max_bytes: int, *, at_least_one: bool) -> list[memoryview]:
    """The first whole batches of slices that consist of such, at most `max_bytes`; as `cut` otherwise."""
    kept: list[memoryview] = []
    left = max_bytes
    for view in slices:
        end = _end_within(view, 0, left, at_least_one=at_least_one and not kept)
        if end:
            kept.append(view[:end])
            left -= end
        if end < len(view):
            break
    return kept


def sound_prefix(
    read: Iterable[tuple[Run, ReadRun]], offset: int
) -> tuple[list[tuple[Run, memoryview]], ReadError | None]:
    """What can be read up to the first failure; nothing if that comes before `offset`."""
    sound: list[tuple[Run, memoryview]] = []
    for run, content in read:
        if content.next_offset > offset:
            sound.append((run, content.data))
        if content.failure is not None:
            return sound, content.failure
    return sound, None


def _position_of(view: memoryview, offset: int) -> int:
    for position, header in record_batch.walk(view):
        if header.last_offset >= offset:
            return position
    return len(view)


def _end_within(view: memoryview, start: int, max_bytes: int, *, at_least_one: bool) -> int:
    if len(view) - start <= max_bytes:
        return len(view)
    end = start
    for position, header in record_batch.walk(view, start):
        after = position + header.size
        if after - start > max_bytes and not (at_least_one and position == start):
            break
        end = after
    return end
