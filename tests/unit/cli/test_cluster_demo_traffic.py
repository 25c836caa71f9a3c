"""The cluster's demo begins though coordinators may still be loading."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from diskless_core.cli.cluster_demo import traffic


def answered(monkeypatch: pytest.MonkeyPatch, codes: Sequence[int]) -> list[int]:
    """What is left of the answers that a cluster gives one after the other to the creation of the topic."""
    left = list(codes)

    class Admin:
        def __init__(self, _settings: object) -> None: ...

        def create_topics(self, _topics: object, **_options: object) -> dict[str, Future[None]]:
            code = left.pop(0)
            future: Future[None] = Future()
            if code == KafkaError.NO_ERROR:
                future.set_result(None)
            else:
                future.set_exception(KafkaException(KafkaError(code)))
            return {traffic.TOPIC: future}

    monkeypatch.setattr(traffic, "AdminClient", Admin)
    monkeypatch.setattr(traffic, "_RETRY_S", 0)
    return left


@pytest.mark.parametrize("last", [KafkaError.NO_ERROR, KafkaError.TOPIC_ALREADY_EXISTS])
def test_the_topic_is_created_when_its_coordinators_are_loaded(monkeypatch: pytest.MonkeyPatch, last: int):
    left = answered(monkeypatch, [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.REQUEST_TIMED_OUT, last])
    traffic.create_topic("localhost:1", 300)
    assert left == []


def test_what_cannot_help_is_not_tried_again(monkeypatch: pytest.MonkeyPatch):
    left = answered(monkeypatch, [KafkaError.INVALID_PARTITIONS, KafkaError.NO_ERROR])
    with pytest.raises(KafkaException):
        traffic.create_topic("localhost:1", 300)
    assert len(left) == 1
