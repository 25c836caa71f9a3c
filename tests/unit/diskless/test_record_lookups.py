"""Lookups in batches of many records leave the event loop, and each other, their turns."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise

import pytest

from diskless_core.diskless.record_lookups import RecordLookups
from diskless_core.protocol.record_stream import Steps
from tests.support.guarantees import guarantee


def counted(name: str, steps: int, done: list[str]) -> Steps[str]:
    for _ in range(steps):
        assert threading.current_thread() is not threading.main_thread()
        done.append(name)
        yield
    return f"result of {name}"


@guarantee(
    "Reads",
    "Looking up a timestamp in a batch of very many records holds up no other client: the records are read in a "
    "thread, a few at a time.",
)
async def test_the_event_loop_and_other_lookups_have_their_turn_after_each_step() -> None:
    done: list[str] = []
    lookups = RecordLookups()

    async def count_turns() -> None:
        while True:
            done.append("loop")
            await asyncio.sleep(0)

    turns = asyncio.create_task(count_turns())
    results = await asyncio.gather(*(lookups.result(counted(name, 5, done)) for name in ("first", "second")))
    turns.cancel()
    assert results == ["result of first", "result of second"]
    assert [name for name in done if name != "loop"] == ["first", "second"] * 5
    steps = [index for index, name in enumerate(done) if name != "loop"]
    between = pairwise(steps)
    assert all("loop" in done[earlier + 1 : later] for earlier, later in between)


async def test_what_a_step_raises_is_raised_and_the_next_lookup_goes_on() -> None:
    def failing() -> Steps[None]:
        yield
        raise ValueError("a step failed")

    lookups = RecordLookups()
    with pytest.raises(ValueError, match="a step failed"):
        await lookups.result(failing())
    assert await lookups.result(counted("next", 1, [])) == "result of next"


async def test_a_lookup_that_is_cancelled_ends_with_the_step_that_has_begun() -> None:
    begun, may_end, done = threading.Event(), threading.Event(), list[str]()

    def held() -> Steps[None]:
        begun.set()
        may_end.wait()
        done.append("step")
        yield
        done.append("another step")

    lookups = RecordLookups()
    looking = asyncio.create_task(lookups.result(held()))
    await asyncio.to_thread(begun.wait)
    looking.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await looking
    assert await lookups.result(counted("next", 1, [])) == "result of next"
    assert done == ["step"]
