"""Page-aligned memory for what is large: straight from the kernel, and used again.

Fresh pages cost more CPU time than the copy into them (measured on a virtual machine: 0.8 CPU-seconds per GiB against
0.1), hence the reuse. Aligned memory can be written to files and read from them past the page cache.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from contextlib import suppress

PAGE_BYTES = 4096
HUGE_PAGE_BYTES = 2 << 20
POOLED_FROM_BYTES = 256 << 10
"""Smaller pieces get ordinary memory from a `PagePool`."""

_CLASSES_PER_DOUBLING = 4

_LARGEST_FIT = 2
"""How many times the capacity that is needed an idle buffer may have: memory is lost, but fresh pages are dearer."""


def fresh_pages(size: int) -> mmap.mmap:
    """Private writable memory of `size` bytes. It takes no RAM before it is touched."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class PagePool:
    """Buffers whose memory comes back by itself once nobody has a view of it any more. Any thread may use it.

    New capacities are a quarter of a power of two apart, and the smallest idle one that is not much too large is used
    first. At most `max_idle_bytes` lie idle: what lay longest goes.
    """

    def __init__(self, max_idle_bytes: int) -> None:
        self._max_idle_bytes = max_idle_bytes
        self._idle: list[mmap.mmap] = []

    def take(self, size: int) -> memoryview:
        """Writable memory of exactly `size` bytes with unspecified content; page-aligned unless it is small."""
        if size < POOLED_FROM_BYTES:
            return memoryview(bytearray(size))
        capacity = _capacity(size)
        memory = self._idle_one(capacity) or fresh_pages(capacity)
        window = (ctypes.c_char * len(memory)).from_buffer(memory)
        weakref.finalize(window, self._give_back, memory).atexit = False
        return memoryview(window).cast("B")[:size]

    def _idle_one(self, capacity: int) -> mmap.mmap | None:
        for memory in sorted(self._idle, key=len):
            if capacity <= len(memory) <= _LARGEST_FIT * capacity:
                # Another thread may have been quicker; a lock is no help, as `_give_back` may interrupt any line.
                with suppress(ValueError):
                    self._idle.remove(memory)
                    return memory
        return None

    def _give_back(self, memory: mmap.mmap) -> None:
        """Runs when the last view is gone, in whichever thread that is."""
        self._idle.append(memory)
        while sum(map(len, self._idle)) > self._max_idle_bytes:
            del self._idle[:1]


def _capacity(size: int) -> int:
    step = max((1 << (size - 1).bit_length()) // 2 // _CLASSES_PER_DOUBLING, PAGE_BYTES)
    return -(-size // step) * step
