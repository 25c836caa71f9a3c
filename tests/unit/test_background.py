"""What a stop does with work and backends that do not end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from diskless_core.background import BACKEND_END_S, END_S, Background, end_backend
from tests.support.virtual_time import run

HANGS_S = 3600.0


class Backend:
    """One whose stop takes its time, or fails."""

    def __init__(self, takes_s: float, error: Exception | None = None) -> None:
        self.is_stopped = False
        self._takes_s = takes_s
        self._error = error

    async def stop(self) -> None:
        await asyncio.sleep(self._takes_s)
        if self._error is not None:
            raise self._error
        self.is_stopped = True


def clearing_away(takes_s: float, cleared: list[float]) -> Callable[[], Awaitable[None]]:
    """Work that clears away behind itself when it is cancelled, as the copy of a segment does."""

    async def work() -> None:
        try:
            await asyncio.sleep(HANGS_S)
        finally:
            await asyncio.sleep(takes_s)
            cleared.append(takes_s)

    return work


def test_work_may_clear_away_behind_itself_unless_that_hangs() -> None:
    async def main() -> None:
        cleared: list[float] = []
        loops = Background()
        loops.run(clearing_away(END_S / 2, cleared), "quick")
        loops.run(clearing_away(HANGS_S, cleared), "hangs")
        await asyncio.sleep(1)
        with capture_logs() as logs:
            await loops.stop()
        assert asyncio.get_running_loop().time() == pytest.approx(1 + END_S)
        assert cleared == [END_S / 2]
        assert [log["work"] for log in logs] == [["hangs"]]

    run(main)


def test_a_stop_of_nothing_takes_no_time() -> None:
    async def main() -> None:
        await Background().stop()
        assert asyncio.get_running_loop().time() == 0

    run(main)


def test_a_backend_that_does_not_stop_is_left_behind() -> None:
    async def main() -> None:
        quick, hangs = Backend(1), Backend(HANGS_S)
        with capture_logs() as logs:
            await end_backend("quick", quick)
            await end_backend("hangs", hangs)
        assert (quick.is_stopped, hangs.is_stopped) == (True, False)
        assert asyncio.get_running_loop().time() == pytest.approx(1 + BACKEND_END_S)
        assert [log["backend"] for log in logs] == ["hangs"]
        with pytest.raises(OSError, match="broken"):
            await end_backend("broken", Backend(0, OSError("broken")))

    run(main)
