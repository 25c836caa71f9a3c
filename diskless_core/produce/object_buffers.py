"""Memory for sealed objects: page-aligned, so that it can be written past the page cache, and used again.

An object's buffer lives as long as anybody has a view of it, the cache and responses under way included; then it
serves another object by itself. Fresh pages would cost more CPU time than the copy into them (measured on a virtual
machine: 0.8 CPU-seconds per GiB against 0.1), hence the reuse and the huge pages.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections import deque

from diskless_core.pages import fresh_pages

POOLED_FROM_BYTES = 256 << 10
"""Smaller objects get ordinary memory."""


class ObjectBuffers:
    """Buffers in powers of two; of each size at most `max_idle_bytes` lie idle."""

    def __init__(self, max_idle_bytes: int) -> None:
        self._max_idle_bytes = max_idle_bytes
        self._idle: dict[int, deque[mmap.mmap]] = {}

    def take(self, size: int) -> memoryview:
        """Writable memory of exactly `size` bytes with unspecified content."""
        if size < POOLED_FROM_BYTES:
            return memoryview(bytearray(size))
        capacity = 1 << (size - 1).bit_length()
        idle = self._idle.setdefault(capacity, deque())
        memory = idle.popleft() if idle else fresh_pages(capacity)
        window = (ctypes.c_char * capacity).from_buffer(memory)
        weakref.finalize(window, self._give_back, idle, memory).atexit = False
        return memoryview(window).cast("B")[:size]

    def _give_back(self, idle: deque[mmap.mmap], memory: mmap.mmap) -> None:
        """Runs when the last view is gone, in whichever thread that is."""
        if (len(idle) + 1) * len(memory) <= self._max_idle_bytes:
            idle.append(memory)
