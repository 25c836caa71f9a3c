"""Starts that take long, fail, or are broken off."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from diskless_core.broker.errors import StartError
from diskless_core.cli.serve import PATIENCE_S, _started
from tests.support.virtual_time import run

LONG_S = 60.0


class Start:
    """A broker and its HTTP interface. `lives_at` is when that begins to answer, in seconds."""

    def __init__(self, takes_s: float, error: Exception | None = None) -> None:
        self.stopping = asyncio.Event()
        self.lives_at: float | None = None
        self.is_broken_off = False
        self._takes_s = takes_s
        self._error = error

    async def start(self) -> None:
        try:
            await asyncio.sleep(self._takes_s)
        except asyncio.CancelledError:
            self.is_broken_off = True
            raise
        if self._error is not None:
            raise self._error

    class Admin:
        def __init__(self, start: Start) -> None:
            self._start = start

        def start(self) -> None:
            self._start.lives_at = asyncio.get_running_loop().time()

    async def run(self) -> bool:
        return await _started(cast("Any", self), cast("Any", self.Admin(self)), self.stopping)


def test_a_long_start_says_that_the_process_lives_and_a_short_one_spares_itself_the_server() -> None:
    async def main() -> None:
        short, long = Start(PATIENCE_S / 2), Start(LONG_S)
        assert await asyncio.gather(short.run(), long.run()) == [True, True]
        assert (short.lives_at, long.lives_at) == (None, PATIENCE_S)

    run(main)


@pytest.mark.parametrize("takes_s", [PATIENCE_S / 2, LONG_S])
def test_a_start_that_fails_raises_why(takes_s: float) -> None:
    async def main() -> None:
        with pytest.raises(StartError, match="taken"):
            await Start(takes_s, StartError("taken")).run()

    run(main)


@pytest.mark.parametrize("stops_at", [PATIENCE_S / 2, LONG_S / 2])
def test_a_signal_breaks_off_a_start(stops_at: float) -> None:
    async def main() -> None:
        start = Start(LONG_S)
        asyncio.get_running_loop().call_later(stops_at, start.stopping.set)
        assert not await start.run()
        assert start.is_broken_off
        assert asyncio.get_running_loop().time() == stops_at

    run(main)
