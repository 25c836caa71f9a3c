"""The network of a simulated world: requests are delayed, lost on their way or on their way back, or cut off."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.simulation.processes import Process, later_outside

T = TypeVar("T")


class NetworkError(Exception):
    """No answer came in time. The request may have been carried out, or may yet."""


class Network:
    """Between brokers, and between clients and brokers. `loss_rate` (0 to 1) is of requests, and of answers.

    Nodes are named by their ids, clients by `CLIENT`. A pair that is cut off loses everything.
    """

    CLIENT = -1

    def __init__(self, source: random.Random) -> None:
        self.loss_rate = 0.0
        self.slow_rate = 0.0
        self._random = source
        self._cut: set[tuple[int, int]] = set()
        self._arrived_s: dict[tuple[int, int, bool], float] = {}

    def cut(self, one: int, other: int) -> None:
        self._cut.add((min(one, other), max(one, other)))

    def heal(self) -> None:
        self._cut.clear()

    async def ask(
        self, source: int, target: int, server: Process, work: Callable[[], Awaitable[T]], timeout_s: float
    ) -> T:
        """Run `work` in the process of the target, and bring back what it returns or raises.

        Raises:
            NetworkError: there was no answer within `timeout_s`.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        async def serve() -> None:
            try:
                result = await work()
            except Exception as error:
                self._send(source, target, _fail, answer, error)
            else:
                self._send(source, target, _succeed, answer, result)

        self._send(source, target, lambda: server.call_soon(lambda: server.start(serve())))
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise NetworkError(f"no answer from {target}") from None

    def _send(self, source: int, target: int, arrive: Callable[..., object], *arguments: object) -> None:
        """One way, in either direction."""
        lost = self._random.random() < self.loss_rate
        slow = self._random.random() < self.slow_rate
        delay_s = self._random.uniform(0.2, 3.0) if slow else self._random.uniform(0.0005, 0.003)
        if not lost and (min(source, target), max(source, target)) not in self._cut:
            link = source, target, arrive in (_succeed, _fail)
            now_s = asyncio.get_running_loop().time()
            # A connection keeps the order; timers of one moment have none.
            self._arrived_s[link] = max(now_s + delay_s, self._arrived_s.get(link, 0.0) + 1e-6)
            later_outside(self._arrived_s[link] - now_s, arrive, *arguments)


def _succeed(answer: asyncio.Future[T], result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[T], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
