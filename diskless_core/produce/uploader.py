"""Puts sealed objects into the store, some at a time, and again until it works."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from math import inf

import structlog

from diskless_core.clock import Clock
from diskless_core.metrics import Metrics
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.produce.second_writes import SecondWrites

RETRY = Backoff(first_ms=50, max_ms=5_000)

FAILING_S = 10.0
"""How long a failure is told while nothing is uploaded: without traffic, no upload could succeed."""

_log = structlog.get_logger(__name__)


class Uploader:
    """Uploads with bounded parallelism. A retriable error is retried for ever, with capped back-off and jitter.

    Attributes:
        parallelism: how many uploads run at once.
    """

    def __init__(self, store: WalObjectStore, parallelism: int, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._clock = clock
        self._retrying = Retrying(RETRY, clock, sleep=self._pause)
        self._answers = asyncio.Event()
        self.parallelism = parallelism
        self._slots = asyncio.Semaphore(parallelism)
        self._metrics = metrics
        self._in_flight = 0
        self._second_writes = SecondWrites(clock, metrics.wal_second_uploads.inc)
        self._begun_s: dict[str, float] = {}
        self._failure: str | None = None
        self._failed_at = 0.0

    @property
    def in_flight(self) -> int:
        """Uploads under way or waiting for their turn."""
        return self._in_flight

    @property
    def failing(self) -> str | None:
        """Why the last attempt of any upload failed, or that an upload has no answer.

        None after a success, or a while later with none under way.
        """
        waited_s = self._clock.monotonic() - min(self._begun_s.values(), default=inf)
        if self._failure is None and waited_s >= FAILING_S:
            return f"a write has had no answer for {waited_s:.0f} s"
        if self._in_flight == 0 and self._clock.monotonic() >= self._failed_at + FAILING_S:
            return None
        return self._failure

    async def upload(self, key: str, data: memoryview) -> memoryview:
        """Store one object. Returns memory with its bytes that no attempt to store it still reads.

        Raises:
            WalObjectStoreError: the store refused it for good.
        """
        self._in_flight += 1
        try:
            asked_s = self._clock.monotonic()
            async with self._slots:
                self._metrics.produce_wait_seconds.labels("slot").observe(self._clock.monotonic() - asked_s)
                with self._metrics.wal_upload_seconds.time():
                    self._begun_s[key] = self._clock.monotonic()
                    stored = await self._retrying.do(partial(self._try, key, data), partial(self._report, key))
        finally:
            self._in_flight -= 1
            self._begun_s.pop(key, None)
        self._metrics.wal_objects_uploaded.inc()
        self._metrics.wal_bytes_uploaded.inc(len(data))
        return stored

    async def _try(self, key: str, data: memoryview) -> memoryview:
        try:
            if self._store.may_put_twice:
                data = await self._second_writes.write(partial(self._store.put, key), data)
            else:
                await self._store.put(key, data)
        except Exception as error:
            self._failure, self._failed_at = str(error), self._clock.monotonic()
            raise
        self._failure = None
        self._answers.set()  # the store is back: other uploads need not pause any longer
        self._answers.clear()
        return data

    async def _pause(self, seconds: float) -> None:
        """Wait before an upload is tried again, but no longer than until the store has taken another one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._answers.wait()

    def _report(self, key: str, error: BaseException, failures: int) -> None:
        self._metrics.wal_upload_retries.inc()
        _log.warning("an upload failed and is tried again", object=key, attempt=failures, error=str(error))
