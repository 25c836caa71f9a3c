"""The back door of a trial: another instance of the same store, on an event loop of its own."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStore
from diskless_core.testing.wal_object_store_tools import ObjectBackDoor
from diskless_core.trial.loop_thread import LoopThread

AT_ONCE = 16

_WHOLE = 2**40


class OtherInstance(ObjectBackDoor):
    """Writes begin at once and go on side by side. Whoever uses the place waits for them by `settled`."""

    def __init__(self, store: WalObjectStore, thread: LoopThread) -> None:
        self._store = store
        self._thread = thread
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._pending: dict[str, Future[None]] = {}
        self._is_started = False

    def write(self, key: str, data: bytes) -> None:
        self._start()
        earlier = self._pending.pop(key, None)
        if earlier is not None:
            earlier.result()
        self._pending[key] = self._thread.begin(self._put(key, data))

    def read(self, key: str) -> bytes | None:
        self._start()
        for pending in self._taken():
            pending.result()
        return self._thread.run(self._get(key))

    async def settled(self) -> None:
        """Wait for all writes that have begun."""
        for pending in self._taken():
            await asyncio.wrap_future(pending)

    def close(self) -> None:
        """Wait for writes, and stop the instance."""
        for pending in self._taken():
            pending.exception()
        if self._is_started:
            self._thread.run(self._store.stop())

    def _start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._thread.run(self._store.start())

    def _taken(self) -> list[Future[None]]:
        taken, self._pending = list(self._pending.values()), {}
        return taken

    async def _put(self, key: str, data: bytes) -> None:
        async with self._slots:
            await self._store.put(key, data)

    async def _get(self, key: str) -> bytes | None:
        try:
            return bytes(await self._store.get(key, 0, _WHOLE))
        except ObjectNotFoundError:
            return None
