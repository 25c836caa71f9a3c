"""What happens on disk before the log is open: the folder is locked, torn ends are cut, segments are found.

Everything here blocks and runs on a worker thread.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
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
from diskless_core.plugin.shard import ShardId, ShardKind

_LOCK_NAME = ".lock"
_MAX_PID_BYTES = 32

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


class FolderLock:
    """Keeps other processes out of a folder, until it is released or the process ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            CoordinatorLogError: somebody else has it.
        """
        fd = os.open(self._folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, _MAX_PID_BYTES, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise CoordinatorLogError(
                f"{self._folder} is in use by the process {holder}: stop it, or set another folder in log.dirs"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
        self._fd = fd

    def release(self) -> None:
        """Give it back. Idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, durably."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def recover_shards(data_dir: Path, *, fsync: bool) -> Iterator[RecoveredShard]:
    """Recover every shard below `data_dir`; with `fsync` what is found is durable before it is yielded.

    Raises:
        CoordinatorLogError: a last segment is corrupt before its end; no file of that shard was changed.
    """
    for folder in sorted(data_dir.iterdir()):
        shard = _shard_of(folder.name)
        if shard is not None and folder.is_dir():
            recovered = _recover_shard(shard, folder, fsync=fsync)
            if recovered is not None:
                yield recovered


def _shard_of(folder_name: str) -> ShardId | None:
    kind, _, index = folder_name.rpartition("-")
    if kind not in set(ShardKind) or not (index.isascii() and index.isdigit()):
        return None
    return ShardId(ShardKind(kind), int(index))


def _recover_shard(shard: ShardId, folder: Path, *, fsync: bool) -> RecoveredShard | None:
    found = [base_offset_of(path.name) for path in folder.iterdir()]
    base_offsets = sorted(base_offset for base_offset in found if base_offset is not None)
    if not base_offsets:
        return None
    segments = [_closed_segment(folder, base_offset) for base_offset in base_offsets[:-1]]
    last_path = folder / file_name(base_offsets[-1])
    recovered = _recover_last(last_path, base_offsets[-1], fsync=fsync)
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
