"""What `diskless cluster unregister` makes of what a broker answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from diskless_core.cli.client import cluster_unregister
from diskless_core.cli.main import main
from diskless_core.cli.raw_request import Address
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import UnregisterBrokerRequest, UnregisterBrokerResponse


class Broker:
    """Nobody listens at port 1; at port 2 there is a broker that answers with `code`; one at 3 does, and is lost."""

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        self.asked: list[int] = []

    def ask(self, address: Address, request: UnregisterBrokerRequest, version: int, timeout_s: float) -> Any:
        if address.port == 1:
            raise ConnectionRefusedError("nobody listens")
        if address.port == 3:
            self.code = ErrorCode.BROKER_ID_NOT_REGISTERED
            raise TimeoutError("no answer")
        self.asked.append(request.broker_id)
        return UnregisterBrokerResponse(throttle_time_ms=0, error_code=int(self.code), error_message="its words")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(cluster_unregister, "ask", made.ask)
    return made


def unregister(*options: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["cluster", "unregister", "7", *options])
    return done.exit_code, done.output


def test_a_broker_is_forgotten_by_the_first_that_answers(broker: Broker) -> None:
    assert unregister("-b", "h:1,h:2") == (0, "broker 7 is unregistered\n")
    code, told = unregister("-b", "h:2", "--json")
    assert (code, json.loads(told)) == (0, {"unregistered": 7})
    assert broker.asked == [7, 7]


def test_a_broker_that_the_first_has_forgotten_without_an_answer_is_forgotten(broker: Broker) -> None:
    assert unregister("-b", "h:1,h:3,h:2") == (0, "broker 7 is unregistered\n")
    assert unregister("-b", "h:1,h:2")[0] == 1


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (ErrorCode.INVALID_REQUEST, "broker 7 is live: stop it"),
        (ErrorCode.BROKER_ID_NOT_REGISTERED, "no broker 7 is registered"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "CLUSTER_AUTHORIZATION_FAILED: its words"),
    ],
)
def test_a_refusal_says_what_to_do(broker: Broker, code: ErrorCode, says: str) -> None:
    broker.code = code
    exit_code, told = unregister("-b", "h:2")
    assert exit_code == 1
    assert says in told


def test_where_no_broker_answers_that_is_said(broker: Broker) -> None:
    exit_code, told = unregister("-b", "h:1")
    assert exit_code == 1
    assert "no broker answers: h:1: nobody listens" in told
