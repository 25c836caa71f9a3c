"""An object store that all brokers of a world share: slow, at times refusing, losing answers, deleting in part."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from diskless_core.plugin.wal_object_store import (
    ObjectData,
    ObjectInfo,
    ObjectNotFoundError,
    WalObjectStore,
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

    `came_late` are the objects whose put had failed when they appeared.
    """

    def __init__(self, source: random.Random, history: History, watcher: Watcher, now_ms: Callable[[], int]) -> None:
        self.objects: dict[str, bytes] = {}
        self.came_late: set[str] = set()
        self.faults = BucketFaults()
        self.down = False
        self._random = source
        self._history = history
        self._watcher = watcher
        self._now_ms = now_ms
        self._modified_ms: dict[str, int] = {}

    def calm(self) -> None:
        """Nothing fails from now on."""
        self.faults = BucketFaults()

    def client(self, who: str) -> BucketClient:
        return BucketClient(self, who)

    async def put(self, who: str, key: str, data: bytes) -> None:
        await self._delay()
        fate = self._fate()
        if fate < 0.4:
            raise _slow_down()
        if fate < 0.6:
            later_outside(self._random.uniform(0, 20), self._keep_late, who, key, data)
            raise _slow_down()
        self._keep(who, key, data)
        if fate < 1:
            raise _slow_down()
        await self._delay()

    async def get(self, key: str, start: int, end: int) -> bytes:
        await self._delay()
        if self._fate() < 1:
            raise _slow_down()
        data = self.objects.get(key)
        if data is None:
            raise ObjectNotFoundError(key)
        return data[start:end]

    async def delete(self, who: str, keys: Sequence[str]) -> Sequence[str]:
        await self._delay()
        fate = self._fate()
        if fate < 0.4:
            raise _slow_down()
        gone = [key for key in keys if fate >= 0.7 or self._random.random() < 0.5]
        for key in gone:
            self._remove(who, key)
        if fate < 0.55 or 0.7 <= fate < 1:
            raise _slow_down()
        return gone

    async def page(self, prefix: str, after: str) -> Sequence[ObjectInfo]:
        await self._delay()
        if self._fate() < 1:
            raise _slow_down()
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)[:PAGE_OBJECTS]
        return [ObjectInfo(key, len(self.objects[key]), self._modified_ms[key]) for key in keys]

    def keys(self, prefix: str) -> set[str]:
        return {key for key in self.objects if key.startswith(prefix)}

    def _keep_late(self, who: str, key: str, data: bytes) -> None:
        self.came_late.add(key)
        self._keep(who, key, data)

    def _keep(self, who: str, key: str, data: bytes) -> None:
        self._history.note(who, f"put {key}, {len(data)} bytes")
        self.objects[key] = data
        self._modified_ms[key] = self._now_ms()
        self._watcher.object_put(who, key)

    def _remove(self, who: str, key: str) -> None:
        data = self.objects.pop(key, None)
        if data is not None:
            self._history.note(who, f"deletes {key}")
            self._watcher.object_deleted(key, len(data))

    def _fate(self) -> float:
        """Below 1: the call fails; how far it got, the number decides."""
        drawn = self._random.random()
        if self.down:
            return 0.0
        return drawn / self.faults.error_rate if drawn < self.faults.error_rate else 1.0

    async def _delay(self) -> None:
        slow = self._random.random() < self.faults.slow_rate
        await asyncio.sleep(self._random.uniform(0.5, 6.0) if slow else self._random.uniform(0.002, 0.04))


class BucketClient(WalObjectStore):
    """One broker's plugin. What it asked for happens whether or not the broker is there for the answer."""

    requests_are_billed = False
    is_node_local = False
    is_process_local = False

    def __init__(self, bucket: Bucket, who: str) -> None:
        self._bucket = bucket
        self._who = who

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def put(self, key: str, data: ObjectData) -> None:
        await outside(self._bucket.put(self._who, key, bytes(data)))

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        return await outside(self._bucket.get(key, start, end))

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        after = ""
        while page := await outside(self._bucket.page(prefix, after)):
            yield page
            after = page[-1].key

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        return await outside(self._bucket.delete(self._who, list(keys)))


def _slow_down() -> WalObjectStoreError:
    return WalObjectStoreError("503 SlowDown: reduce your request rate")
