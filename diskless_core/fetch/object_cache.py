"""Parts of WAL objects in memory, bounded in bytes, least recently used out first.

What an object's uploader wrote enters whole; what is read back enters as the range that was read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from diskless_core.fetch.planner import ObjectRange
from diskless_core.loading_cache import LoadingCache
from diskless_core.metrics import Metrics


@dataclass(slots=True, eq=False)
class Chunk:
    """Bytes `start` (inclusive) to `end` (exclusive) of an object, in memory that may be written to.

    Attributes:
        is_sound: whether the batches' checksums were verified when the data came into this process.
        prepared: byte offsets of the runs that readers may have.
    """

    object_key: str
    start: int
    data: memoryview
    is_sound: bool = False
    prepared: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def covers(self, start: int, end: int) -> bool:
        return self.start <= start and end <= self.end

    def view(self, start: int, end: int) -> memoryview:
        return self.data[start - self.start : end - self.start]


_NONE: Mapping[ObjectRange, Chunk] = {}


class ObjectCache:
    """Chunks by the range that they were read for. A chunk larger than the whole cache is not kept."""

    def __init__(self, max_bytes: int, metrics: Metrics) -> None:
        self._metrics = metrics
        self._chunks: LoadingCache[ObjectRange, Chunk] = LoadingCache(
            max_bytes,
            lambda chunk: len(chunk.data),
            max_value_bytes=max_bytes,
            on_put=self._has_come,
            on_discard=self._has_gone,
        )
        self._by_object: dict[str, dict[ObjectRange, Chunk]] = {}

    @property
    def size_bytes(self) -> int:
        return self._chunks.size_bytes

    def find(self, object_key: str, start: int, end: int) -> Chunk | None:
        """A chunk that covers the range."""
        for key, chunk in self._by_object.get(object_key, _NONE).items():
            if chunk.covers(start, end):
                self._metrics.cache_hits.inc()
                return self._chunks.peek(key)
        self._metrics.cache_misses.inc()
        return None

    def holds(self, object_key: str, start: int, end: int) -> bool:
        """Whether a chunk covers the range. It does not count as a use."""
        return any(chunk.covers(start, end) for chunk in self._by_object.get(object_key, _NONE).values())

    async def load(self, wanted: ObjectRange, read: Callable[[], Awaitable[Chunk]]) -> Chunk:
        """Read a range, or wait for a read under way that covers it; errors are those of `read`.

        A caller that is cancelled leaves the read to the others that wait for it.
        """
        under_way = (other for other in self._chunks.loading if other.covers(wanted))
        return await self._chunks.load(next(under_way, wanted), read)

    def put(self, chunk: Chunk) -> None:
        """Keep a chunk, and let go of the coldest ones until all fit."""
        self._chunks.put(ObjectRange(chunk.object_key, chunk.start, chunk.end), chunk)

    def forget(self, object_key: str) -> None:
        """Let go of all chunks of an object that was deleted."""
        for key in list(self._by_object.get(object_key, _NONE)):
            self._chunks.discard(key)
        self._metrics.cache_bytes.set(self.size_bytes)

    def _has_come(self, key: ObjectRange, chunk: Chunk) -> None:
        self._by_object.setdefault(key.object_key, {})[key] = chunk
        self._metrics.cache_bytes.set(self.size_bytes)

    def _has_gone(self, key: ObjectRange, _: Chunk) -> None:
        siblings = self._by_object[key.object_key]
        del siblings[key]
        if not siblings:
            del self._by_object[key.object_key]
