"""Runs lookups of records in batches off the event loop: in a thread, one step at a time.

A batch may hold millions of records, so one lookup can take seconds. The event loop runs between two steps, and so do
other lookups, in the order in which they asked.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from diskless_core.protocol.record_stream import Steps
from diskless_core.side_by_side import in_thread

T = TypeVar("T")


class _Result(NamedTuple, Generic[T]):
    value: T


class RecordLookups:
    """The lookups of one reader of batches."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def result(self, steps: Steps[T]) -> T:
        """The result of a lookup, or the error that a step raises. Cancelling waits for the step that is running.

        The caller must not change the batch meanwhile.
        """
        while True:
            async with self._turn:
                done = await in_thread(partial(_step, steps))
            if done is not None:
                return done.value


def _step(steps: Steps[T]) -> _Result[T] | None:
    try:
        next(steps)
    except StopIteration as end:
        return _Result(end.value)
    return None
