"""Segments as folders with a file for the log and one for each index. Everything here blocks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import BinaryIO

from diskless_core.clock import Clock
from diskless_core.plugin.folders import make_folder, sync_folder
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.plugin.wal_object_store import ObjectData

LOG = ".log"


class Folder:
    """The segments, each a folder named after the id of its copy."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    def prepare(self) -> None:
        """Make the folder, and find out whether it can be written."""
        make_folder(self._path)
        probe = self._path / f".probe-{self._clock.new_uuid().hex}"
        probe.write_bytes(b"")
        probe.unlink()

    def incoming(self, segment: str) -> Incoming:
        """A file that grows under a passing name, in the segment's folder: whatever is left of it goes with that."""
        return Incoming(self._path / segment / f"incoming-{self._clock.new_uuid().hex}")

    def put(self, segment: str, index: IndexType, content: bytes) -> None:
        """Put an index in the place of what is there."""
        incoming = self.incoming(segment)
        try:
            incoming.open()
            incoming.write(content)
            incoming.finish(index.value)
        finally:
            incoming.discard()

    def read(self, segment: str, name: str, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`, or to the file's own end."""
        with (self._path / segment / name).open("rb") as file:
            file.seek(start)
            return file.read(max(0, min(end, os.fstat(file.fileno()).st_size) - start))

    def remove(self, segment: str) -> None:
        """Remove a segment, or what a copy left of it. The log goes first: without it there is no segment."""
        folder = self._path / segment
        if folder.is_dir():
            (folder / LOG).unlink(missing_ok=True)
            sync_folder(folder)
            shutil.rmtree(folder)
            sync_folder(self._path)


class Incoming:
    """A file that nobody reads yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def open(self) -> None:
        """Make it, and the segment's folder."""
        make_folder(self._path.parent)
        self._file = self._path.open("xb")

    def write(self, piece: ObjectData) -> None:
        """Add a piece of any size."""
        if self._file is not None:
            self._file.write(piece)

    def finish(self, name: str) -> None:
        """Sync it, give it its name, sync the name: it is there whole and durable, or not at all."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._path.rename(self._path.with_name(name))
        sync_folder(self._path.parent)

    def discard(self) -> None:
        """Close it, and remove it if it has got no name."""
        if self._file is not None:
            self._file.close()
        self._path.unlink(missing_ok=True)
