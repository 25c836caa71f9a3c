"""The reads of remote storage: so many at once, so many that wait, counted.

(KIP-405, `remote.log.reader.threads` and `remote.log.reader.max.pending.tasks`.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from diskless_core.metrics import Metrics
from diskless_core.plugin.remote_storage import IndexType, RemoteResourceNotFoundError, RemoteStorage
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata


class ReaderBusyError(Exception):
    """As many reads of remote storage wait as may. It can be tried again later."""


class RemoteReads:
    """All reads of segments by a broker.

    Args:
        at_once: how many reads are under way at most.
        max_waiting: how many more wait for their turn at most.
    """

    def __init__(self, storage: RemoteStorage, *, at_once: int, max_waiting: int, metrics: Metrics) -> None:
        self.at_once = at_once
        self._storage = storage
        self._turns = asyncio.Semaphore(at_once)
        self._max_waiting = max_waiting
        self._waiting = 0
        self._metrics = metrics

    @property
    def is_idle(self) -> bool:
        """Whether another read could begin at once."""
        return not self._turns.locked()

    async def fetch(self, segment: RemoteLogSegmentMetadata, start: int, end: int) -> ObjectData:
        """A range of a segment's log; arguments and errors as `RemoteStorage.fetch`.

        Raises:
            ReaderBusyError: too many wait already.
        """
        async with self._turn():
            data = await self._storage.fetch(segment, start, end)
        self._metrics.remote_fetch_bytes.inc(len(data))
        return data

    async def fetch_index(self, segment: RemoteLogSegmentMetadata, index: IndexType) -> ObjectData:
        """An index of a segment; errors as `fetch` and `RemoteStorage.fetch_index`."""
        async with self._turn():
            data = await self._storage.fetch_index(segment, index)
        self._metrics.remote_fetch_bytes.inc(len(data))
        return data

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        if self._turns.locked() and self._waiting >= self._max_waiting:
            self._metrics.remote_fetch_refusals.inc()
            raise ReaderBusyError("too many reads of remote storage wait already")
        self._count_waiting(1)
        try:
            await self._turns.acquire()
        finally:
            self._count_waiting(-1)
        try:
            self._metrics.remote_fetch_requests.inc()
            with self._metrics.remote_fetch_seconds.time():
                yield
        except RemoteResourceNotFoundError:
            raise
        except Exception:
            self._metrics.remote_fetch_errors.inc()
            raise
        finally:
            self._turns.release()

    def _count_waiting(self, change: int) -> None:
        self._waiting += change
        self._metrics.remote_reader_queue.set(self._waiting)
