"""Gathers the steps of an external compaction job into few requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from diskless_core.admin.driver_models import (
    STEPS_IN_REQUEST,
    RefusedAnswer,
    Step,
    StepAnswer,
    StepsAnswer,
    StepsBody,
)
from diskless_core.cli.admin_client import AdminClientError, RefusedError

REQUESTS_AT_ONCE = 4

AnswerT = TypeVar("AnswerT", bound=StepAnswer)


@dataclass(frozen=True, slots=True)
class _Asked:
    step: Step
    answer: asyncio.Future[StepAnswer]


class StepBatches:
    """The steps of one job. Those that are asked for while requests are under way go together in the next one.

    Args:
        send: makes a request, again and again until there is an answer. Raises AdminClientError.
    """

    def __init__(self, send: Callable[[StepsBody], Awaitable[StepsAnswer]]) -> None:
        self._send = send
        self._waiting: deque[_Asked] = deque()
        self._requests: set[asyncio.Task[None]] = set()
        self._is_gathering = False

    async def ask(self, step: Step, answer: type[AnswerT]) -> AnswerT:
        """Take a step.

        Raises:
            RefusedError: the broker did not take it, or does not know.
            AdminClientError: what answers is no broker, or the request was given up.
        """
        asked = _Asked(step, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        self._begin_request()
        found = await asked.answer
        if not isinstance(found, answer):
            raise AdminClientError(f"what answers is no broker: it answered {found.step} to {step.step}")
        return found

    def close(self) -> None:
        """Ask for nothing any more. Whoever waits for an answer is cancelled."""
        for asked in self._waiting:
            asked.answer.cancel()
        self._waiting.clear()
        for request in self._requests:
            request.cancel()

    def _begin_request(self) -> None:
        """Begin one more, if it may be. It gathers what is asked for in this turn of the event loop, too."""
        if self._waiting and not self._is_gathering and len(self._requests) < REQUESTS_AT_ONCE:
            self._is_gathering = True
            request = asyncio.create_task(self._request(), name="steps of a compaction")
            self._requests.add(request)
            request.add_done_callback(self._ended)

    def _ended(self, request: asyncio.Task[None]) -> None:
        self._requests.discard(request)
        self._begin_request()

    async def _request(self) -> None:
        batch = self._gathered()
        self._begin_request()
        if not batch:
            return
        try:
            said = await self._send(StepsBody(steps=[asked.step for asked in batch]))
            self._tell(batch, said.answers)
        except asyncio.CancelledError:
            for asked in batch:
                asked.answer.cancel()
            raise
        except Exception as error:
            for asked in batch:
                if not asked.answer.done():
                    asked.answer.set_exception(error)

    def _gathered(self) -> Sequence[_Asked]:
        """Steps for one request, without those that nobody waits for any more."""
        self._is_gathering = False
        batch: list[_Asked] = []
        while self._waiting and len(batch) < STEPS_IN_REQUEST:
            asked = self._waiting.popleft()
            if not asked.answer.done():
                batch.append(asked)
        return batch

    def _tell(self, batch: Sequence[_Asked], answers: Sequence[StepAnswer | None]) -> None:
        if len(answers) != len(batch):
            raise AdminClientError(f"what answers is no broker: {len(answers)} answers to {len(batch)} steps")
        again: list[_Asked] = []
        for asked, answer in zip(batch, answers, strict=True):
            if asked.answer.done():
                continue
            if answer is None:
                again.append(asked)
            elif isinstance(answer, RefusedAnswer):
                message = f"the broker answered {answer.error_code} to {asked.step.step}: {answer.message}"
                asked.answer.set_exception(RefusedError(message, answer.message))
            else:
                asked.answer.set_result(answer)
        self._waiting.extendleft(reversed(again))
