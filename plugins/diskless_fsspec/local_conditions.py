"""Conditional writes to files of a folder that brokers of one host share: link(2) to create, a file lock to replace.

The version of a file is a digest of its bytes. Inode and time of change would not do: an inode is used again at once,
and the clock of a file system ticks every few milliseconds.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from diskless_core.clock import Clock
from diskless_core.plugin.folders import sync_folder
from diskless_core.plugin.retrying import Backoff
from diskless_core.plugin.wal_object_store import (
    ConditionFailedError,
    ObjectData,
    VersionedObject,
    WalObjectStoreError,
)
from diskless_fsspec.keys import INCOMING
from diskless_fsspec.local_folder import LocalFolder

T = TypeVar("T")

LOCK_NAME = "replace.lock"

LOCK_TIMEOUT_S = 30.0
"""A process that was stopped while it replaces a file keeps the lock: after so long the others give up, retriably."""

_LOCK_HELD = Backoff(first_ms=1, max_ms=20)

_WHOLE = 1 << 62


class _LockHeldError(Exception):
    """Somebody else holds the lock now."""


class ConditionalFiles:
    """Creates, replaces and reads files of a folder by version."""

    def __init__(self, folder: LocalFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._lock_path = folder.root / INCOMING / LOCK_NAME

    async def create(self, key: str, growing: Path, data: ObjectData) -> str:
        """Write a file where there is none, and return its version. It grows under the path `growing`."""
        doing = f"cannot write {key!r}"
        return await self._folder.when_writing(doing, partial(self._create, doing, key, growing, data))

    async def replace(self, key: str, growing: Path, data: ObjectData, version: str) -> str:
        """Write a file in the place of this version, and return the new version."""
        doing = f"cannot write {key!r}"
        return await self._when_locked(fcntl.LOCK_EX, doing, partial(self._replace, doing, key, growing, data, version))

    async def when_not_replacing(self, doing: str, work: Callable[[], T]) -> T:
        """Run work that removes files while no process replaces any: one that is just gone would come back."""
        return await self._when_locked(fcntl.LOCK_SH, doing, work)

    async def read(self, key: str) -> VersionedObject:
        """A whole file. Its name is durable at return, also if the process that wrote it was killed before that."""
        return await self._folder.when_reading_file(key, partial(self._read, self._folder.root / key))

    def _create(self, doing: str, key: str, growing: Path, data: ObjectData) -> str:
        target = self._folder.root / key
        if target.exists():
            raise ConditionFailedError(key)
        with self._grown(doing, target, growing, data):
            try:
                os.link(growing, target)
            except FileExistsError:
                raise ConditionFailedError(key) from None
            sync_folder(target.parent)
        return _version(data)

    def _replace(self, doing: str, key: str, growing: Path, data: ObjectData, version: str) -> str:
        target = self._folder.root / key
        try:
            found = _version(self._folder.files.read(target, 0, _WHOLE))
        except (FileNotFoundError, NotADirectoryError):
            raise ConditionFailedError(key) from None
        if found != version:
            raise ConditionFailedError(key)
        with self._grown(doing, target, growing, data):
            growing.rename(target)
            sync_folder(target.parent)
        return _version(data)

    def _read(self, path: Path) -> VersionedObject:
        data = self._folder.files.read(path, 0, _WHOLE)
        with suppress(FileNotFoundError):  # then the file is gone with its folder
            sync_folder(path.parent)
        return VersionedObject(data, _version(data))

    @contextmanager
    def _grown(self, doing: str, target: Path, growing: Path, data: ObjectData) -> Iterator[None]:
        """With the data in the file `growing`, which is gone afterwards."""
        with self._folder.made(growing.parent, target.parent, doing=doing):
            try:
                self._folder.files.write(growing, data)
                yield
            finally:
                with suppress(OSError):
                    growing.unlink()

    async def _when_locked(self, kind: int, doing: str, work: Callable[[], T]) -> T:
        """Run work on a thread with the lock. To wait for it takes no thread, which others need."""
        deadline = self._clock.monotonic() + LOCK_TIMEOUT_S
        tries = 0
        while True:
            try:
                return await self._folder.when_writing(doing, partial(self._locked, kind, doing, work))
            except _LockHeldError:
                if self._clock.monotonic() >= deadline:
                    raise WalObjectStoreError(
                        f"{doing}: another process has held {self._lock_path} for {LOCK_TIMEOUT_S:.0f} s; look for one "
                        "that is stopped, or a disk that hangs"
                    ) from None
            tries += 1
            await asyncio.sleep(_LOCK_HELD.pause_s(tries, self._clock))

    def _locked(self, kind: int, doing: str, work: Callable[[], T]) -> T:
        with self._folder.made(self._lock_path.parent, doing=doing):
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _LockHeldError from None
            return work()
        finally:
            os.close(descriptor)


def _version(data: ObjectData) -> str:
    return hashlib.sha256(data).hexdigest()
