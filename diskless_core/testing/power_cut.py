"""A power cut, as far as a test can make one: of a folder's files only what was synced is left.

It knows of syncs by Python's `os.fsync` and `os.fdatasync`. What a library in C syncs it does not see.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from pathlib import Path
from typing import Protocol


class HasFileno(Protocol):
    """What has a file descriptor."""

    def fileno(self) -> int: ...


class Sync(Protocol):
    """As `os.fsync` is."""

    def __call__(self, fd: int | HasFileno) -> None: ...


Image = dict[Path, bytes]
"""The files that are left, by their path below the folder."""


class SyncedFiles:
    """A context that watches over a folder. What is there when it begins counts as synced.

    The content of a file is durable once the file was synced, its name once the folder was in which it is. The folder
    that is watched over is there in any case.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._torn: Image | None = None
        self._is_armed = False

    def __enter__(self) -> SyncedFiles:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._fsync, self._fdatasync = os.fsync, os.fdatasync
        for path in (self._folder, *self._folder.rglob("*")):
            self._note(path)
        os.fsync, os.fdatasync = self._watched(self._fsync), self._watched(self._fdatasync)
        return self

    def __exit__(self, *_: object) -> None:
        os.fsync, os.fdatasync = self._fsync, self._fdatasync

    def durable(self) -> Image:
        """What a power cut would leave now."""
        with self._lock:
            return self._image()

    def tear_at_next_sync(self) -> None:
        """Remember what a power cut leaves in the middle of the next sync of a file: half of what it should sync."""
        self._torn, self._is_armed = None, True

    def torn(self) -> Image:
        """What such a power cut left.

        Raises:
            AssertionError: nothing was synced since.
        """
        assert self._torn is not None, "an append that was acknowledged has synced no file"
        return self._torn

    def leave(self, image: Image) -> None:
        """Make the folder as an image has it. Nobody may be using it."""
        shutil.rmtree(self._folder)
        self._folder.mkdir()
        for name, content in image.items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def _watched(self, sync: Sync) -> Sync:
        def watched(fd: int | HasFileno) -> None:
            path = self._path_of(fd if isinstance(fd, int) else fd.fileno())
            with self._lock:
                if path is not None and path.is_file() and self._is_armed:
                    self._is_armed, self._torn = False, self._image(half_of=path)
            sync(fd)
            with self._lock:
                if path is not None:
                    self._note(path)

        return watched

    def _path_of(self, fd: int) -> Path | None:
        inode = os.fstat(fd).st_ino
        paths = (self._folder, *self._folder.rglob("*"))
        return next((path for path in paths if path.exists() and path.stat().st_ino == inode), None)

    def _note(self, path: Path) -> None:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            entries = {entry.name: entry.stat() for entry in path.iterdir()}
            self._names[status.st_ino] = {name: entry.st_ino for name, entry in entries.items()}
            for entry in entries.values():
                if stat.S_ISDIR(entry.st_mode):  # a folder that was not synced itself is empty, and no file
                    self._names.setdefault(entry.st_ino, {})
        else:
            self._contents[status.st_ino] = path.read_bytes()

    def _image(self, half_of: Path | None = None) -> Image:
        image: Image = {}
        half = None if half_of is None else half_of.stat().st_ino
        folders = [(Path(), self._folder.stat().st_ino)]
        while folders:
            at, inode = folders.pop()
            for name, child in self._names.get(inode, {}).items():
                if child in self._names:
                    folders.append((at / name, child))
                else:
                    image[at / name] = self._contents.get(child, b"")
                    if child == half and half_of is not None:
                        image[at / name] = _half(image[at / name], half_of.read_bytes())
        return image


def _half(synced: bytes, written: bytes) -> bytes:
    if not written.startswith(synced):
        return synced
    return written[: len(synced) + (len(written) - len(synced)) // 2]
