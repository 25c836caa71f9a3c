"""The process's limit of open files, and how many connections of clients it leaves room for."""

from __future__ import annotations

import resource
from pathlib import Path

from diskless_core.config.types import MAX_INT

MAX_RESERVE = 1024
"""Files that are kept free for what the broker itself opens later: objects, segments, other connections."""

_RESERVE_PART = 4  # of a limit so low that the whole reserve would leave little


def raise_limit() -> int:
    """Raise this process's soft limit to the hard one, which is the highest that it may have; the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit()


def limit() -> int:
    """How many files this process can have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_INT if soft == resource.RLIM_INFINITY else soft


def in_use() -> int:
    """How many files this process has open."""
    return sum(1 for _ in Path("/dev/fd").iterdir())


def room_for_clients(limit: int, in_use: int) -> int:
    """How many connections of clients fit in, with a reserve for the broker itself. At least one."""
    return max(1, limit - in_use - min(MAX_RESERVE, limit // _RESERVE_PART))
