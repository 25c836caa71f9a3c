"""Folders on disk: made durably, and locked as Kafka locks its log folders. Everything here blocks."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_LOCK_NAME = ".lock"
_MAX_PID_BYTES = 32


class FolderInUseError(Exception):
    """Another process has the folder; the message says which one, and what to do."""


class FolderLock:
    """A lock on a folder, held until it is released or the process ends. Other locks of this process count too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock. The folder has to exist.

        Raises:
            FolderInUseError: somebody else has it.
            OSError: the lock's file can't be opened.
        """
        fd = os.open(self._folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, _MAX_PID_BYTES, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise FolderInUseError(
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


def write_durably(path: Path, content: bytes) -> None:
    """Put a file in the place of what is there: it is there whole, or not at all."""
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
