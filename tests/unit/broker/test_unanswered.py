"""Whatever the controller decides has an answer when the controller gives none, in every version."""

from __future__ import annotations

from typing import Any

import pytest

from diskless_core.broker.apis import CLIENT_APIS
from diskless_core.broker.handlers.by_controller import LIMIT_S, ByController, limit_s
from diskless_core.broker.handlers.unanswered import unanswered
from diskless_core.protocol import messages
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import MetadataRequest, response_class
from tests.integration.plausible_requests import REQUESTS, Place

PLACE = Place(topic="t", topic_id=None, group="g")
DECIDED = [
    (api.key, version)
    for api in CLIENT_APIS.values()
    if isinstance(api.handler, ByController)
    for version in range(api.oldest, api.newest + 1)
]


@pytest.mark.parametrize(("api_key", "version"), DECIDED)
def test_every_request_has_an_answer_with_the_error(api_key: int, version: int) -> None:
    asked = REQUESTS[api_key](PLACE, version)
    request: Any = messages.REQUESTS[api_key].request.decode(asked.encode(version=version), version=version)

    answer: Any = unanswered(request, ErrorCode.REQUEST_TIMED_OUT, "too late")

    decoded = response_class(request).decode(answer.encode(version=version), version=version)
    assert str(int(ErrorCode.REQUEST_TIMED_OUT)) in repr(decoded)


def test_an_answer_names_everything_once() -> None:
    topic = messages.CreateTopicsRequest.CreatableTopic
    asked = [topic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in "aab"]
    answer: Any = unanswered(messages.CreateTopicsRequest(topics=asked), ErrorCode.NOT_CONTROLLER, "nobody")

    assert [(one.name, one.error_code, one.error_message) for one in answer.topics] == [
        ("a", ErrorCode.NOT_CONTROLLER, "nobody"),
        ("b", ErrorCode.NOT_CONTROLLER, "nobody"),
    ]


def test_what_every_broker_answers_has_no_such_answer() -> None:
    with pytest.raises(TypeError):
        unanswered(MetadataRequest(topics=[]), ErrorCode.NOT_CONTROLLER, "nobody")


def test_a_request_may_take_as_long_as_it_says() -> None:
    assert limit_s(messages.DeleteTopicsRequest(timeout_ms=1500)) == 1.5
    assert limit_s(messages.DeleteTopicsRequest(timeout_ms=0)) == LIMIT_S
    assert limit_s(messages.UnregisterBrokerRequest(broker_id=1)) == LIMIT_S
