"""How long is waited between tries, and when there is no further one."""

from __future__ import annotations

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.plugin.wal_object_store import WalObjectStoreError

CLOCK = SystemClock(1)
SLOW_DOWN = WalObjectStoreError("503 Slow Down")
FORBIDDEN = WalObjectStoreError("403 Forbidden", retriable=False)


class Step:
    """Fails some times, then works."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.tries = 0

    async def __call__(self) -> str:
        self.tries += 1
        if self._failures:
            raise self._failures.pop(0)
        return "done"


def retrying(backoff: Backoff) -> tuple[Retrying, list[float]]:
    pauses: list[float] = []

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)

    return Retrying(backoff, CLOCK, sleep=sleep), pauses


def test_each_pause_is_twice_as_long_as_the_one_before_up_to_the_longest() -> None:
    backoff = Backoff(first_ms=100, max_ms=1_000, jitter=0)

    assert [backoff.pause_s(failures, CLOCK) for failures in (1, 2, 3, 4, 5, 10_000)] == [0.1, 0.2, 0.4, 0.8, 1, 1]


def test_jitter_makes_a_pause_shorter_or_longer_by_a_part_of_itself() -> None:
    pauses = [Backoff(first_ms=1_000, max_ms=1_000, jitter=0.25).pause_s(1, CLOCK) for _ in range(1_000)]

    assert 0.75 <= min(pauses) < 0.8
    assert 1.2 < max(pauses) <= 1.25


async def test_without_a_number_of_attempts_a_step_is_tried_until_it_works() -> None:
    reports: list[tuple[BaseException, int]] = []
    forever, pauses = retrying(Backoff(first_ms=1, max_ms=50, jitter=0))

    assert (
        await forever.do(Step(*[SLOW_DOWN] * 100), lambda error, failures: reports.append((error, failures))) == "done"
    )
    assert reports == [(SLOW_DOWN, number) for number in range(1, 101)]
    assert pauses[:3] == [0.001, 0.002, 0.004]
    assert pauses[-1] == 0.05


@pytest.mark.parametrize(("failures", "tries"), [([SLOW_DOWN] * 5, 3), ([SLOW_DOWN, FORBIDDEN], 2)])
async def test_the_last_error_is_the_callers(failures: list[Exception], tries: int) -> None:
    step = Step(*failures)
    sometimes, pauses = retrying(Backoff(first_ms=1, max_ms=1, attempts=3))

    with pytest.raises(WalObjectStoreError) as error:
        await sometimes.do(step)
    assert error.value is failures[tries - 1]
    assert (step.tries, len(pauses)) == (tries, tries - 1)
