"""Groups of librdkafka consumers: cooperative rebalancing (KIP-429) and static members (KIP-345)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError

from tests.support.batches import batch_of
from tests.support.requests import append, create_topic

LIMIT_S = 300.0
PARTITIONS = 4

Partitions = set[int]


class Member:
    """One consumer, with what it was given and what was taken from it, in order."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: str) -> None:
        self.given: list[Partitions] = []
        self.taken: list[Partitions] = []
        self.received: list[bytes] = []
        self.fatal: KafkaError | None = None
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 200,
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )
        self.consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke)

    @property
    def held(self) -> Partitions:
        return {one.partition for one in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is None:
            return
        if message.error() is None:
            self.received.append(message.value())
        elif message.error().code() == KafkaError._FATAL:
            self.fatal = message.error()

    def _assign(self, _consumer: Consumer, partitions: list) -> None:
        self.given.append({one.partition for one in partitions})

    def _revoke(self, _consumer: Consumer, partitions: list) -> None:
        self.taken.append({one.partition for one in partitions})


@pytest.fixture
def join(broker, wire, topic) -> Iterator[Callable[..., Member]]:
    """Let consumers join a group of the test's own, which reads a topic with some partitions."""
    create_topic(wire, topic, PARTITIONS)
    members: list[Member] = []

    def joined(**settings: str) -> Member:
        members.append(Member(broker.bootstrap, f"group-of-{topic}", topic, **settings))
        return members[-1]

    yield joined
    for member in members:
        member.consumer.close()


def poll_until(condition: Callable[[], bool], *members: Member) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, [(member.given, member.taken) for member in members]
        for member in members:
            member.poll()


def share_all(*members: Member) -> bool:
    held = [member.held for member in members]
    return all(held) and sum(map(len, held)) == PARTITIONS and set().union(*held) == set(range(PARTITIONS))


def test_cooperative_members_give_up_only_what_others_get(join, wire, topic):
    first = join(partition_assignment_strategy="cooperative-sticky")
    poll_until(lambda: share_all(first), first)
    second = join(partition_assignment_strategy="cooperative-sticky")

    poll_until(lambda: share_all(first, second) and bool(second.held), first, second)

    assert len(first.held) == len(second.held) == PARTITIONS // 2
    assert first.taken == [second.held]
    assert second.given[-1] == second.held
    for partition in range(PARTITIONS):
        append(wire, topic, batch_of(b"%d" % partition), partition=partition)
    poll_until(lambda: len(first.received) + len(second.received) == PARTITIONS, first, second)
    assert {int(value) for value in first.received} == first.held

    second.consumer.close()
    poll_until(lambda: share_all(first), first)
    assert len(first.taken) == 1


def test_a_static_member_that_comes_back_gets_its_partitions_and_nobody_else_is_disturbed(join):
    first, second = join(group_instance_id="a"), join(group_instance_id="b")
    poll_until(lambda: share_all(first, second), first, second)
    before, disturbed = second.held, list(first.taken)
    second.consumer.close()

    again = join(group_instance_id="b")
    poll_until(lambda: bool(again.held), first, again)

    assert again.held == before
    assert first.taken == disturbed
    assert share_all(first, again)


def test_of_two_static_members_with_one_id_the_older_is_fenced(join):
    first = join(group_instance_id="a")
    poll_until(lambda: share_all(first), first)

    second = join(group_instance_id="a")
    poll_until(lambda: first.fatal is not None and share_all(second), first, second)

    assert "fenced" in first.fatal.str()
