"""What happens on disk before the log is open: torn ends are cut, segments are found.

Everything here blocks and runs on a worker thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
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

_log = logging.getLogger(__name__)


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


def recover_shards(data_dir: Path, *, fsync: bool) -> Iterator[RecoveredShard]:
    """Recover every shard below `data_dir`; with `fsync` what is found is durable before it is yielded.

    Raises:
        CoordinatorLogError: a last segment is corrupt before its end; no file of that shard was changed.
    """
    return _find_shards(data_dir, partial(_recover_last, fsync=fsync))


def look_at_shards(data_dir: Path) -> Iterator[RecoveredShard]:
    """Find every shard below `data_dir` as it is, without changing anything. A broker may be appending meanwhile.

    A torn end is left out; a last segment that is corrupt before its end reaches one offset into the damage, so that
    whoever reads on is told of it.
    """
    return _find_shards(data_dir, _look_at_last)


def _find_shards(data_dir: Path, open_last: Callable[[Path, int], RecoveredSegment]) -> Iterator[RecoveredShard]:
    for folder in sorted(data_dir.iterdir()):
        shard = parse_shard_id(folder.name)
        if shard is not None and folder.is_dir():
            found = _find_shard(shard, folder, open_last)
            if found is not None:
                yield found


def _find_shard(
    shard: ShardId, folder: Path, open_last: Callable[[Path, int], RecoveredSegment]
) -> RecoveredShard | None:
    found = [base_offset_of(path.name) for path in folder.iterdir()]
    base_offsets = sorted(base_offset for base_offset in found if base_offset is not None)
    if not base_offsets:
        return None
    segments = [_closed_segment(folder, base_offset) for base_offset in base_offsets[:-1]]
    last_path = folder / file_name(base_offsets[-1])
    recovered = open_last(last_path, base_offsets[-1])
    segments.append(Segment(base_offsets[-1], last_path, recovered.valid_bytes, recovered.index))
    return RecoveredShard(shard, segments, recovered.next_offset)


def _closed_segment(folder: Path, base_offset: int) -> Segment:
    path = folder / file_name(base_offset)
    return Segment(base_offset, path, path.stat().st_size, None)


def _recover_last(path: Path, base_offset: int, *, fsync: bool) -> RecoveredSegment:
    data = path.read_bytes()
    try:
        recovered = recover_tail(data, base_offset, gapless=True)
    except CorruptSegmentError as error:
        raise CoordinatorLogError(
            f"{path} is damaged: {error}. Nothing was changed. Put back an intact copy of the file; or, to give up "
            f"this shard's entries from offset {error.expected_offset} on, cut it with "
            f"'truncate -s {error.position} {path}' and start again"
        ) from error
    torn_bytes = len(data) - recovered.valid_bytes
    with path.open("r+b") as file:
        if torn_bytes:
            _log.warning("cutting %d bytes of a torn write off %s", torn_bytes, path)
            file.truncate(recovered.valid_bytes)
        if fsync:
            # A killed process leaves bytes that readers see but the disk may not have yet.
            os.fsync(file.fileno())
    if fsync:
        sync_folder(path.parent)
    return recovered


def _look_at_last(path: Path, base_offset: int) -> RecoveredSegment:
    data = path.read_bytes()
    try:
        return recover_tail(data, base_offset, gapless=True)
    except CorruptSegmentError as error:
        return RecoveredSegment(valid_bytes=len(data), next_offset=error.expected_offset + 1, index=SparseIndex())
