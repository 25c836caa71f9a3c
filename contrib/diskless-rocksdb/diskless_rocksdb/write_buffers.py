"""The memory for rows that are not in RocksDB's tables yet, shared by all databases of a store.

RocksDB has a manager for this, too. It makes whoever writes next flush its own rows, however few they are, while a
database that nobody writes to keeps its memory: with many shards each write would make a table. Here the database that
has the most is flushed, whoever writes.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Protocol


class Buffered(Hashable, Protocol):
    """A database, as far as its memory matters."""

    def flush_soon(self) -> None:
        """Begin to write what is in memory to a table, without waiting for it."""


class WriteBuffers:
    """Knows what each database has in memory. Called from any thread."""

    def __init__(self, total_bytes: int) -> None:
        # what is being flushed counts as well, and may be as much as what is being filled
        self._filled_bytes = total_bytes // 2
        self._used: dict[Buffered, int] = {}
        self._lock = threading.Lock()

    @property
    def bytes_of_one(self) -> int:
        """At so many bytes a database flushes by itself: two buffers of one shard never take more than there is."""
        return self._filled_bytes

    @property
    def used_bytes(self) -> int:
        """What all databases together had when each was written to for the last time."""
        with self._lock:
            return sum(self._used.values())

    def note(self, database: Buffered, used_bytes: int) -> None:
        """A database has so much in memory. Has the largest flushed if all together have too much."""
        with self._lock:
            self._used[database] = used_bytes
            if sum(self._used.values()) < self._filled_bytes:
                return
            largest = max(self._used, key=self._used.__getitem__)
            self._used[largest] = 0
        largest.flush_soon()

    def forget(self, database: Buffered) -> None:
        """It was closed."""
        with self._lock:
            self._used.pop(database, None)
