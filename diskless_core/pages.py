"""Page-aligned memory for what is large: straight from the kernel, and used again.

Fresh pages cost more CPU time than the copy into them (measured on a virtual machine: 0.8 CPU-seconds per GiB against
0.1), hence the reuse. Aligned memory can be written to files and read from them past the page cache.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import weakref
from collections import deque
from contextlib import suppress
from functools import cache
from operator import itemgetter

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
    """Buffers that are used again. Any thread may use it.

    New capacities are a quarter of a power of two apart, and the smallest idle one that is not much too large is used
    first. At most `max_idle_bytes` lie idle: what lay longest goes.
    """

    # No lock protects it: `give_back` may interrupt any line, in any thread. So each step is one call that cannot be
    # interrupted, the sizes are added up anew, and an idle buffer may be gone when it is asked for.

    def __init__(self, max_idle_bytes: int) -> None:
        self._max_idle_bytes = max_idle_bytes
        self._idle: dict[int, deque[tuple[int, mmap.mmap]]] = {}
        self._order = itertools.count()

    def take(self, size: int) -> memoryview:
        """Writable memory of exactly `size` bytes with unspecified content; page-aligned unless it is small.

        It comes back by itself once nobody has a view of it any more.
        """
        if size < POOLED_FROM_BYTES:
            return memoryview(bytearray(size))
        memory = self.take_pages(size)
        window = (ctypes.c_char * len(memory)).from_buffer(memory)
        weakref.finalize(window, self.give_back, memory).atexit = False
        return memoryview(window).cast("B")[:size]

    def take_pages(self, size: int) -> mmap.mmap:
        """A buffer of at least `size` bytes with unspecified content. Whoever takes it may give it back."""
        capacity = _capacity(size)
        return self._idle_one(capacity) or fresh_pages(capacity)

    def give_back(self, memory: mmap.mmap) -> None:
        """Let others have a buffer that nobody reads or writes any more."""
        if len(memory) > self._max_idle_bytes:
            return  # or all that lies idle would go for it, and then it too
        self._idle.setdefault(len(memory), deque()).append((next(self._order), memory))
        while self._idle_bytes() > self._max_idle_bytes:
            with suppress(IndexError, ValueError):
                min(filter(None, self._piles()), key=itemgetter(0)).popleft()

    def _idle_one(self, capacity: int) -> mmap.mmap | None:
        for fit in _fits(capacity):
            pile = self._idle.get(fit)
            if pile:
                try:
                    return pile.pop()[1]
                except IndexError:  # another thread was quicker
                    continue
        return None

    def _idle_bytes(self) -> int:
        return sum(capacity * len(self._idle[capacity]) for capacity in list(self._idle))

    def _piles(self) -> list[deque[tuple[int, mmap.mmap]]]:
        return [self._idle[capacity] for capacity in list(self._idle)]


def _capacity(size: int) -> int:
    step = max((1 << (size - 1).bit_length()) // 2 // _CLASSES_PER_DOUBLING, PAGE_BYTES)
    return -(-size // step) * step


@cache
def _fits(capacity: int) -> tuple[int, ...]:
    """The capacities that may serve in the place of one, smallest first."""
    fits = [capacity]
    while (larger := _capacity(fits[-1] + 1)) <= _LARGEST_FIT * capacity:
        fits.append(larger)
    return tuple(fits)
