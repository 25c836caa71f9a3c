"""A power cut, as far as a test can make one: of a folder's files only what was synced is left.

It knows of syncs by Python's `os.fsync` and `os.fdatasync`. What a library in C syncs it does not see.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class HasFileno(Protocol):
    """What has a file descriptor."""

    def fileno(self) -> int: ...


class Sync(Protocol):
    """As `os.fsync` is."""

    def __call__(self, fd: int | HasFileno) -> None: ...


_SECTOR_BYTES = 512
_NOTHING_SYNCED = "an append that was acknowledged has synced no file"

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
        self._with_hole: Image | None = None
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
        """Remember what a power cut in the middle of the next sync of a file can leave: `torn`, `torn_with_hole`."""
        self._torn, self._is_armed = None, True

    def torn(self) -> Image:
        """What such a power cut left: of what was to be synced, the first half.

        Raises:
            AssertionError: nothing was synced since.
        """
        assert self._torn is not None, _NOTHING_SYNCED
        return self._torn

    def torn_with_hole(self) -> Image:
        """What such a power cut left where the disk wrote in another order: all but one sector, which reads as zeros.

        Nothing is missing where what was to be synced has no whole sector in its middle.

        Raises:
            AssertionError: nothing was synced since.
        """
        assert self._with_hole is not None, _NOTHING_SYNCED
        return self._with_hole

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
                    self._is_armed = False
                    self._torn, self._with_hole = self._image(path, _half), self._image(path, _holed)
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

    def _image(self, torn: Path | None = None, tear: Callable[[bytes, bytes], bytes] | None = None) -> Image:
        """What is durable; of the file `torn`, what `tear` makes of its durable and its written content."""
        image: Image = {}
        torn_inode = None if torn is None else torn.stat().st_ino
        folders = [(Path(), self._folder.stat().st_ino)]
        while folders:
            at, inode = folders.pop()
            for name, child in self._names.get(inode, {}).items():
                if child in self._names:
                    folders.append((at / name, child))
                else:
                    image[at / name] = self._contents.get(child, b"")
                    if child == torn_inode and torn is not None and tear is not None:
                        image[at / name] = tear(image[at / name], torn.read_bytes())
        return image


def _half(synced: bytes, written: bytes) -> bytes:
    if not written.startswith(synced):
        return synced
    return written[: len(synced) + (len(written) - len(synced)) // 2]


def _holed(synced: bytes, written: bytes) -> bytes:
    if not written.startswith(synced):
        return synced
    sector = (len(synced) + len(written)) // 2 // _SECTOR_BYTES * _SECTOR_BYTES
    if sector < len(synced) or sector + _SECTOR_BYTES > len(written):
        return written
    return written[:sector] + bytes(_SECTOR_BYTES) + written[sector + _SECTOR_BYTES :]
