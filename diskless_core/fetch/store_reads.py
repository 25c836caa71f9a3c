"""Reads of WAL objects, and whether the object store answers them.

A store that takes no reads is the broker's trouble as much as one that takes no writes: it tells the controller, which
sends clients to others. Then nobody reads here any more, so the broker tries by itself until the store answers. As long
as nothing has failed it tries nothing: stores bill requests, and nobody is harmed by an outage that nobody notices.
"""

from __future__ import annotations

import asyncio

import structlog

from diskless_core.plugin.wal_object_store import ObjectData, WalObjectStore, WalObjectStoreError

PROBE_S = 2.0
"""Between two tries of a broker whose store has failed: a fraction of a session, and few requests."""

_log = structlog.get_logger(__name__)


class StoreReads:
    """Gets parts of objects from one store.

    Attributes:
        failing: why the store did not answer the last read; None if it did. That an object is absent, or may not be
            read, is an answer: other objects can be read.
    """

    def __init__(self, store: WalObjectStore) -> None:
        self.failing: str | None = None
        self._store = store
        self._failed_key = ""
        self._has_failed = asyncio.Event()

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        """As `WalObjectStore.get`."""
        try:
            data = await self._store.get(key, start, end)
        except WalObjectStoreError as error:
            self._note(key, error if error.retriable else None)
            raise
        self._note(key, None)
        return data

    async def probe(self) -> None:
        """While the store fails, try whether it answers; for ever."""
        while True:
            await self._has_failed.wait()
            await asyncio.sleep(PROBE_S)
            if self.failing is not None:
                try:
                    await self.get(self._failed_key, 0, 1)
                except WalObjectStoreError:
                    continue

    def _note(self, key: str, failure: WalObjectStoreError | None) -> None:
        if failure is None:
            if self.failing is not None:
                _log.info("the object store answers reads again")
            self.failing = None
            self._has_failed.clear()
            return
        if self.failing is None:
            _log.warning("the object store does not answer reads", object=key, error=str(failure))
        self.failing, self._failed_key = str(failure), key
        self._has_failed.set()
