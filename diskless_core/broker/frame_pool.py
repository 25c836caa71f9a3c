"""Buffers for large frames, used again so that receiving does not mean page faults and clearing memory.

A frame goes back when the batches in it were joined into a WAL object. Whoever gives it back must not read it again.
"""

from __future__ import annotations

from mmap import mmap

from diskless_core.pages import HUGE_PAGE_BYTES, PAGE_BYTES, fresh_pages

POOLED_FROM_BYTES = 64 << 10
"""Smaller frames are not worth the trouble."""


class FramePool:
    """Buffers in powers of two, of at most `max_idle_bytes` while unused."""

    def __init__(self, max_idle_bytes: int) -> None:
        self._max_idle_bytes = max_idle_bytes
        self._idle: dict[int, list[mmap]] = {}
        self.idle_bytes = 0

    def take(self, size: int) -> Frame:
        """A frame of exactly `size` bytes, with unspecified content."""
        if size < POOLED_FROM_BYTES:
            return Frame(bytearray(size), size, None)
        capacity = 1 << (size - 1).bit_length()
        idle = self._idle.get(capacity)
        if idle:
            self.idle_bytes -= capacity
            return Frame(idle.pop(), size, self)
        return Frame(fresh_pages(capacity), size, self)

    def give_back(self, buffer: mmap) -> None:
        """Take a buffer in again, or let go of it when enough lie idle."""
        capacity = len(buffer)
        if self.idle_bytes + capacity <= self._max_idle_bytes:
            self._idle.setdefault(capacity, []).append(buffer)
            self.idle_bytes += capacity


class Frame:
    """One request's bytes, held by everybody who still reads them."""

    __slots__ = ("_buffer", "_holders", "_pool", "view")

    def __init__(self, buffer: bytearray | mmap, size: int, pool: FramePool | None) -> None:
        self._buffer = buffer
        self._pool = pool
        self._holders = 1
        self.view = memoryview(buffer)[:size]

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
        if self._holders == 0 and self._pool is not None and isinstance(self._buffer, mmap):
            self._pool.give_back(self._buffer)
