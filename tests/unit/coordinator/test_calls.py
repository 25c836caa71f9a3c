"""What a node asks of another one, and when it gives up."""

from __future__ import annotations

import asyncio
import gc

import pytest

from diskless_core.coordinator import calls
from diskless_core.coordinator.errors import OutcomeUnknownError
from tests.support.virtual_time import run


def test_a_node_is_waited_for_until_a_while_after_another_one_leads() -> None:
    async def main() -> None:
        loop, another_leads = asyncio.get_running_loop(), asyncio.Event()

        async def until_another_leads() -> None:
            await another_leads.wait()

        assert await calls.while_led(asyncio.sleep(100, "late"), until_another_leads) == "late"
        begun = loop.time()
        another_leads.set()
        assert await calls.while_led(asyncio.sleep(calls.MOVED_S / 2, "soon"), until_another_leads) == "soon"
        with pytest.raises(OutcomeUnknownError):
            await calls.while_led(asyncio.sleep(100), until_another_leads)
        assert loop.time() - begun < 2 * calls.MOVED_S

    run(main)


def test_a_question_whose_time_is_over_at_once_leaves_nothing_behind() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await calls.while_led(asyncio.Event().wait(), asyncio.Event().wait)
        gc.collect()

    run(main)
