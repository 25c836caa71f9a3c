"""What a producer hears when the time of its request is over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from diskless_core.broker.handlers import produce
from diskless_core.diskless.commands import BatchResult
from diskless_core.produce.accumulator import Submission
from diskless_core.protocol.errors import ErrorCode
from tests.support.guarantees import guarantee
from tests.support.virtual_time import VirtualClock, run


@guarantee(
    "Offsets",
    "When a request's time is over, partitions that are committed are answered with their offsets, the others with "
    "REQUEST_TIMED_OUT.",
)
def test_what_is_committed_when_the_time_is_over_is_told_so() -> None:
    async def main() -> None:
        appended: list[Submission] = []
        answers: list[Sequence[BatchResult]] = []
        frame = SimpleNamespace(hold=lambda: None, release=lambda: None)
        clock = VirtualClock(asyncio.get_running_loop())
        services = SimpleNamespace(writer=SimpleNamespace(append=appended.append), clock=clock)
        context = cast("Any", SimpleNamespace(frame=frame, services=services))
        plan = cast("Any", SimpleNamespace(batches=[object()] * 3))
        produce._submit(context, plan, 5_000, lambda results: answers.append(list(results)))
        [submission] = appended
        assert submission.deadline_s == clock.monotonic() + 5
        assert submission.learn is not None
        submission.learn(1, BatchResult(base_offset=7))
        await asyncio.sleep(4.9)
        assert answers == []
        await asyncio.sleep(0.2)
        timed_out = BatchResult(ErrorCode.REQUEST_TIMED_OUT)
        assert answers == [[timed_out, BatchResult(base_offset=7), timed_out]]

    run(main)
