"""Processes of a simulation on one virtual-time loop: each may be frozen for a while, or for good, at any callback.

A frozen process is one that does not run: its timers fire and its answers arrive, and all of it waits until it thaws.
To kill one is to freeze it for ever: no `finally` runs, nobody is told. What is outside (a request on its way, the
object store at work) goes on.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from tests.support.virtual_time import VirtualTimeLoop

T = TypeVar("T")
P = TypeVar("P", bound="Process")

_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Process:
    """What runs in its context is frozen with it."""

    def __init__(self, loop: ProcessLoop, name: str) -> None:
        self.name = name
        self._loop = loop
        self._frozen = False
        self._steps_left = 0
        self._stopped = asyncio.Event()
        self._waiting: list[_Gated] = []
        self._context = contextvars.Context()
        self._context.run(_PROCESS.set, self)

    @property
    def is_frozen(self) -> bool:
        return self._frozen

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in this process."""
        return self._loop.create_task(work, context=self._context.copy())

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_soon(callback, *args, context=self._context.copy())

    def may_run(self) -> bool:
        """Asked before each callback, which has to wait if not; this counts a step."""
        self._steps_left -= 1
        if not self._steps_left:
            self.freeze()
            self._stopped.set()
        return not self._frozen

    def freeze(self) -> None:
        self._frozen = True
        self._steps_left = 0

    async def freeze_after(self, steps: int, within_s: float) -> None:
        """Freeze it between two steps, wherever it is then; return when it is frozen."""
        self._steps_left = steps
        self._stopped.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._stopped.wait()
        self.freeze()

    def thaw(self) -> None:
        """Go on where it stopped; all that became due meanwhile is due now, in that order."""
        self._frozen = False
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            self._loop.call_again(one)

    def hold_back(self, one: _Gated) -> None:
        self._waiting.append(one)


class _Gated:
    """A callback of a process."""

    __slots__ = ("args", "callback", "context", "handle", "process")

    def __init__(
        self, process: Process, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context
    ) -> None:
        self.process = process
        self.callback = callback
        self.args = args
        self.context = context
        self.handle: asyncio.Handle

    def __call__(self) -> None:
        if self.handle.cancelled():
            return
        if self.process.may_run():
            del self.handle  # it refers to this object, and the garbage of a world is collected in its end only
            self.callback(*self.args)
        else:
            self.process.hold_back(self)


class ProcessLoop(VirtualTimeLoop):
    """The loop that all processes, and the world around them, share."""

    def __init__(self) -> None:
        super().__init__()
        self._processes: list[Process] = []
        self.defects: list[str] = []
        self.set_exception_handler(lambda _, context: self.defects.append(_described(context)))

    def process(self, name: str) -> Process:
        return self.adopt(Process(self, name))

    def adopt(self, process: P) -> P:
        """Let `thaw_all` know of a process."""
        self._processes.append(process)
        return process

    def thaw_all(self) -> None:
        """Let even the dead run on, for the loop to be closed, and nobody freeze any more."""
        for process in self._processes:
            process.freeze()
            process.thaw()

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        gated = _gated(callback, args, context)
        if gated is None:
            return super().call_soon(callback, *args, context=context)
        gated.handle = super().call_soon(gated, context=gated.context)
        return gated.handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        gated = _gated(callback, args, context)
        if gated is None:
            return super().call_at(when, callback, *args, context=context)
        handle = super().call_at(when, gated, context=gated.context)
        gated.handle = handle
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """There is one thread: nothing has to be woken."""
        return self.call_soon(callback, *args, context=context)

    def call_again(self, one: _Gated) -> None:
        """Run a callback that was held back; its handle stays the one that its owner may cancel."""
        super().call_soon(one, context=one.context)


def _gated(
    callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
) -> _Gated | None:
    process = _PROCESS.get() if context is None else context.get(_PROCESS)
    if process is None:
        return None
    return _Gated(process, callback, args, contextvars.copy_context() if context is None else context)


def _described(context: dict[str, Any]) -> str:
    return f"{context['message']}: {context.get('exception')!r}"


def later_outside(delay_s: float, callback: Callable[..., object], *args: Any) -> None:
    """Call back in the world's name, even if the process that asks for it does not run then."""
    asyncio.get_running_loop().call_later(delay_s, callback, *args, context=contextvars.Context())


async def outside(work: Coroutine[Any, Any, T]) -> T:
    """Let the world do something for the process that calls. It is done even if the process ends meanwhile."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def hand_on(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            answer.cancel()
        elif (error := task.exception()) is not None:
            if not answer.done():
                answer.set_exception(error)
        elif not answer.done():
            answer.set_result(task.result())

    context = contextvars.Context()
    loop.create_task(work, context=context).add_done_callback(hand_on, context=context)
    return await answer
