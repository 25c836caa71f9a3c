"""A WAL object store that is not there yet when a broker starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from diskless_core.broker.awaited_objects import ONE_TRY_S, SILENCE_S, AwaitedObjects, standing_aside_while_restoring
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from tests.support.virtual_time import VirtualClock, run

LIMIT_MS = 60_000


def unreachable() -> WalObjectStoreError:
    return WalObjectStoreError("no route to host")


def refused() -> WalObjectStoreError:
    return WalObjectStoreError("there is no such bucket", retriable=False)


class Step:
    """Works from some time on, in seconds; until then it fails, or hangs where it has no error to raise."""

    def __init__(self, works_at: float, error: Callable[[], Exception] | None) -> None:
        self.works_at = works_at
        self.tries = 0
        self._error = error

    async def __call__(self) -> str:
        self.tries += 1
        missing_s = self.works_at - asyncio.get_running_loop().time()
        if missing_s > 0:
            if self._error is not None:
                raise self._error()
            await asyncio.sleep(missing_s)
        return "done"


def awaited(timeout_ms: int = LIMIT_MS) -> AwaitedObjects:
    return AwaitedObjects(timeout_ms, VirtualClock(asyncio.get_running_loop()))


def test_a_start_waits_for_it_and_says_so() -> None:
    async def main() -> None:
        step = Step(20, unreachable)
        with capture_logs() as logs:
            assert await awaited().do(step) == "done"
        assert 20 <= asyncio.get_running_loop().time() < 24
        assert 10 < step.tries < 30
        *waiting, last = logs
        assert {log["error"] for log in waiting} == {"no route to host"}
        assert {log["limit"] for log in waiting} == {"diskless.startup.timeout.ms"}
        assert waiting[0]["gives_up_in_s"] == LIMIT_MS / 1000
        assert waiting[-1]["gives_up_in_s"] < 45
        assert last["event"] == "the WAL object store answers: the start goes on"

    run(main)


def test_a_store_that_is_there_costs_no_word() -> None:
    async def main() -> None:
        with capture_logs() as logs:
            assert await awaited().do(Step(0, None)) == "done"
        assert logs == []

    run(main)


def test_one_that_does_not_answer_is_waited_for_and_that_is_said() -> None:
    async def main() -> None:
        with capture_logs() as logs:
            assert await awaited().do(Step(20, None)) == "done"
        assert [log.get("error") for log in logs] == ["it does not answer", None]
        assert logs[0]["gives_up_in_s"] == LIMIT_MS / 1000 - SILENCE_S

    run(main)


@pytest.mark.parametrize(("error", "says"), [(unreachable, "no route to host"), (None, "it does not answer")])
def test_after_the_limit_the_start_ends_and_says_why(error: Callable[[], Exception] | None, says: str) -> None:
    async def main() -> None:
        with pytest.raises(
            WalObjectStoreError, match=rf"could not be used within 60 s \(diskless.startup.timeout.ms\): {says}"
        ):
            await awaited().do(Step(100, error))
        assert asyncio.get_running_loop().time() == pytest.approx(LIMIT_MS / 1000)

    run(main)


@pytest.mark.parametrize(("error", "timeout_ms"), [(refused, LIMIT_MS), (unreachable, 0)])
def test_what_no_waiting_helps_ends_the_start_at_once(error: Callable[[], Exception], timeout_ms: int) -> None:
    async def main() -> None:
        step = Step(1, error)
        with pytest.raises(WalObjectStoreError) as caught:
            await awaited(timeout_ms).do(step)
        assert (str(caught.value), step.tries) == (str(error()), 1)
        assert asyncio.get_running_loop().time() == 0

    run(main)


def test_a_start_that_is_not_to_wait_gives_a_store_that_hangs_up_in_the_end() -> None:
    async def main() -> None:
        with pytest.raises(WalObjectStoreError, match="has not answered for 60 s"):
            await awaited(0).do(Step(3600, None))
        assert asyncio.get_running_loop().time() == ONE_TRY_S

    run(main)


class Candidacy:
    """Of a broker that starts, for the cluster shard."""

    def __init__(self) -> None:
        self.stands = True

    def stand_aside(self) -> None:
        self.stands = False

    def stand_again(self) -> None:
        self.stands = True


def test_a_start_that_waits_for_shards_to_be_restored_is_no_candidate_meanwhile() -> None:
    async def main() -> None:
        candidacy, shards = Candidacy(), [SimpleNamespace(cannot_lead=False) for _ in range(3)]
        clock = VirtualClock(asyncio.get_running_loop())
        async with standing_aside_while_restoring(candidacy, shards, clock):
            await asyncio.sleep(60)
            assert candidacy.stands
            shards[1].cannot_lead = True
            await asyncio.sleep(SILENCE_S / 2)
            assert candidacy.stands, "a small snapshot takes no longer"
            await asyncio.sleep(SILENCE_S)
            assert not candidacy.stands
            shards[1].cannot_lead = False
            await asyncio.sleep(1)
            assert candidacy.stands
            shards[2].cannot_lead = True
            await asyncio.sleep(300)
            assert not candidacy.stands
        assert candidacy.stands

    run(main)
