"""WAL objects in this process's memory, for `memory://`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from threading import Lock

from diskless_core.plugin.wal_object_store import (
    ConditionalObjectStore,
    ConditionFailedError,
    ObjectData,
    VersionedObject,
)
from diskless_fsspec.keys import require_key
from diskless_fsspec.sync_store import SyncFilesystemStore

_changing = Lock()
"""Held while an object is compared and written, or deleted: fsspec has one memory for all stores of the process."""


class MemoryObjectStore(SyncFilesystemStore, ConditionalObjectStore):
    """Objects that are gone with the process. The version of one is a digest of its bytes."""

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        checked = [require_key(key) for key in keys]
        return await self._files.run("cannot delete objects", partial(self._delete, checked))

    async def create(self, key: str, data: ObjectData) -> str:
        return await self._files.run(f"cannot write {key!r}", partial(self._write_if, require_key(key), data, None))

    async def replace(self, key: str, data: ObjectData, version: str) -> str:
        return await self._files.run(f"cannot write {key!r}", partial(self._write_if, require_key(key), data, version))

    async def get_versioned(self, key: str) -> VersionedObject:
        data = await self._files.read(key, 0, 1 << 62)
        return VersionedObject(data, _version(data))

    def _delete(self, keys: Sequence[str]) -> list[str]:
        with _changing:
            return [key for key in keys if self._files.deleted(key)]

    def _write_if(self, key: str, data: ObjectData, version: str | None) -> str:
        with _changing:
            if self._found_version(key) != version:
                raise ConditionFailedError(key)
            self._write(key, data)
        return _version(data)

    def _found_version(self, key: str) -> str | None:
        try:
            return _version(self._files.filesystem.cat_file(self._files.path(key)))
        except (FileNotFoundError, IsADirectoryError):
            return None


def _version(data: ObjectData) -> str:
    return hashlib.sha256(data).hexdigest()
