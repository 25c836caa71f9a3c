"""A WAL object store in memory that fails, waits and loses answers when told to. No thread: any event loop will do."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import islice

from diskless_core.clock import Clock
from diskless_core.plugin.wal_object_store import (
    ConditionalObjectStore,
    ConditionFailedError,
    ObjectData,
    ObjectInfo,
    ObjectNotFoundError,
    VersionedObject,
    WalObjectStoreError,
)
from diskless_core.testing.fakes.faults import Misbehaving


class Operation(StrEnum):
    """What of the store can be made to misbehave."""

    PUT = "put"
    GET = "get"
    LIST = "list"
    DELETE = "delete"
    CREATE = "create"
    REPLACE = "replace"
    GET_VERSIONED = "get_versioned"


def slow_down() -> WalObjectStoreError:
    """What S3 says when it is asked too much: retriable."""
    return WalObjectStoreError("503 SlowDown: reduce your request rate")


def access_denied() -> WalObjectStoreError:
    """An error that no retry helps."""
    return WalObjectStoreError("403 AccessDenied", retriable=False)


def timed_out() -> WalObjectStoreError:
    """What a caller learns of a request that nobody answered."""
    return WalObjectStoreError("timed out")


class MemoryWalObjectStore(Misbehaving[Operation], ConditionalObjectStore):
    """Objects in `objects`, which a test may read and change. Several brokers of one process may share an instance.

    The version of an object is a digest of its bytes, as S3's ETag is: with the bytes, the version comes back.

    Attributes:
        objects: the bytes of each object by key.
        late: conditional writes that nobody waits for any more and that have not arrived; each is called to arrive, and
            is refused without a word if its condition does not hold then.
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
        self.late: deque[Callable[[], None]] = deque()
        self._to_be_late: Counter[Operation] = Counter()

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do: what was stored is there for the next start, and for others meanwhile."""

    async def put(self, key: str, data: ObjectData) -> None:
        kept = bytes(data)
        async with self._called(Operation.PUT):
            if kept != data:
                raise AssertionError(f"the body of {key!r} was changed while it was written")
            self._store(key, kept)

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

    async def create(self, key: str, data: ObjectData) -> str:
        return await self._write_if(Operation.CREATE, key, bytes(data), None)

    async def replace(self, key: str, data: ObjectData, version: str) -> str:
        return await self._write_if(Operation.REPLACE, key, bytes(data), version)

    async def get_versioned(self, key: str) -> VersionedObject:
        async with self._called(Operation.GET_VERSIONED):
            if key not in self.objects:
                raise ObjectNotFoundError(key)
            return VersionedObject(self.objects[key], _version(self.objects[key]))

    def be_late(self, operation: Operation, times: int = 1) -> None:
        """Let the next calls of `create` or `replace` time out, and keep what they write in `late`."""
        self._to_be_late[operation] += times

    async def _write_if(self, operation: Operation, key: str, data: bytes, expected: str | None) -> str:
        async with self._called(operation):
            if self._to_be_late[operation]:
                self._to_be_late[operation] -= 1
                self.late.append(lambda: self._arrive(key, data, expected))
                raise timed_out()
            self._require(key, expected)
            self._store(key, data)
            return _version(data)

    def _arrive(self, key: str, data: bytes, expected: str | None) -> None:
        with suppress(ConditionFailedError):
            self._require(key, expected)
            self._store(key, data)

    def _require(self, key: str, expected: str | None) -> None:
        found = self.objects.get(key)
        if (None if found is None else _version(found)) != expected:
            raise ConditionFailedError(key)

    def _store(self, key: str, data: bytes) -> None:
        self.objects[key] = data
        self._modified_ms[key] = self._clock.now_ms()

    def _info(self, key: str) -> ObjectInfo:
        modified_ms = self._modified_ms.setdefault(key, self._clock.now_ms())
        return ObjectInfo(key, len(self.objects[key]), modified_ms)


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
