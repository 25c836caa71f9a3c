"""What happens on disk before the log is open: segments are found, and what an interrupted write left is cut.

Everything here blocks and runs on a worker thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from diskless_core.log.segment import (
    CorruptSegmentError,
    RecoveredSegment,
    SparseIndex,
    base_offset_of,
    file_name,
    recover_tail,
)
from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.plugin.folders import sync_folder
from diskless_core.plugin.shard import ShardId, parse_shard_id
from diskless_local_log.recovery_points import note_recovery_points, read_recovery_points

_log = logging.getLogger(__name__)

_PAGE_BYTES = 64 * 1024
"""At least a page of any system's cache."""


@dataclass(slots=True)
class Segment:
    """One segment file of a shard.

    Attributes:
        size: bytes that are committed and may be read; the file may be longer while a write is under way.
        index: sparse index of those bytes; None for a segment of an earlier run in which no reader has begun yet.
    """

    base_offset: int
    path: Path
    size: int
    index: SparseIndex | None


@dataclass(frozen=True, slots=True)
class RecoveredShard:
    """A shard as it was found; `segments` ascend, and there is at least one."""

    shard: ShardId
    segments: list[Segment]
    next_offset: int


def recover_shards(data_dir: Path, *, fsync: bool) -> list[RecoveredShard]:
    """Recover every shard below `data_dir`; with `fsync` what is found is durable when this returns.

    Raises:
        CoordinatorLogError: the end of a shard is damaged; no file of that shard was changed.
    """

    def recover(path: Path, base_offset: int, synced_offset: int) -> RecoveredSegment:
        return _recover_last(path, base_offset, synced_offset, fsync=fsync)

    synced_offsets = read_recovery_points(data_dir)
    looked_for = (
        _find_shard(shard, folder, recover, synced_offsets.get(shard, 0)) for shard, folder in shard_folders(data_dir)
    )
    found = [recovered for recovered in looked_for if recovered is not None]
    if fsync:
        note_recovery_points(data_dir, {recovered.shard: recovered.next_offset for recovered in found})
    return found


def look_at_shards(data_dir: Path) -> list[RecoveredShard]:
    """Find every shard below `data_dir` as it is, without changing anything. A broker may be appending meanwhile.

    What an interrupted write left is left out. A shard whose end is damaged reaches one offset into the damage, so that
    a reader who gets there is told.
    """
    return [found for shard, _ in shard_folders(data_dir) if (found := look_at_shard(data_dir, shard)) is not None]


def look_at_shard(data_dir: Path, shard: ShardId) -> RecoveredShard | None:
    """The same for one shard; None where it was never written."""
    folder = data_dir / str(shard)
    while folder.is_dir():
        # Read before the files are: a running broker only ever adds to what it has synced.
        synced_offset = read_recovery_points(data_dir).get(shard, 0)
        try:
            return _find_shard(shard, folder, _look_at_last, synced_offset)
        except FileNotFoundError:
            continue  # a broker deleted a segment between the look into the folder and the look at its file
    return None


OpenLast = Callable[[Path, int, int], RecoveredSegment]
"""Opens a last segment: its file, its base offset, and the offset below which the shard was synced."""


def shard_folders(data_dir: Path) -> Iterator[tuple[ShardId, Path]]:
    """Every shard below `data_dir` with its folder, in the order of their names."""
    for folder in sorted(data_dir.iterdir()):
        shard = parse_shard_id(folder.name)
        if shard is not None and folder.is_dir():
            yield shard, folder


def base_offsets(folder: Path) -> list[int]:
    """The base offsets of the segments in a shard's folder, ascending."""
    found = (base_offset_of(path.name) for path in folder.iterdir())
    return sorted(base_offset for base_offset in found if base_offset is not None)


def _find_shard(shard: ShardId, folder: Path, open_last: OpenLast, synced_offset: int) -> RecoveredShard | None:
    found = base_offsets(folder)
    if not found:
        return None
    segments = [_closed_segment(folder, base_offset) for base_offset in found[:-1]]
    last_path = folder / file_name(found[-1])
    recovered = open_last(last_path, found[-1], synced_offset)
    segments.append(Segment(found[-1], last_path, recovered.valid_bytes, recovered.index))
    return RecoveredShard(shard, segments, recovered.next_offset)


def _closed_segment(folder: Path, base_offset: int) -> Segment:
    path = folder / file_name(base_offset)
    return Segment(base_offset, path, path.stat().st_size, None)


def _recover_last(path: Path, base_offset: int, synced_offset: int, *, fsync: bool) -> RecoveredSegment:
    data = path.read_bytes()
    try:
        recovered = recover_tail(data, base_offset, synced_offset=synced_offset)
    except CorruptSegmentError as error:
        raise CoordinatorLogError(
            f"{path} is damaged: {error}. Nothing was changed. Put back an intact copy of the file, or run "
            f"{repair_command(path)} with this broker's configuration: it says what can be done, and what that gives up"
        ) from error
    torn_bytes = len(data) - recovered.valid_bytes
    with path.open("r+b") as file:
        if torn_bytes:
            _log.warning(
                "cutting %d bytes of an interrupted write off %s: nothing from offset %d on was acknowledged",
                torn_bytes,
                path,
                recovered.next_offset,
            )
            file.truncate(recovered.valid_bytes)
        if fsync:
            _rewrite(file.fileno(), data, recovered)
            os.fsync(file.fileno())
    if fsync:
        sync_folder(path.parent)
    return recovered


def repair_command(path: Path) -> str:
    """What an operator runs about a damaged segment."""
    return f"`diskless log repair {path.parent.name}`"


def _rewrite(fd: int, data: bytes, recovered: RecoveredSegment) -> None:
    """Write once more what may have been read from memory and not from the disk.

    After a sync that failed, the system may hold these pages for clean, and would report success for the next sync
    without writing them. The whole pages are written, so that this is also true of bytes that share them.
    """
    start = recovered.unsynced_from // _PAGE_BYTES * _PAGE_BYTES
    rest = memoryview(data)[start : recovered.valid_bytes]
    while rest:
        count = os.pwrite(fd, rest, recovered.valid_bytes - len(rest))
        rest = rest[count:]


def _look_at_last(path: Path, base_offset: int, synced_offset: int) -> RecoveredSegment:
    data = path.read_bytes()
    try:
        return recover_tail(data, base_offset, synced_offset=synced_offset)
    except CorruptSegmentError as error:
        return RecoveredSegment(
            valid_bytes=len(data), next_offset=error.expected_offset + 1, unsynced_from=0, index=SparseIndex()
        )
