"""How the segments of a Spark job are cut into tasks, and how the states of producers are put together. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from diskless_core.log import producer_snapshot
from diskless_core.log.producer_snapshot import ProducerEntry, ProducerState


class _Sized(Protocol):
    @property
    def size_bytes(self) -> int: ...


SegmentT = TypeVar("SegmentT", bound=_Sized)


def cut(
    partitions: Sequence[Sequence[SegmentT]], *, task_bytes: int, least_tasks: int, can_cut: bool
) -> list[list[Sequence[SegmentT]]]:
    """Cut segments into tasks of about the same size, the largest first.

    A task has neighbours: those share WAL objects, so that a task reads each object once for all of them. A partition
    is in several tasks where it is larger than one, at borders of segments.

    Args:
        partitions: the segments of each, in order.
        task_bytes: how large a task should be.
        least_tasks: how many there should be at least, so that no core is idle.
        can_cut: whether a partition may be in several tasks.

    Returns:
        For each task the segments of each of its partitions, in order.
    """
    pieces = [
        (number, piece)
        for number, segments in enumerate(partitions)
        for piece in (([one] for one in segments) if can_cut else [segments] if segments else [])
    ]
    sizes = [sum(segment.size_bytes for segment in piece) for _, piece in pieces]
    total = sum(sizes)
    count = max(1, min(len(pieces), max(-(-total // task_bytes), least_tasks)))
    tasks: list[dict[int, list[SegmentT]]] = [{} for _ in range(count)]
    done = 0
    for (number, piece), size in zip(pieces, sizes, strict=True):
        middle = 2 * done + size
        tasks[min(count - 1, middle * count // (2 * total))].setdefault(number, []).extend(piece)
        done += size
    found: list[list[Sequence[SegmentT]]] = [list(task.values()) for task in tasks if task]
    return sorted(found, key=_size, reverse=True)


def _size(task: Sequence[Sequence[SegmentT]]) -> int:
    return sum(segment.size_bytes for segments in task for segment in segments)


def producers_after(
    before: Mapping[int, ProducerEntry],
    noted: Mapping[int, ProducerEntry],
    *,
    max_timestamp_ms: int,
    expiration_ms: int,
) -> ProducerState:
    """The producers behind a segment.

    Args:
        before: those before it.
        noted: those that it has batches of.
        max_timestamp_ms: the segment's.
    """
    return producer_snapshot.without_expired(producer_snapshot.merge(before, noted), max_timestamp_ms, expiration_ms)
