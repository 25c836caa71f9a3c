"""How a benchmark of a backend counts."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.clock import SystemClock
from diskless_core.trial.bench.comparison import Comparison, shown
from diskless_core.trial.bench.load import OBJECT_BYTES, OBJECTS_PER_S, Measure, Run, keep_busy, keep_calling


def test_the_arithmetic_is_right() -> None:
    assert (OBJECTS_PER_S - 1) * OBJECT_BYTES < 100_000_000 <= OBJECTS_PER_S * OBJECT_BYTES


def test_percentiles_and_rates() -> None:
    run = Run(latencies_s=[number / 1000 for number in range(100, 0, -1)], wall_s=2.0, cpu_s=1.0)
    assert run.per_s == 50
    assert run.percentile_ms(50) == pytest.approx(51)
    assert run.percentile_ms(99) == pytest.approx(100)
    assert run.cpu("x").value == pytest.approx(10)


async def test_so_many_are_under_way_at_once_and_each_at_least_once() -> None:
    most = under_way = 0

    async def operation(_: int) -> None:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    run = await keep_busy(SystemClock(), 0, 5, operation)
    assert (most, len(run.latencies_s)) == (5, 5)


def test_what_does_not_wait_is_called_at_least_once() -> None:
    assert len(keep_calling(SystemClock(), 0, lambda _: None).latencies_s) == 1


def test_what_is_below_its_need_is_a_bottleneck() -> None:
    slow, quick = (Measure(name="puts, MB/s", value=value, needed=100) for value in (40, 800))
    verdicts = Comparison(noun="noun", sides={"slow": [slow], "quick": [quick]}, left_behind=[]).verdicts
    assert verdicts == [
        "At 100 MB/s noun.slow would be the bottleneck: puts, MB/s is 40 and has to be 100.",
        "At 100 MB/s noun.quick would not be the bottleneck.",
    ]
    assert shown(Measure(name="x", value=0.012345)) == "0.0123"
    assert shown(Measure(name="x", value=12345.6)) == "12,346"
