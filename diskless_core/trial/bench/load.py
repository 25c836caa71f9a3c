"""What a broker asks of its backends at 100 MB a second, and how it is measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from diskless_core.clock import Clock

BYTES_PER_S = 100_000_000
OBJECT_BYTES = 8 << 20
OBJECTS_PER_S = 12
"""100,000,000 / 8,388,608 = 11.9."""

BATCHES_PER_OBJECT = 100
"""So many partitions have a batch in an object: each is a row of the coordinator store."""

ARITHMETIC = (
    f"100 MB/s are {OBJECTS_PER_S} objects of 8 MiB a second (100,000,000 / 8,388,608). Each is one entry of the "
    f"coordinator log and, with batches of {BATCHES_PER_OBJECT} partitions in it, {BATCHES_PER_OBJECT} rows of the "
    f"coordinator store: {OBJECTS_PER_S} entries and {OBJECTS_PER_S * BATCHES_PER_OBJECT} rows a second."
)

PERCENT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number of a backend.

    Attributes:
        name: what was measured, with its unit.
        value: more is better where `needed` is set and `less_is_better` is not.
        needed: what 100 MB/s take of it; None where that says nothing.
        less_is_better: whether it is a time.
    """

    name: str
    value: float
    needed: float | None = None
    less_is_better: bool = False

    @property
    def is_bottleneck(self) -> bool:
        """Whether it cannot carry 100 MB/s."""
        if self.needed is None:
            return False
        return self.value > self.needed if self.less_is_better else self.value < self.needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """So many operations: how long each took, how long all did, and the processor's time of this process."""

    latencies_s: Sequence[float]
    wall_s: float
    cpu_s: float

    @property
    def per_s(self) -> float:
        return len(self.latencies_s) / self.wall_s

    def percentile_ms(self, percent: int) -> float:
        """The latency that so many of a hundred operations did not exceed."""
        ordered = sorted(self.latencies_s)
        return 1000 * ordered[min(len(ordered) - 1, len(ordered) * percent // PERCENT)]

    def latencies(self, what: str) -> list[Measure]:
        """p50 and p99, and the processor's time of an operation."""
        return [
            Measure(name=f"{what}, p50 ms", value=self.percentile_ms(50), less_is_better=True),
            Measure(name=f"{what}, p99 ms", value=self.percentile_ms(99), less_is_better=True),
            self.cpu(what),
        ]

    def cpu(self, what: str) -> Measure:
        """Milliseconds of the processor an operation."""
        each = 1000 * self.cpu_s / len(self.latencies_s)
        return Measure(name=f"{what}, CPU ms each", value=each, less_is_better=True)


async def keep_busy(clock: Clock, seconds: float, at_once: int, operation: Callable[[int], Awaitable[object]]) -> Run:
    """Do an operation again and again, so many at once, for so long; each at least once."""
    latencies: list[float] = []
    began, cpu = clock.monotonic(), time.process_time()
    numbers = iter(range(1 << 40))

    async def work() -> None:
        while True:
            before = clock.monotonic()
            await operation(next(numbers))
            latencies.append(clock.monotonic() - before)
            if clock.monotonic() - began >= seconds:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())
    return Run(latencies_s=latencies, wall_s=clock.monotonic() - began, cpu_s=time.process_time() - cpu)


def keep_calling(clock: Clock, seconds: float, operation: Callable[[int], object]) -> Run:
    """The same for what does not wait."""
    latencies: list[float] = []
    began, cpu = clock.monotonic(), time.process_time()
    before = began
    while before - began < seconds or not latencies:
        operation(len(latencies))
        after = clock.monotonic()
        latencies.append(after - before)
        before = after
    return Run(latencies_s=latencies, wall_s=before - began, cpu_s=time.process_time() - cpu)
