"""Threads for calls that block. One that never returns, as on a mount whose server is gone, holds up nobody's end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any

_Work = tuple[Future[Any], Callable[[], Any]]


class Threads(Executor):
    """An executor of daemon threads, `count` of them at most: the process can end while they hang."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._work = SimpleQueue[_Work | None]()
        self._threads: list[threading.Thread] = []
        self._is_stopped = False

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a call done; of one thread only, that of the event loop.

        Raises:
            RuntimeError: they are stopped.
        """
        if self._is_stopped:
            raise RuntimeError(f"the threads {self._name} are stopped")
        answer: Future[Any] = Future()
        self._work.put((answer, lambda: work(*args, **kwargs)))
        if len(self._threads) < self._count:
            thread = threading.Thread(
                target=_run, args=(self._work,), name=f"{self._name}-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        return answer

    async def stop(self, limit_s: float) -> bool:
        """Take no more work, and wait for what there is, so long at most. Whether all of it is done. Idempotent."""
        if not self._is_stopped:
            self._is_stopped = True
            for _ in self._threads:
                self._work.put(None)
        if not self._threads:
            return True
        all_ended: Future[None] = Future()
        all_ended.set_running_or_notify_cancel()
        threading.Thread(target=_join, args=(self._threads, all_ended), name=f"{self._name}-end", daemon=True).start()
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.wrap_future(all_ended)
        except TimeoutError:
            return False
        return True


def _run(work: SimpleQueue[_Work | None]) -> None:
    while (item := work.get()) is not None:
        _do(*item)
        del item  # what it read is not kept until there is more to do


def _do(answer: Future[Any], call: Callable[[], Any]) -> None:
    if not answer.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        answer.set_exception(error)
    else:
        answer.set_result(result)
    finally:
        del answer, call  # an error has this frame in its traceback


def _join(threads: Sequence[threading.Thread], all_ended: Future[None]) -> None:
    for thread in threads:
        thread.join()
    all_ended.set_result(None)
