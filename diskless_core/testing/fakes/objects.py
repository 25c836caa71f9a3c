"""A WAL object store in memory that fails, waits and loses answers when told to. No thread: any event loop will do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from itertools import islice

from diskless_core.clock import Clock
from diskless_core.plugin.wal_object_store import (
    ObjectData,
    ObjectInfo,
    ObjectNotFoundError,
    WalObjectStore,
    WalObjectStoreError,
)
from diskless_core.testing.fakes.faults import Misbehaving


class Operation(StrEnum):
    """What of the store can be made to misbehave."""

    PUT = "put"
    GET = "get"
    LIST = "list"
    DELETE = "delete"


def slow_down() -> WalObjectStoreError:
    """What S3 says when it is asked too much: retriable."""
    return WalObjectStoreError("503 SlowDown: reduce your request rate")


def access_denied() -> WalObjectStoreError:
    """An error that no retry helps."""
    return WalObjectStoreError("403 AccessDenied", retriable=False)


class MemoryWalObjectStore(Misbehaving[Operation], WalObjectStore):
    """Objects in `objects`, which a test may read and change. Several brokers of one process may share an instance.

    Attributes:
        objects: the bytes of each object by key.
    """

    is_node_local = False
    is_process_local = True

    def __init__(self, clock: Clock, *, page_objects: int = 1000, requests_are_billed: bool = False) -> None:
        super().__init__(Operation, slow_down)
        self.requests_are_billed = requests_are_billed
        self.objects: dict[str, bytes] = {}
        self._clock = clock
        self._page_objects = page_objects
        self._modified_ms: dict[str, int] = {}

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do: what was stored is there for the next start, and for others meanwhile."""

    async def put(self, key: str, data: ObjectData) -> None:
        kept = bytes(data)
        async with self._called(Operation.PUT):
            if kept != data:
                raise AssertionError(f"the body of {key!r} was changed while it was written")
            self.objects[key] = kept
            self._modified_ms[key] = self._clock.now_ms()

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        async with self._called(Operation.GET):
            try:
                return self.objects[key][start:end]
            except KeyError:
                raise ObjectNotFoundError(key) from None

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        async with self._called(Operation.LIST):
            keys = iter(sorted(key for key in self.objects if key.startswith(prefix)))
        while some := list(islice(keys, self._page_objects)):
            if page := [self._info(key) for key in some if key in self.objects]:
                yield page
            await asyncio.sleep(0)

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        async with self._called(Operation.DELETE):
            for key in keys:
                self.objects.pop(key, None)
                self._modified_ms.pop(key, None)
            return list(keys)

    def _info(self, key: str) -> ObjectInfo:
        modified_ms = self._modified_ms.setdefault(key, self._clock.now_ms())
        return ObjectInfo(key, len(self.objects[key]), modified_ms)
