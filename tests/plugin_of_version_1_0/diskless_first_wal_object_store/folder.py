"""Objects as files of one folder, named after their keys. Everything here blocks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, unquote

from diskless_core.clock import Clock
from diskless_core.plugin.folders import make_folder, sync_folder
from diskless_core.plugin.wal_object_store import ObjectData, ObjectInfo

_INCOMING = ".incoming"


class Folder:
    """A flat space: `/` is quoted, so that there can be an object `a` and an object `a/b`."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    def prepare(self) -> None:
        """Make the folder, and find out whether it can be written."""
        make_folder(self._path / _INCOMING)
        probe = self._path / _INCOMING / self._clock.new_uuid().hex
        probe.write_bytes(b"")
        probe.unlink()

    def write(self, key: str, data: ObjectData) -> None:
        """Write under a passing name, sync, rename, sync the name: it is there whole and durable, or not at all."""
        incoming = self._path / _INCOMING / self._clock.new_uuid().hex
        try:
            with incoming.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            incoming.rename(self._of(key))
        except BaseException:
            incoming.unlink(missing_ok=True)
            raise
        sync_folder(self._path)

    def read(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`, or to the object's own end."""
        with self._of(key).open("rb") as file:
            file.seek(start)
            return file.read(max(0, min(end, os.fstat(file.fileno()).st_size) - start))

    def keys(self, prefix: str) -> list[str]:
        """All keys that begin with `prefix`, which may end within a part."""
        names = (entry.name for entry in os.scandir(self._path) if entry.name != _INCOMING)
        return [key for key in map(unquote, names) if key.startswith(prefix)]

    def describe(self, keys: Sequence[str]) -> list[ObjectInfo]:
        """Those of the objects that are still there."""
        found = []
        for key in keys:
            try:
                status = self._of(key).stat()
            except FileNotFoundError:
                continue
            found.append(ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000))
        return found

    def remove(self, keys: Sequence[str]) -> list[str]:
        """Those keys that are surely gone. What could not be deleted is left out, not hidden in an error for all."""
        gone = []
        for key in keys:
            try:
                self._of(key).unlink(missing_ok=True)
            except OSError:
                continue
            gone.append(key)
        sync_folder(self._path)
        return gone

    def _of(self, key: str) -> Path:
        return self._path / quote(key, safe="")
