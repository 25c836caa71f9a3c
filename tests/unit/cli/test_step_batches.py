"""Steps of an external compaction job go to the broker in few requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from diskless_core.admin.driver_models import (
    STEPS_IN_REQUEST,
    AbandonAnswer,
    RefusedAnswer,
    SegmentsAnswer,
    SegmentsStep,
    StepAnswer,
    StepsAnswer,
    StepsBody,
)
from diskless_core.cli.admin_client import AdminClientError, NoAnswerError, RefusedError
from diskless_core.cli.step_batches import REQUESTS_AT_ONCE, StepBatches


class Broker:
    """Has requests wait until they are let through.

    Attributes:
        requests: the partitions of the steps of each, in order.
    """

    def __init__(self) -> None:
        self.requests: list[Sequence[int]] = []
        self._gates: list[asyncio.Future[StepsAnswer]] = []
        self.batches = StepBatches(self._send)

    async def _send(self, body: StepsBody) -> StepsAnswer:
        self.requests.append([step.partition for step in body.steps])
        gate: asyncio.Future[StepsAnswer] = asyncio.get_running_loop().create_future()
        self._gates.append(gate)
        return await gate

    def ask(self, *partitions: int) -> list[asyncio.Task[SegmentsAnswer]]:
        """A step for each."""
        steps = [SegmentsStep(partition=partition, number=0) for partition in partitions]
        return [asyncio.create_task(self.batches.ask(step, SegmentsAnswer)) for step in steps]

    def answer(self, number: int, of: Callable[[int], StepAnswer | None]) -> None:
        answers = [of(partition) for partition in self.requests[number]]
        self._gates[number].set_result(StepsAnswer(answers=answers))

    def fail(self, number: int, error: Exception) -> None:
        self._gates[number].set_exception(error)


async def turns() -> None:
    """Enough turns of the event loop for all that can be done."""
    for _ in range(20):
        await asyncio.sleep(0)


def told(partition: int) -> SegmentsAnswer:
    """An answer that tells which step it is for."""
    return SegmentsAnswer(segments=[], is_last=True, producers=bytes([partition % 256]))


async def test_steps_go_together_and_each_gets_its_own_answer():
    broker = Broker()
    asked = broker.ask(3, 1, 2)
    await turns()
    broker.answer(0, told)
    assert [answer.producers for answer in await asyncio.gather(*asked)] == [b"\3", b"\1", b"\2"]
    assert broker.requests == [[3, 1, 2]]


async def test_few_requests_are_under_way_and_what_is_asked_for_meanwhile_goes_in_the_next_one():
    broker = Broker()
    asked = []
    for partition in range(REQUESTS_AT_ONCE + 5):
        asked += broker.ask(partition)
        await turns()
    assert broker.requests == [[partition] for partition in range(REQUESTS_AT_ONCE)]
    broker.answer(2, told)
    await turns()
    assert broker.requests[REQUESTS_AT_ONCE:] == [list(range(REQUESTS_AT_ONCE, REQUESTS_AT_ONCE + 5))]
    for number in {*range(REQUESTS_AT_ONCE + 1)} - {2}:
        broker.answer(number, told)
    assert [answer.producers[0] for answer in await asyncio.gather(*asked)] == [*range(REQUESTS_AT_ONCE + 5)]


async def test_a_request_has_no_more_steps_than_it_may():
    broker = Broker()
    asked = broker.ask(*range(STEPS_IN_REQUEST + 1))
    await turns()
    assert [len(request) for request in broker.requests] == [STEPS_IN_REQUEST, 1]
    for number in range(2):
        broker.answer(number, told)
    await asyncio.gather(*asked)


async def test_what_did_not_fit_into_an_answer_is_asked_for_again_before_others():
    broker = Broker()
    asked = broker.ask(0, 1, 2)
    await turns()
    for partition in range(3, REQUESTS_AT_ONCE + 3):
        asked += broker.ask(partition)
        await turns()
    broker.answer(0, lambda partition: None if partition else told(partition))
    await turns()
    assert broker.requests[REQUESTS_AT_ONCE:] == [[1, 2, REQUESTS_AT_ONCE + 2]]
    for number in range(1, REQUESTS_AT_ONCE + 1):
        broker.answer(number, told)
    assert [answer.producers[0] for answer in await asyncio.gather(*asked)] == [*range(REQUESTS_AT_ONCE + 3)]


async def test_a_step_that_is_refused_leaves_the_others_alone():
    broker = Broker()
    asked = broker.ask(0, 1, 2)
    await turns()
    refusal = RefusedAnswer(error_code=503, message="no")
    broker.answer(0, lambda partition: refusal if partition == 1 else told(partition))
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(answers[1], RefusedError)
    assert answers[1].reason == "no"
    assert [answers[0].producers, answers[2].producers] == [b"\0", b"\2"]


async def test_a_request_that_fails_fails_its_steps_and_no_later_ones():
    broker = Broker()
    asked = broker.ask(0, 1)
    await turns()
    broker.fail(0, NoAnswerError("nobody"))
    assert {type(one) for one in await asyncio.gather(*asked, return_exceptions=True)} == {NoAnswerError}
    [later] = broker.ask(2)
    await turns()
    broker.answer(1, told)
    assert (await later).producers == b"\2"


async def test_what_is_not_waited_for_any_more_is_not_asked_for():
    broker = Broker()
    for partition in range(REQUESTS_AT_ONCE):
        broker.ask(partition)
        await turns()
    waiting = broker.ask(7, 8)
    await turns()
    waiting[0].cancel()
    broker.answer(0, told)
    await turns()
    assert broker.requests[REQUESTS_AT_ONCE:] == [[8]]
    broker.batches.close()


async def test_answers_that_are_no_brokers_are_an_error():
    broker = Broker()
    few, other = broker.ask(0), broker.ask(1)
    await turns()
    broker.answer(0, lambda partition: AbandonAnswer())
    for asked in (*few, *other):
        with pytest.raises(AdminClientError, match="it answered abandon to segments"):
            await asked
    few = broker.ask(0, 1)
    await turns()
    broker._gates[1].set_result(StepsAnswer(answers=[told(0)]))
    for asked in few:
        with pytest.raises(AdminClientError, match="1 answers to 2 steps"):
            await asked


async def test_closing_ends_what_is_under_way_and_what_waits():
    broker = Broker()
    asked = []
    for partition in range(REQUESTS_AT_ONCE + 1):
        asked += broker.ask(partition)
        await turns()
    broker.batches.close()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(one) for one in answers} == {asyncio.CancelledError}
    assert len(broker.requests) == REQUESTS_AT_ONCE
