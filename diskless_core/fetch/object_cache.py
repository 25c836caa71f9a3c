"""Parts of WAL objects in memory, bounded in bytes, least recently used out first.

What an object's uploader wrote enters whole; what is read back enters as the range that was read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from diskless_core.fetch.planner import ObjectRange
from diskless_core.loading_cache import LoadingCache
from diskless_core.metrics import Metrics


@dataclass(slots=True, eq=False)
class Chunk:
    """Bytes `start` (inclusive) to `end` (exclusive) of an object, in memory that may be written to.

    Attributes:
        is_sound: whether the batches' checksums were verified when the data came into this process.
        lender: the broker that sent it; None where it is the object's own.
        prepared: byte offsets of the runs that readers may have.
    """

    object_key: str
    start: int
    data: memoryview
    is_sound: bool = False
    lender: int | None = None
    prepared: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def covers(self, start: int, end: int) -> bool:
        return self.start <= start and end <= self.end

    def view(self, start: int, end: int) -> memoryview:
        return self.data[start - self.start : end - self.start]


_MUCH_PART = 4

_NONE: Mapping[ObjectRange, Chunk] = {}


class ObjectCache:
    """Chunks by the range that they were read for. A chunk larger than the whole cache is not kept."""

    def __init__(self, max_bytes: int, metrics: Metrics) -> None:
        self._metrics = metrics
        self._much_bytes = max_bytes // _MUCH_PART
        self._chunks: LoadingCache[ObjectRange, Chunk] = LoadingCache(
            max_bytes,
            lambda chunk: len(chunk.data),
            max_value_bytes=max_bytes,
            on_put=self._has_come,
            on_discard=self._has_gone,
        )
        self._by_object: dict[str, dict[ObjectRange, Chunk]] = {}
        self._direct: LoadingCache[ObjectRange, Chunk] = LoadingCache(0, lambda _: 1, max_value_bytes=0)

    @property
    def size_bytes(self) -> int:
        return self._chunks.size_bytes

    @property
    def reads_much(self) -> bool:
        """Whether reads that ask the object store only are a quarter of the cache already."""
        return sum(wanted.size_bytes for wanted in self._direct.loading) >= self._much_bytes

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
        return await self._chunks.load(_covering(self._chunks.loading, wanted) or wanted, read)

    async def load_directly(
        self,
        wanted: ObjectRange,
        read: Callable[[ObjectRange], Awaitable[Chunk]],
        widened: Callable[[ObjectRange], ObjectRange],
    ) -> Chunk:
        """As `load`, for reads that ask the object store only: none of them waits for one that asks another broker.

        Args:
            widened: what to read instead of what is wanted, which it covers.
        """
        chosen = _covering(self._direct.loading, wanted)
        if chosen is not None:
            return await self._direct.load(chosen, lambda: read(wanted))
        chosen = widened(wanted)

        async def read_and_keep() -> Chunk:
            chunk = await read(chosen)
            self.put(chunk)
            return chunk

        return await self._direct.load(chosen, read_and_keep)

    def put(self, chunk: Chunk) -> None:
        """Keep a chunk, and let go of the coldest ones until all fit."""
        self._chunks.put(ObjectRange(chunk.object_key, chunk.start, chunk.end), chunk)

    def discard(self, chunk: Chunk) -> None:
        """Let go of a chunk, if it is there."""
        for key, other in self._by_object.get(chunk.object_key, _NONE).items():
            if other is chunk:
                self._chunks.discard(key)
                break
        self._metrics.cache_bytes.set(self.size_bytes)

    async def stop(self) -> None:
        """End the reads under way."""
        await self._chunks.stop()
        await self._direct.stop()

    def forget(self, object_key: str) -> None:
        """Let go of all chunks of an object that was deleted."""
        for key in list(self._by_object.get(object_key, _NONE)):
            self._chunks.discard(key)
        self._metrics.cache_bytes.set(self.size_bytes)

    def _has_come(self, key: ObjectRange, chunk: Chunk) -> None:
        siblings = self._by_object.setdefault(key.object_key, {})
        siblings[key] = chunk
        for other in [other for other in siblings if other != key and chunk.covers(other.start, other.end)]:
            self._chunks.discard(other)
        self._metrics.cache_bytes.set(self.size_bytes)

    def _has_gone(self, key: ObjectRange, _: Chunk) -> None:
        siblings = self._by_object[key.object_key]
        del siblings[key]
        if not siblings:
            del self._by_object[key.object_key]


def _covering(loading: Iterable[ObjectRange], wanted: ObjectRange) -> ObjectRange | None:
    return next((other for other in loading if other.covers(wanted)), None)
