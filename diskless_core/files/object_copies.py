"""Copies objects from one object store to another, while others write to the first one and delete from it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from diskless_core.clock import Clock
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.plugin.wal_object_store import ObjectData, ObjectInfo, ObjectNotFoundError, WalObjectStore

COPIED_AT_ONCE = 8
"""Objects in memory at the same time at most."""

PART_BYTES = 64 << 20
"""What one read asks for. Segments are larger than WAL objects."""

_ALL = 1 << 62
_RETRIES = Backoff(first_ms=100, max_ms=5_000, attempts=6)


class ObjectCopies:
    """The objects of one place that are in another one too. Keys are the same in both.

    An object that the target has and that the source has not changed since is not copied again, so a copy that was
    interrupted goes on where it was.

    Attributes:
        copied: objects that were copied.
        copied_bytes: their size.
        vanished: keys of objects that were listed and were gone when they were to be copied.
    """

    def __init__(self, source: WalObjectStore, target: WalObjectStore, clock: Clock) -> None:
        self.copied = 0
        self.copied_bytes = 0
        self.vanished: set[str] = set()
        self._source = source
        self._target = target
        self._retrying = Retrying(_RETRIES, clock)
        self._present: dict[str, ObjectInfo | None] = {}

    async def copy_listed(self, prefix: str, *, but: str | None = None) -> None:
        """Copy what the source has below a prefix, but not what is below another one.

        Raises:
            WalObjectStoreError: one of the stores failed for longer.
        """
        async for page in self._target.list(prefix):
            for found in page:
                self._present.setdefault(found.key, found)
        async for page in self._source.list(prefix):
            listed = page if but is None else [found for found in page if not found.key.startswith(but)]
            wanted = [found for found in listed if not self._has(found)]
            self.vanished |= await self._copy_all((found.key, found.size_bytes) for found in wanted)

    async def copy(self, keys: Iterable[str]) -> set[str]:
        """Copy the objects of these keys, and return the keys of those that neither place has. Errors as before."""
        return await self._copy_all((key, PART_BYTES) for key in keys if key not in self._present)

    def _has(self, found: ObjectInfo) -> bool:
        if found.key not in self._present:
            return False
        known = self._present[found.key]
        return known is None or (known.size_bytes == found.size_bytes and known.modified_ms >= found.modified_ms)

    async def _copy_all(self, objects: Iterable[tuple[str, int]]) -> set[str]:
        rest, missing = iter(objects), set[str]()

        async def work() -> None:
            for key, size_bytes in rest:
                if not await self._copy_one(key, size_bytes):
                    missing.add(key)

        workers = [asyncio.create_task(work()) for _ in range(COPIED_AT_ONCE)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
        return missing

    async def _copy_one(self, key: str, size_bytes: int) -> bool:
        try:
            data = await self._retrying.do(lambda: self._read(key, size_bytes))
        except ObjectNotFoundError:
            return False
        await self._retrying.do(lambda: self._target.put(key, data))
        self._present[key] = None
        self.copied += 1
        self.copied_bytes += len(data)
        return True

    async def _read(self, key: str, size_bytes: int) -> ObjectData:
        if size_bytes <= PART_BYTES:
            return await self._source.get(key, 0, _ALL)
        whole = bytearray()
        while part := await self._source.get(key, len(whole), len(whole) + PART_BYTES):
            whole += part
        return whole
