"""Fetch: where reading begins and ends, budgets, waiting, and topic ids."""

from __future__ import annotations

import time
import uuid

import pytest
from kafka.protocol.consumer import FetchRequest

from diskless_core.protocol.errors import ErrorCode
from tests.support.batches import batch_of, read_values
from tests.support.requests import (
    append,
    create_topic,
    delete_topic,
    fetch,
    fetch_request,
    produce_request,
)

OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
LONG_WAIT_MS = 240_000
WELL_BEFORE_S = 120.0
"""Far less than the wait that was asked for, far more than a busy machine needs."""


def test_a_waiting_fetch_learns_that_its_topic_was_deleted(broker, wire, topic):
    create_topic(wire, topic)
    with broker.connect() as admin:
        wire.send(fetch_request(topic, {0: 0}, max_wait_ms=LONG_WAIT_MS), 12)
        began = time.monotonic()
        assert delete_topic(admin, topic) == 0

        fetched = wire.receive().responses[0].partitions[0]

    assert fetched.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert time.monotonic() - began < WELL_BEFORE_S


@pytest.mark.parametrize("version", [4, 12])
def test_an_unknown_name_is_unknown_topic_or_partition(wire, topic, version):
    response = wire.call(fetch_request(topic, {0: 0}), version)

    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [13, 18])
def test_fetch_by_topic_id(wire, topic, version):
    topic_id = create_topic(wire, topic)
    append(wire, topic, batch_of(b"v"))

    def answer(topic_id, partition=0):
        [found] = wire.call(fetch_request(topic, {partition: 0}, topic_id=topic_id), version).responses
        assert found.topic_id == topic_id
        return found.partitions[0]

    assert read_values(answer(topic_id).records) == [b"v"]
    assert answer(topic_id, partition=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer(uuid.uuid4()).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert answer(None).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_the_id_of_a_deleted_topic_is_unknown_though_the_name_lives_on(wire, topic):
    old = create_topic(wire, topic)
    append(wire, topic, batch_of(b"old"))
    assert delete_topic(wire, topic) == 0
    new = create_topic(wire, topic)

    assert old != new
    response = wire.call(fetch_request("", {0: 0}, topic_id=old), 13)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    refused = wire.call(produce_request("", {0: batch_of(b"late")}, topic_id=old), 13)
    assert refused.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert append(wire, topic, batch_of(b"new")) == [0]
    assert read_values(fetch(wire, topic, 0).records) == [b"new"]


def test_a_request_for_a_session_is_answered_without_one(wire, topic):
    create_topic(wire, topic)
    append(wire, topic, batch_of(b"v"))

    response = wire.call(fetch_request(topic, {0: 0}, session=(0, 0)), 12)

    assert (response.error_code, response.session_id) == (0, 0)
    assert read_values(response.responses[0].partitions[0].records) == [b"v"]


def test_a_request_within_a_session_is_told_that_there_is_none(wire, topic):
    create_topic(wire, topic)

    response = wire.call(fetch_request(topic, {0: 0}, session=(1234, 5), max_wait_ms=LONG_WAIT_MS), 12)

    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (response.session_id, response.responses) == (0, [])


def test_a_request_that_ends_a_session_is_served(wire, topic):
    create_topic(wire, topic)
    append(wire, topic, batch_of(b"v"))

    response = wire.call(fetch_request(topic, {0: 0}, session=(1234, -1)), 12)

    assert response.error_code == 0
    assert read_values(response.responses[0].partitions[0].records) == [b"v"]


def test_a_request_without_topics_waits_and_is_empty(wire):
    request = fetch_request("", {})
    request.topics = []
    request.max_wait_ms = 50

    assert wire.call(request, 12).responses == []


def test_several_topics_in_one_request_are_answered_in_its_order(wire, topic):
    names = [f"{topic}-{suffix}" for suffix in "cab"]
    for name in names:
        create_topic(wire, name)
        append(wire, name, batch_of(name.encode()))
    request = fetch_request("", {})
    request.topics = [fetch_request(name, {0: 0}).topics[0] for name in names]

    answers = wire.call(request, 12).responses

    assert [(answer.topic, *read_values(answer.partitions[0].records)) for answer in answers] == [
        (name, name.encode()) for name in names
    ]


def test_the_fetch_request_of_a_follower_is_served_like_a_consumers(wire, topic):
    create_topic(wire, topic)
    append(wire, topic, batch_of(b"v"))
    request = fetch_request(topic, {0: 0})
    request.replica_state = FetchRequest.ReplicaState(replica_id=7, replica_epoch=1)

    assert read_values(wire.call(request, 12).responses[0].partitions[0].records) == [b"v"]
