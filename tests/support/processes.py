"""Processes of a simulation that die at any of their steps, as by `kill -9`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from diskless_core.coordinator.errors import CoordinatorError
from tests.simulation.processes import Process, ProcessLoop

T = TypeVar("T")


class ProcessDiedError(CoordinatorError):
    """Whoever was asked is no more; it may have happened."""


class MortalProcess(Process):
    """Nothing of it runs any more when it was killed. `on_death` is called then.

    Attributes:
        steps: how many it made; each is a task that goes on after an await, or another callback.
        dies_at: the step that it does not make any more.
    """

    def __init__(self, loop: ProcessLoop, name: str, on_death: Callable[[], None]) -> None:
        super().__init__(loop, name)
        self.steps = 0
        self.dies_at: int | None = None
        self._on_death = on_death
        self._died = loop.create_future()
        loop.adopt(self)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives when it runs here, asked from outside.

        Raises:
            ProcessDiedError: there will be no answer.
        """
        if self._died.done():
            work.close()
            raise ProcessDiedError("there is nobody to answer")
        task = self.start(work)
        task.add_done_callback(_retrieve)
        await asyncio.wait({task, self._died}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ProcessDiedError("the process died meanwhile")
        return task.result()

    def kill(self) -> None:
        """From now on none of its tasks takes a step, and none of its callbacks is called."""
        if not self._died.done():
            self.freeze()
            self._died.set_result(None)
            self._on_death()

    def may_run(self) -> bool:
        self.steps += 1
        if self.steps == self.dies_at:
            self.kill()
        return super().may_run()


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Nobody may be waiting for it any more."""
    if not task.cancelled():
        task.exception()
