"""Requests as they were received, each in memory of its own that goes back when the last reader has let go of it.

That is when the batches in it were joined into a WAL object. Whoever lets go of a frame must not read it again.
"""

from __future__ import annotations

from mmap import mmap

from diskless_core.pages import HUGE_PAGE_BYTES, PAGE_BYTES, PagePool

POOLED_FROM_BYTES = 64 << 10
"""Smaller frames are not worth the trouble."""


class Frame:
    """One request's bytes, held by everybody who still reads them. Their content is unspecified at first."""

    __slots__ = ("_buffer", "_holders", "_pool", "view")

    def __init__(self, size: int, pool: PagePool) -> None:
        self._buffer = bytearray(size) if size < POOLED_FROM_BYTES else pool.take_pages(size)
        self._pool = pool
        self._holders = 1
        self.view = memoryview(self._buffer)[:size]

    def touched_bytes(self, filled: int) -> int:
        """Memory that the first `filled` bytes take: whole pages of it."""
        capacity = len(self._buffer)
        page_bytes = HUGE_PAGE_BYTES if capacity >= HUGE_PAGE_BYTES else PAGE_BYTES
        return min(-(-filled // page_bytes) * page_bytes, capacity)

    def hold(self) -> None:
        """One more reader."""
        self._holders += 1

    def release(self) -> None:
        """One reader less; after the last one the memory serves another frame."""
        self._holders -= 1
        if self._holders == 0 and isinstance(self._buffer, mmap):
            self._pool.give_back(self._buffer)
