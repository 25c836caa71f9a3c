"""Parts of a request side by side: in their order, and never more of them, or of tasks, than the limit."""

from __future__ import annotations

import asyncio
import threading

import pytest

from diskless_core.side_by_side import AT_ONCE, in_thread, side_by_side, side_by_side_in_groups, together
from tests.support.virtual_time import run

MANY = 20_000


def test_no_more_parts_of_a_request_are_under_way_than_the_limit() -> None:
    async def main() -> None:
        under_way, most, begun = 0, 0, list[int]()

        async def work(part: int) -> int:
            nonlocal under_way, most
            begun.append(part)
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(1 + part % 3)
            under_way -= 1
            return -part

        parts = range(3 * AT_ONCE)
        assert await side_by_side(work, parts) == [-part for part in parts]
        assert most == AT_ONCE
        assert begun == list(parts)

    run(main)


def test_parts_that_wait_for_their_turn_cost_no_task_and_leave_the_event_loop_to_others() -> None:
    async def main() -> None:
        tasks, turns_of_others = list[int](), 0

        async def others() -> None:
            nonlocal turns_of_others
            while True:
                turns_of_others += 1
                await asyncio.sleep(0)

        async def work(part: int) -> int:
            if part % 1000 == 0:
                tasks.append(len(asyncio.all_tasks()))
            return part

        other = asyncio.create_task(others())
        assert await side_by_side(work, range(MANY)) == list(range(MANY))
        assert max(tasks) <= AT_ONCE + 2
        assert turns_of_others >= MANY / AT_ONCE
        other.cancel()

    run(main)


def test_the_end_of_what_a_part_waits_for_ends_the_request_alone() -> None:
    async def main() -> None:
        shared = asyncio.get_running_loop().create_future()

        async def work(part: int) -> int:
            await (shared if part == 1 else asyncio.sleep(1))
            return part

        asyncio.get_running_loop().call_later(0.5, shared.cancel)
        with pytest.raises(asyncio.CancelledError):
            await side_by_side(work, range(3))

    run(main)


def test_parts_in_groups_are_answered_by_group() -> None:
    async def main() -> None:
        async def work(group: str, part: int) -> str:
            await asyncio.sleep(5 - part)
            return f"{group}{part}"

        groups = [("a", [1, 2]), ("b", []), ("c", [3])]
        assert await side_by_side_in_groups(work, groups, at_once=2) == [["a1", "a2"], [], ["c3"]]
        assert await side_by_side_in_groups(work, []) == []

    run(main)


def test_an_exception_of_one_part_is_raised_as_it_is_and_ends_the_others() -> None:
    async def main() -> None:
        done = list[int]()

        async def work(part: int) -> None:
            await asyncio.sleep(1 + part)
            if part == 3:
                raise ValueError("three")
            done.append(part)

        with pytest.raises(ValueError, match="three"):
            await side_by_side(work, range(10))
        await asyncio.sleep(20)
        assert done == [0, 1, 2]

    run(main)


def test_a_cancellation_that_work_answers_with_an_error_stays_one() -> None:
    async def main() -> None:
        async def stubborn() -> None:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                raise OSError("the connection is closed") from None

        task = asyncio.create_task(together([stubborn(), stubborn()]))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await side_by_side(lambda _: stubborn(), range(3))

    run(main)


async def test_a_caller_that_is_cancelled_waits_for_its_thread() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(60)
        ended.set()

    caller = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(begun.wait, 60)
    for _ in range(2):
        caller.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    assert not caller.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended.is_set()


async def test_what_work_on_a_thread_raises_is_its_callers() -> None:
    def work() -> None:
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        await in_thread(work)
