"""Time, randomness and ids: the one module that may ask the machine for them.

Everything else receives a `Clock`, so that a test can run a broker on virtual time with a seed. Ruff's banned-api
list keeps `time.time`, `random`, `uuid.uuid4` and their relatives out of every other module.
"""

from __future__ import annotations

import random
import time
import uuid
from pathlib import Path
from typing import Protocol

from diskless_core.protocol.names import uuid_text

RESERVED_UUIDS = frozenset({uuid.UUID(int=0), uuid.UUID(int=1)})
"""Ids that Apache Kafka keeps for itself: the absent id and the metadata topic's (KIP-516, "Topic ID")."""

LEAST_PAUSE_S = 0.001
"""For who waits until a moment of the clock: timers round, and would not let time go on just before it has come."""


class Clock(Protocol):
    """Where a component gets time, randomness and ids from."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back."""
        ...

    def new_uuid(self) -> uuid.UUID:
        """A fresh random id, never reserved and never one whose text form starts with '-' (KIP-516)."""
        ...

    def random(self) -> random.Random:
        """The source of randomness, for jitter and permutations. Not for secrets."""
        ...


class SystemClock:
    """The machine's own clock and randomness. `seed` makes ids and jitter repeatable, time stays real.

    One without a seed can be pickled: in another process it is that process's clock.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed) if seed is not None else random.SystemRandom()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def new_uuid(self) -> uuid.UUID:
        return draw_uuid(self._random)

    def random(self) -> random.Random:
        return self._random

    def __reduce__(self) -> tuple[type[SystemClock], tuple[()]]:
        if not isinstance(self._random, random.SystemRandom):
            raise TypeError("a clock with a seed cannot be pickled: two processes would draw the same ids")
        return SystemClock, ()


def draw_uuid(source: random.Random) -> uuid.UUID:
    """Draw a version-4 id that Kafka would accept as a topic id."""
    while True:
        drawn = uuid.UUID(int=source.getrandbits(128), version=4)
        if drawn not in RESERVED_UUIDS and not uuid_text(drawn).startswith("-"):
            return drawn


def thread_run_delay_s(native_id: int) -> float:
    """How many seconds a thread of this process has been ready to run and waited for a processor, since it began.

    0 where the system does not say: only Linux does.
    """
    try:
        return int(Path(f"/proc/self/task/{native_id}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
