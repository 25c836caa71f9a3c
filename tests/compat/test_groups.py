"""Consumer groups of real clients: members come and go, and every record is consumed once."""

from __future__ import annotations

import time

import pytest

from tests.compat.clients import CLIENTS, TIMEOUT_S, Sent
from tests.support.requests import create_topic

PARTITIONS = 4


def produce_numbers(client, topic, first, count):
    numbers = range(first, first + count)
    client.produce(topic, [Sent(b"%d" % number, partition=number % PARTITIONS) for number in numbers])


def consume_until(condition, consumed, *members):
    """Let all members poll and commit until a condition holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, [member.assignment() for member in members]
        for member in members:
            consumed += member.consume()


def test_members_share_the_partitions_and_every_record_is_consumed_once(client, wire, topic):
    create_topic(wire, topic, PARTITIONS)
    consumed = []
    members = [client.join(topic, f"group-of-{topic}")]
    try:
        [first] = members
        produce_numbers(client, topic, 0, 100)
        consume_until(lambda: len(first.assignment()) == PARTITIONS, consumed, first)

        members.append(client.join(topic, f"group-of-{topic}"))
        _, second = members
        produce_numbers(client, topic, 100, 100)
        consume_until(lambda: [len(member.assignment()) for member in members] == [2, 2], consumed, first, second)
        assert first.assignment() | second.assignment() == set(range(PARTITIONS))

        produce_numbers(client, topic, 200, 100)
        consume_until(lambda: len(consumed) >= 300, consumed, first, second)
        members.remove(first)
        first.close()

        produce_numbers(client, topic, 300, 100)
        consume_until(lambda: len(second.assignment()) == PARTITIONS and len(consumed) >= 400, consumed, second)
    finally:
        for member in members:
            member.close()

    assert sorted(int(record.value) for record in consumed) == list(range(400))


@pytest.mark.parametrize("library", CLIENTS)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_committed_offsets_survive_the_broker(new_broker, topic, library, how):
    broker = new_broker()
    client = CLIENTS[library](broker.bootstrap)
    group = f"group-of-{topic}"
    with broker.connect() as wire:
        create_topic(wire, topic, PARTITIONS)
    produce_numbers(client, topic, 0, 40)
    assert len(client.consume_as_group(topic, group, 40)) == 40

    getattr(broker, how)()
    broker.start()

    produce_numbers(client, topic, 40, 4)
    assert sorted(int(record.value) for record in client.consume_as_group(topic, group, 4)) == [40, 41, 42, 43]


@pytest.mark.parametrize("library", CLIENTS)
def test_a_member_goes_on_after_the_broker_was_restarted(new_broker, topic, library):
    broker = new_broker()
    client = CLIENTS[library](broker.bootstrap)
    with broker.connect() as wire:
        create_topic(wire, topic, PARTITIONS)
    consumed = []
    member = client.join(topic, f"group-of-{topic}")
    try:
        produce_numbers(client, topic, 0, 40)
        consume_until(lambda: len(consumed) >= 40, consumed, member)
        broker.restart()
        produce_numbers(client, topic, 40, 40)
        consume_until(lambda: len(consumed) >= 80, consumed, member)
    finally:
        member.close()

    assert sorted(int(record.value) for record in consumed) == list(range(80))
