"""How the process's allocator and garbage collector are set for a broker's load."""

from __future__ import annotations

import ctypes
import gc
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

_MMAP_THRESHOLD_BYTES = 32 << 20
"""glibc's maximum."""

_TRIM_THRESHOLD_BYTES = 256 << 20
_ARENAS = 2
_GC_THRESHOLDS = (50_000, 20, 50)


def keep_freed_memory() -> None:
    """Let buffers of some MiB come from memory that was used before, instead of fresh pages for each of them.

    Measured: page faults were half of the CPU time of receiving. Elsewhere than on glibc nothing is changed.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


def collect_garbage_less_often() -> None:
    """Let the garbage collector run seldom: neither the start nor the hot path makes many cycles."""
    gc.set_threshold(*_GC_THRESHOLDS)


def freeze_garbage_collector() -> None:
    """Leave out of every collection what start-up made. The little garbage in it stays: to find it takes longer than
    a tenth of the start."""
    gc.freeze()
