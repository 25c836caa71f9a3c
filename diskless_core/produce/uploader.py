"""Puts sealed objects into the store, some at a time, and again until it works."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from diskless_core.clock import Clock
from diskless_core.metrics import Metrics
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.plugin.wal_object_store import WalObjectStore

RETRY = Backoff(first_ms=50, max_ms=5_000)

FAILING_S = 10.0
"""How long a failure is told while nothing is uploaded: without traffic, no upload could succeed."""

_log = structlog.get_logger(__name__)


class Uploader:
    """Uploads with bounded parallelism. A retriable error is retried for ever, with capped back-off and jitter."""

    def __init__(self, store: WalObjectStore, parallelism: int, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._clock = clock
        self._retrying = Retrying(RETRY, clock)
        self._slots = asyncio.Semaphore(parallelism)
        self._metrics = metrics
        self._in_flight = 0
        self._failure: str | None = None
        self._failed_at = 0.0

    @property
    def in_flight(self) -> int:
        """Uploads under way or waiting for their turn."""
        return self._in_flight

    @property
    def failing(self) -> str | None:
        """Why the last attempt of any upload failed. None after a success, or a while later with none under way."""
        if self._in_flight == 0 and self._clock.monotonic() >= self._failed_at + FAILING_S:
            return None
        return self._failure

    async def upload(self, key: str, data: memoryview) -> None:
        """Store one object.

        Raises:
            WalObjectStoreError: the store refused it for good.
        """
        self._in_flight += 1
        try:
            async with self._slots:
                with self._metrics.wal_upload_seconds.time():
                    await self._retrying.do(partial(self._try, key, data), partial(self._report, key))
        finally:
            self._in_flight -= 1
        self._metrics.wal_objects_uploaded.inc()
        self._metrics.wal_bytes_uploaded.inc(len(data))

    async def _try(self, key: str, data: memoryview) -> None:
        try:
            await self._store.put(key, data)
        except Exception as error:
            self._failure, self._failed_at = str(error), self._clock.monotonic()
            raise
        self._failure = None

    def _report(self, key: str, error: BaseException, failures: int) -> None:
        self._metrics.wal_upload_retries.inc()
        _log.warning("an upload failed and is tried again", object=key, attempt=failures, error=str(error))
