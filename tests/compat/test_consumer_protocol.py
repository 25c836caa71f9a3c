"""The consumer protocol (KIP-848) with librdkafka: members come, go and die, and every record is consumed once."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from contextlib import contextmanager, suppress

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.compat.clients import TIMEOUT_S, Confluent, Sent
from tests.support.requests import create_topic

PARTITIONS = 4
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
}


@pytest.fixture
def broker(new_broker):
    return new_broker(SETTINGS)


def new_consumer(bootstrap, group, *topics, **properties):
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **properties,
        }
    )
    consumer.subscribe(list(topics))
    return consumer


class Group:
    """Consumers of this process, and what they consumed: a record counts when its offset was committed."""

    def __init__(self, broker, topic):
        self.broker = broker
        self.topic = topic
        self.name = f"group-of-{topic}"
        self.members = []
        self.consumed = Counter()
        self.produced = 0
        with broker.connect() as wire:
            create_topic(wire, topic, PARTITIONS)

    def join(self, **properties):
        member = new_consumer(self.broker.bootstrap, self.name, self.topic, **properties)
        self.members.append(member)
        return member

    def leave(self, member):
        self.members.remove(member)
        member.close()

    def produce(self, count=100):
        numbers = range(self.produced, self.produced + count)
        records = [Sent(b"%d" % number, partition=number % PARTITIONS) for number in numbers]
        Confluent(self.broker.bootstrap).produce(self.topic, records)
        self.produced += count

    def shares(self):
        return sorted(len(member.assignment()) for member in self.members)

    def is_settled(self):
        """Whether all that was produced is consumed and all partitions are shared out."""
        owned = [one.partition for member in self.members for one in member.assignment()]
        return sorted(owned) == list(range(PARTITIONS)) and len(self.consumed) == self.produced

    def consume_until(self, condition):
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, (self.shares(), len(self.consumed), self.produced)
            for member in self.members:
                self._consume(member)

    def _consume(self, member):
        messages = [message for message in member.consume(500, 0.05) if message.error() is None]
        if not messages:
            return
        committed = self._commit(member, messages)
        self.consumed.update(int(message.value()) for message in messages if message.partition() in committed)
        for partition in {message.partition() for message in messages} - committed:
            first = min(message.offset() for message in messages if message.partition() == partition)
            with suppress(confluent_kafka.KafkaException):  # it is not the member's any more
                member.seek(confluent_kafka.TopicPartition(self.topic, partition, first))

    def _commit(self, member, messages):
        """The partitions whose offsets are committed; a member that is being rebalanced may not."""
        try:
            answers = member.commit(offsets=_next_offsets(messages), asynchronous=False)
        except confluent_kafka.KafkaException:
            return set()
        return {answer.partition for answer in answers if answer.error is None}


def _next_offsets(messages):
    newest = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
    return [confluent_kafka.TopicPartition(*key, offset) for key, offset in newest.items()]


@contextmanager
def running_group(broker, topic):
    group = Group(broker, topic)
    try:
        yield group
    finally:
        for member in list(group.members):
            group.leave(member)
    assert group.consumed == Counter(range(group.produced))


def consume_and_never_leave(bootstrap, group, topic, has_joined):
    """A process of its own, to be killed."""
    consumer = new_consumer(bootstrap, group, topic)
    while True:
        consumer.poll(0.05)
        if consumer.assignment():
            consumer.pause(consumer.assignment())
            has_joined.set()


def test_members_come_and_go(broker, topic):
    with running_group(broker, topic) as group:
        group.produce()
        first = group.join()
        group.consume_until(group.is_settled)

        group.join()
        group.produce()
        group.consume_until(lambda: group.shares() == [2, 2] and group.is_settled())

        group.leave(first)
        group.produce()
        group.consume_until(group.is_settled)


def test_the_partitions_of_a_killed_member_go_to_the_others(broker, topic):
    with running_group(broker, topic) as group:
        group.join()
        group.consume_until(group.is_settled)
        context = multiprocessing.get_context("spawn")
        has_joined = context.Event()
        arguments = (broker.bootstrap, group.name, topic, has_joined)
        other = context.Process(target=consume_and_never_leave, args=arguments, daemon=True)
        other.start()
        try:
            group.consume_until(lambda: has_joined.is_set() and group.shares() == [2])
        finally:
            other.kill()
            other.join()
            other.close()
        group.produce()
        group.consume_until(group.is_settled)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_members_go_on_after_the_broker_was_restarted(broker, topic, how):
    with running_group(broker, topic) as group:
        group.join()
        group.join()
        group.produce()
        group.consume_until(lambda: group.shares() == [2, 2] and group.is_settled())
        before = members_of(broker, group.name)

        getattr(broker, how)()
        broker.start()
        group.produce()
        group.consume_until(group.is_settled)

        assert members_of(broker, group.name) == before


def members_of(broker, group):
    """Partitions by member id."""
    client = admin(broker)  # its answers do not come once it is gone
    [described] = [future.result(TIMEOUT_S) for future in client.describe_consumer_groups([group]).values()]
    return {
        member.member_id: sorted(one.partition for one in member.assignment.topic_partitions)
        for member in described.members
    }


def admin(broker):
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def test_a_static_member_comes_back_to_its_partitions(broker, topic):
    with running_group(broker, topic) as group:
        static = group.join(**{"group.instance.id": "static"})
        group.join()
        group.consume_until(lambda: group.shares() == [2, 2])
        had = {one.partition for one in static.assignment()}

        group.leave(static)
        static = group.join(**{"group.instance.id": "static"})
        group.produce()
        group.consume_until(lambda: group.shares() == [2, 2] and group.is_settled())
        assert {one.partition for one in static.assignment()} == had


def test_a_group_is_shown_with_its_type_and_its_partitions(broker, topic):
    with running_group(broker, topic) as group:
        group.join()
        group.consume_until(group.is_settled)

        client = admin(broker)
        [listed] = client.list_consumer_groups().result(TIMEOUT_S).valid
        assert (listed.group_id, listed.type) == (group.name, confluent_kafka.ConsumerGroupType.CONSUMER)
        assert list(members_of(broker, group.name).values()) == [[0, 1, 2, 3]]


def test_partitions_that_are_added_are_consumed(broker, topic):
    with running_group(broker, topic) as group:
        member = group.join()
        group.consume_until(group.is_settled)
        client = admin(broker)
        [grown] = client.create_partitions([confluent_kafka.admin.NewPartitions(topic, 6)]).values()
        grown.result(TIMEOUT_S)
        group.consume_until(lambda: len(member.assignment()) == 6)
