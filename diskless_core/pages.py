"""Anonymous memory straight from the kernel: page-aligned, cleared lazily, on huge pages where there are any."""

from __future__ import annotations

import mmap

HUGE_PAGE_BYTES = 2 << 20


def fresh_pages(size: int) -> mmap.mmap:
    """Private writable memory of `size` bytes. It takes no RAM before it is touched."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
