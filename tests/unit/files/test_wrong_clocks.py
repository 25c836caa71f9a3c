"""Retention and deletion where a clock is a day off: nothing goes before its time has passed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from diskless_core.files.deletion_plan import ANSWERS_KEPT_MS
from diskless_core.files.retention import OFF, RetentionRules
from tests.support.file_life import DELAY_MS, FileLife
from tests.support.guarantees import guarantee
from tests.support.shards import batch
from tests.support.virtual_time import START_MS, run

DAY_MS = 86_400_000
DELAY_S = DELAY_MS / 1000
ONE_HOUR = RetentionRules(retention_ms=3_600_000, retention_bytes=OFF)
HOUR_S = 3_600


async def jumps(life: FileLife) -> None:
    """The clock of a running broker goes a day ahead."""
    life.clock.skew_ms += DAY_MS


async def restarts(life: FileLife) -> None:
    """The broker is killed, and started with a clock that is a day ahead."""
    life.clock.skew_ms += DAY_MS
    await life.restart()


async def restarts_empty(life: FileLife) -> None:
    """The same, without the broker's store."""
    life.clock.skew_ms += DAY_MS
    await life.restart(with_empty_stores=True)


goes_wrong = pytest.mark.parametrize("goes_wrong", [jumps, restarts, restarts_empty])
Wrong = Callable[[FileLife], Coroutine[Any, Any, None]]


@guarantee("Deletion and retention", "A clock that goes a day ahead removes no records before their time has passed.")
@goes_wrong
def test_records_stay_for_their_retention_time_though_the_clock_goes_a_day_ahead(goes_wrong: Wrong) -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            life.rules = ONE_HOUR
            await life.put("a", batch(max_timestamp=START_MS))
            await life.put("b", batch(max_timestamp=START_MS + 60_000))
            await goes_wrong(life)
            await life.check_retention()
            await asyncio.sleep(HOUR_S - 60)
            await life.check_retention()
            assert [one.object_key for one in await life.live_runs()] == ["a", "b"]
            await asyncio.sleep(180)
            await life.check_retention()
            assert await life.live_runs() == []

    run(main)


@goes_wrong
def test_records_that_are_written_after_the_clock_went_wrong_are_removed_in_time(goes_wrong: Wrong) -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            life.rules = ONE_HOUR
            await life.put("a", batch(max_timestamp=START_MS))
            await goes_wrong(life)
            await life.check_retention()
            await asyncio.sleep(1)
            await life.put("b", batch(max_timestamp=life.clock.now_ms()))
            await asyncio.sleep(HOUR_S - 10)
            await life.check_retention()
            assert "b" in {one.object_key for one in await life.live_runs()}
            await asyncio.sleep(20)
            await life.check_retention()
            assert await life.live_runs() == []

    run(main)


def test_a_clock_that_goes_a_day_back_keeps_records_for_longer() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            life.rules = ONE_HOUR
            await life.put("a", batch(max_timestamp=START_MS))
            life.clock.skew_ms -= DAY_MS
            await asyncio.sleep(2 * HOUR_S)
            await life.check_retention()
            assert len(await life.live_runs()) == 1
            life.clock.skew_ms = 0
            await life.check_retention()
            assert len(await life.live_runs()) == 1, "the clock has jumped ahead, by a day more than passed"
            await asyncio.sleep(HOUR_S + 1)
            await life.check_retention()
            assert await life.live_runs() == []

    run(main)


@guarantee("Deletion and retention", "A clock that goes a day ahead does not shorten the grace period of an object.")
@goes_wrong
def test_an_object_stays_for_its_grace_period_though_the_clock_goes_a_day_ahead(goes_wrong: Wrong) -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            await life.put("a", batch())
            await life.delete_records()
            await life.trim()
            await goes_wrong(life)
            life.run_in_background()
            await asyncio.sleep(DELAY_S - 5)
            assert life.stored == {"a"}
            await asyncio.sleep(DELAY_S)
            assert life.stored == set()
            await asyncio.sleep(ANSWERS_KEPT_MS / 1000 - 3 * DELAY_S)
            assert (await life.known_files())["known"] == {"a"}, "its answer is kept for ten minutes"

    run(main)


def test_nothing_is_removed_while_the_clock_of_another_broker_is_off_and_all_of_it_afterwards() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            life.rules = ONE_HOUR
            await life.put("a", batch(max_timestamp=START_MS))
            await life.put("b", batch(max_timestamp=START_MS + DAY_MS))
            await life.delete_records(offset=1)
            await life.put("c", batch(max_timestamp=START_MS + DAY_MS))
            watch = life.nodes[0].shard.clock_watch
            watch.compared({2: -DAY_MS})
            life.run_in_background()
            await asyncio.sleep(2 * DAY_MS / 1000)
            await life.check_retention()
            assert life.stored == {"a", "b", "c"}
            watch.compared({2: 0})
            await asyncio.sleep(HOUR_S + 1)
            await life.check_retention()
            await asyncio.sleep(3 * DELAY_S)
            assert life.stored == set()

    run(main)
