"""The newest entries of one shard's log in memory, for readers at its end."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence

from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogBatch

ENTRY_BYTES = 200
"""About what an entry takes in memory beside its bytes. What others wrote into the topic is an entry without any."""


class Tail:
    """All committed entries from `start` to `end`. Runs on the event loop.

    Attributes:
        start: grows as old entries give way to new ones.
        end: the offset behind the newest entry that is known to be committed.
        failure: why nothing follows any more.
    """

    def __init__(self, start: int, max_bytes: int) -> None:
        self.start = self.end = start
        self.failure: CoordinatorLogError | None = None
        self._max_bytes = max_bytes
        self._entries: list[LogBatch] = []
        self._size_bytes = 0
        self._changed = asyncio.Event()

    def add(self, entries: Sequence[LogBatch]) -> None:
        """Take the entries that follow."""
        self._entries.extend(entries)
        self._size_bytes += sum(map(_size_bytes, entries))
        self.end = entries[-1].next_offset
        if self._size_bytes > 2 * self._max_bytes:
            self._trim()
        self._notify()

    def fail(self, error: CoordinatorLogError) -> None:
        """Nothing follows: readers that have read all raise this."""
        self.failure = error
        self._notify()

    def wake(self) -> None:
        """Let readers that wait look again."""
        self._notify()

    async def entries_from(self, offset: int) -> Sequence[LogBatch]:
        """What there is from an offset on, which is not below `start`: after a wait, if there is nothing yet.

        Nothing, if `wake` was called or the entries have given way meanwhile.
        """
        if offset >= self.end:
            if self.failure is not None:
                raise self.failure
            await self._changed.wait()
            if self.start > offset or self.end <= offset:
                return ()
        return self._entries[bisect_left(self._entries, offset + 1, key=_next_offset) :]

    def _trim(self) -> None:
        given_up = 0
        while self._size_bytes > self._max_bytes:
            self._size_bytes -= _size_bytes(self._entries[given_up])
            given_up += 1
        self.start = self._entries[given_up - 1].next_offset
        del self._entries[:given_up]

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _size_bytes(entry: LogBatch) -> int:
    return ENTRY_BYTES + len(entry.data)


def _next_offset(entry: LogBatch) -> int:
    return entry.next_offset
