"""An object store that all brokers of a world share: slow, at times refusing, losing answers, deleting in part.

What is written on condition may be written although the answer says no, or much later, if the condition holds then.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from diskless_core.plugin.wal_object_store import (
    ConditionalObjectStore,
    ConditionFailedError,
    ObjectData,
    ObjectInfo,
    ObjectNotFoundError,
    VersionedObject,
    WalObjectStoreError,
)
from tests.simulation.history import History
from tests.simulation.processes import later_outside, outside

PAGE_OBJECTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFaults:
    """How often a call fails (0 to 1), and how often one that does not takes seconds instead of milliseconds."""

    error_rate: float = 0.0
    slow_rate: float = 0.0


class Watcher(Protocol):
    """Who wants to know what becomes of objects."""

    def object_put(self, process: str, key: str) -> None: ...

    def object_deleted(self, key: str, size_bytes: int) -> None: ...


class Bucket:
    """The place itself. `down` refuses every call; `faults` may be changed at any time.

    `came_late` are the objects whose put had failed when they appeared. All `watchers` hear of what is put and deleted.
    `log_faults` are those of the objects below `log_prefix`, and a node that is `deaf` gets no answers to reads there.
    """

    def __init__(self, source: random.Random, history: History, watcher: Watcher, now_ms: Callable[[], int]) -> None:
        self.objects: dict[str, bytes] = {}
        self.came_late: set[str] = set()
        self.faults = BucketFaults()
        self.down = False
        self.watchers: list[Watcher] = [watcher]
        self.log_prefix: str | None = None
        self.log_faults = BucketFaults()
        self.deaf: set[int] = set()
        self._hears = asyncio.Event()
        self._random = source
        self._history = history
        self._now_ms = now_ms
        self._modified_ms: dict[str, int] = {}

    def calm(self) -> None:
        """Nothing fails from now on."""
        self.faults = self.log_faults = BucketFaults()

    def client(self, who: str, node_id: int) -> BucketClient:
        return BucketClient(self, who, node_id)

    def hear(self, node_id: int) -> None:
        """That node is deaf no more."""
        self.deaf.discard(node_id)
        hears, self._hears = self._hears, asyncio.Event()
        hears.set()

    async def put(self, who: str, key: str, data: bytes) -> None:
        await self._delay(key)
        fate = self._fate(key)
        if fate < 0.4:
            raise _slow_down()
        if fate < 0.6:
            later_outside(self._random.uniform(0, 20), self._keep_late, who, key, data)
            raise _slow_down()
        self._keep(who, key, data)
        if fate < 1:
            raise _slow_down()
        await self._delay(key)

    async def write_if(self, who: str, key: str, data: bytes, version: str | None) -> str:
        """Create an object, or replace the one that has that version; the new version."""
        await self._delay(key)
        fate = self._fate(key)
        if fate < 0.3:
            raise _slow_down()
        if fate < 0.6:
            later_outside(self._random.uniform(0, 20), self._arrive, who, key, data, version)
            raise _slow_down()
        self._require(key, version)
        self._keep(who, key, data)
        if fate < 0.8:
            raise _slow_down()
        if fate < 1:  # the answer was lost, and the client library asked again
            raise ConditionFailedError(key)
        await self._delay(key)
        return _version(data)

    async def get(self, node_id: int, key: str, start: int, end: int) -> bytes:
        return (await self._read(node_id, key))[start:end]

    async def get_versioned(self, node_id: int, key: str) -> VersionedObject:
        data = await self._read(node_id, key)
        return VersionedObject(data, _version(data))

    async def delete(self, who: str, keys: Sequence[str]) -> Sequence[str]:
        await self._delay(keys[0])
        fate = self._fate(keys[0])
        if fate < 0.4:
            raise _slow_down()
        gone = [key for key in keys if fate >= 0.7 or self._random.random() < 0.5]
        for key in gone:
            self._remove(who, key)
        if fate < 0.55 or 0.7 <= fate < 1:
            raise _slow_down()
        return gone

    async def page(self, node_id: int, prefix: str, after: str) -> Sequence[ObjectInfo]:
        await self._answer(node_id, prefix)
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)[:PAGE_OBJECTS]
        return [ObjectInfo(key, len(self.objects[key]), self._modified_ms[key]) for key in keys]

    def keys(self, prefix: str) -> set[str]:
        return {key for key in self.objects if key.startswith(prefix)}

    async def _read(self, node_id: int, key: str) -> bytes:
        await self._answer(node_id, key)
        data = self.objects.get(key)
        if data is None:
            raise ObjectNotFoundError(key)
        return data

    async def _answer(self, node_id: int, key: str) -> None:
        """Take the time that a read takes, and fail at times."""
        while node_id in self.deaf and self._is_of_log(key):
            await self._hears.wait()
        await self._delay(key)
        if self._fate(key) < 1:
            raise _slow_down()

    def _arrive(self, who: str, key: str, data: bytes, version: str | None) -> None:
        with suppress(ConditionFailedError):
            self._require(key, version)
            self._keep_late(who, key, data)

    def _require(self, key: str, version: str | None) -> None:
        found = self.objects.get(key)
        if (None if found is None else _version(found)) != version:
            raise ConditionFailedError(key)

    def _keep_late(self, who: str, key: str, data: bytes) -> None:
        self.came_late.add(key)
        self._keep(who, key, data)

    def _keep(self, who: str, key: str, data: bytes) -> None:
        self._history.note(who, f"put {key}, {len(data)} bytes")
        self.objects[key] = data
        self._modified_ms[key] = self._now_ms()
        for watcher in self.watchers:
            watcher.object_put(who, key)

    def _remove(self, who: str, key: str) -> None:
        data = self.objects.pop(key, None)
        if data is not None:
            self._history.note(who, f"deletes {key}")
            for watcher in self.watchers:
                watcher.object_deleted(key, len(data))

    def _is_of_log(self, key: str) -> bool:
        return self.log_prefix is not None and key.startswith(self.log_prefix)

    def _faults(self, key: str) -> BucketFaults:
        return self.log_faults if self._is_of_log(key) else self.faults

    def _fate(self, key: str) -> float:
        """Below 1: the call fails; how far it got, the number decides."""
        drawn, rate = self._random.random(), self._faults(key).error_rate
        if self.down:
            return 0.0
        return drawn / rate if drawn < rate else 1.0

    async def _delay(self, key: str) -> None:
        slow = self._random.random() < self._faults(key).slow_rate
        await asyncio.sleep(self._random.uniform(0.5, 6.0) if slow else self._random.uniform(0.002, 0.04))


class BucketClient(ConditionalObjectStore):
    """One broker's plugin. What it asked for happens whether or not the broker is there for the answer."""

    requests_are_billed = False
    is_node_local = False
    is_process_local = False
    may_put_twice = True

    def __init__(self, bucket: Bucket, who: str, node_id: int) -> None:
        self._bucket = bucket
        self._who = who
        self._node_id = node_id

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def put(self, key: str, data: ObjectData) -> None:
        await outside(self._bucket.put(self._who, key, bytes(data)))

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        return await outside(self._bucket.get(self._node_id, key, start, end))

    async def create(self, key: str, data: ObjectData) -> str:
        return await outside(self._bucket.write_if(self._who, key, bytes(data), None))

    async def replace(self, key: str, data: ObjectData, version: str) -> str:
        return await outside(self._bucket.write_if(self._who, key, bytes(data), version))

    async def get_versioned(self, key: str) -> VersionedObject:
        return await outside(self._bucket.get_versioned(self._node_id, key))

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        after = ""
        while page := await outside(self._bucket.page(self._node_id, prefix, after)):
            yield page
            after = page[-1].key

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        return await outside(self._bucket.delete(self._who, list(keys)))


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _slow_down() -> WalObjectStoreError:
    return WalObjectStoreError("503 SlowDown: reduce your request rate")
