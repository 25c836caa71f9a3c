"""Parts of WAL objects in memory, bounded in bytes, least recently used out first.

What an object's uploader wrote enters whole; what is read back enters as the range that was read.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

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


class ObjectCache:
    """Chunks by object key. A chunk larger than the whole cache is not kept."""

    def __init__(self, max_bytes: int, metrics: Metrics) -> None:
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._chunks: OrderedDict[tuple[str, int, int], Chunk] = OrderedDict()
        self._by_object: dict[str, list[Chunk]] = {}
        self.size_bytes = 0

    def find(self, object_key: str, start: int, end: int) -> Chunk | None:
        """A chunk that covers the range."""
        for chunk in self._by_object.get(object_key, ()):
            if chunk.covers(start, end):
                self._chunks.move_to_end((object_key, chunk.start, chunk.end))
                self._metrics.cache_hits.inc()
                return chunk
        self._metrics.cache_misses.inc()
        return None

    def holds(self, object_key: str, start: int, end: int) -> bool:
        """Whether a chunk covers the range. It does not count as a use."""
        return any(chunk.covers(start, end) for chunk in self._by_object.get(object_key, ()))

    def put(self, chunk: Chunk) -> None:
        """Keep a chunk, and let go of the coldest ones until all fit."""
        identity = (chunk.object_key, chunk.start, chunk.end)
        if len(chunk.data) > self._max_bytes or identity in self._chunks:
            return
        self._chunks[identity] = chunk
        self._by_object.setdefault(chunk.object_key, []).append(chunk)
        self.size_bytes += len(chunk.data)
        while self.size_bytes > self._max_bytes:
            self._evict()
        self._metrics.cache_bytes.set(self.size_bytes)

    def forget(self, object_key: str) -> None:
        """Let go of all chunks of an object that was deleted."""
        for chunk in self._by_object.pop(object_key, ()):
            del self._chunks[object_key, chunk.start, chunk.end]
            self.size_bytes -= len(chunk.data)
        self._metrics.cache_bytes.set(self.size_bytes)

    def _evict(self) -> None:
        _, chunk = self._chunks.popitem(last=False)
        self.size_bytes -= len(chunk.data)
        siblings = self._by_object[chunk.object_key]
        siblings.remove(chunk)
        if not siblings:
            del self._by_object[chunk.object_key]
