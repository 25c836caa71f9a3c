"""Admin clients, offset queries, and topics that go and come back under a running producer."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka.admin import KafkaAdminClient
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from tests.compat.clients import Confluent, Sent
from tests.support.batches import NOW_MS, timed_batch
from tests.support.requests import append, create_topic, metadata_request

pytestmark = pytest.mark.in_a_cluster_too

TIMEOUT_S = 300


@pytest.fixture
def confluent_admin(broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def kafka_python_admin(broker) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield admin
    admin.close()


def results(futures):
    """Error name, or None, by topic."""
    found = {}
    for name, future in futures.items():
        error = future.exception(TIMEOUT_S)
        found[name] = None if error is None else error.args[0].name()
    return found


def test_confluent_creates_lists_and_deletes_topics(confluent_admin, topic):
    fine, bad = f"{topic}-fine", f"{topic}-bad"
    created = confluent_admin.create_topics(
        [NewTopic(fine, 3, config={"retention.ms": "1000"}), NewTopic(bad, 1, config={"retention.mss": "1"})]
    )
    assert results(created) == {fine: None, bad: "INVALID_CONFIG"}
    assert results(confluent_admin.create_topics([NewTopic(fine, 1)])) == {fine: "TOPIC_ALREADY_EXISTS"}

    listed = confluent_admin.list_topics(timeout=TIMEOUT_S).topics
    assert len(listed[fine].partitions) == 3
    assert bad not in listed

    deleted = confluent_admin.delete_topics([fine, bad])
    assert results(deleted) == {fine: None, bad: "UNKNOWN_TOPIC_OR_PART"}
    assert fine not in confluent_admin.list_topics(timeout=TIMEOUT_S).topics


def test_confluent_describes_the_cluster_and_topics(confluent_admin, broker, wire, topic):
    topic_id = create_topic(wire, topic, 2)

    described = confluent_admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result(TIMEOUT_S)

    assert [partition.id for partition in described.partitions] == [0, 1]
    assert uuid.UUID(int=_as_int(described.topic_id)) == topic_id
    cluster_id = wire.call(metadata_request(), 12).cluster_id
    assert confluent_admin.list_topics(timeout=TIMEOUT_S).cluster_id == cluster_id


def _as_int(topic_id):
    high = topic_id.get_most_significant_bits() % 2**64
    return high << 64 | topic_id.get_least_significant_bits() % 2**64


def test_confluent_lists_offsets(confluent_admin, wire, topic):
    create_topic(wire, topic)
    append(wire, topic, timed_batch(NOW_MS, NOW_MS + 20, NOW_MS + 10))
    partition = confluent_kafka.TopicPartition(topic, 0)

    def listed(spec):
        result = confluent_admin.list_offsets({partition: spec})[partition].result(TIMEOUT_S)
        return result.offset, result.timestamp

    assert listed(OffsetSpec.earliest()) == (0, -1)
    assert listed(OffsetSpec.latest()) == (3, -1)
    assert listed(OffsetSpec.max_timestamp()) == (1, NOW_MS + 20)
    assert listed(OffsetSpec.for_timestamp(NOW_MS + 1)) == (1, NOW_MS + 20)


def test_kafka_python_creates_lists_and_deletes_topics(kafka_python_admin, topic):
    kafka_python_admin.create_topics({topic: {"num_partitions": 2, "configs": {"retention.ms": "1000"}}})
    with pytest.raises(TopicAlreadyExistsError):
        kafka_python_admin.create_topics({topic: {"num_partitions": 2}})
    assert topic in kafka_python_admin.list_topics()
    [described] = kafka_python_admin.describe_topics([topic])
    assert [partition["partition_index"] for partition in described["partitions"]] == [0, 1]

    kafka_python_admin.delete_topics([topic])

    assert topic not in kafka_python_admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        kafka_python_admin.delete_topics([topic])


def test_kafka_python_lists_offsets(kafka_python_admin, wire, topic):
    create_topic(wire, topic)
    append(wire, topic, timed_batch(NOW_MS, NOW_MS + 20, NOW_MS + 10))
    partition = kafka.TopicPartition(topic, 0)

    found = {
        spec: kafka_python_admin.list_partition_offsets({partition: spec})[partition].offset
        for spec in (-1, -2, -3, -4, -5, NOW_MS + 15, NOW_MS + 21)
    }

    assert found == {-1: 3, -2: 0, -3: 1, -4: 0, -5: -1, NOW_MS + 15: 1, NOW_MS + 21: -1}


async def test_aiokafka_creates_lists_and_deletes_topics(broker, topic):
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        created = await admin.create_topics([AioNewTopic(topic, 2, 1, topic_configs={"retention.ms": "1000"})])
        assert [entry[:2] for entry in created.topic_errors] == [(topic, 0)]
        assert topic in await admin.list_topics()
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()
    finally:
        await admin.close()


def test_offsets_for_times_of_every_client(broker, wire, topic):
    create_topic(wire, topic)
    append(wire, topic, timed_batch(*(NOW_MS + 10 * number for number in range(10))))
    wanted = NOW_MS + 35

    confluent = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "times"})
    by_confluent = confluent.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, wanted)], TIMEOUT_S)
    watermarks = confluent.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), TIMEOUT_S)
    confluent.close()
    stock = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap)
    partition = kafka.TopicPartition(topic, 0)
    by_kafka_python = stock.offsets_for_times({partition: wanted})[partition]
    ends = stock.beginning_offsets([partition])[partition], stock.end_offsets([partition])[partition]
    stock.close()

    async def by_aiokafka():
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap)
        await consumer.start()
        try:
            aio_partition = aiokafka.TopicPartition(topic, 0)
            return (await consumer.offsets_for_times({aio_partition: wanted}))[aio_partition]
        finally:
            await consumer.stop()

    assert by_confluent[0].offset == 4
    assert (by_kafka_python.offset, by_kafka_python.timestamp) == (4, NOW_MS + 40)
    assert asyncio.run(by_aiokafka())[:2] == (4, NOW_MS + 40)
    assert watermarks == ends == (0, 10)


def test_a_consumer_whose_offset_is_out_of_range_begins_anew(broker, wire, topic):
    create_topic(wire, topic)
    Confluent(broker.bootstrap).produce(topic, [Sent(b"a"), Sent(b"b")])
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000
    )
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 1000)
    try:
        assert [next(consumer).value for _ in range(2)] == [b"a", b"b"]
    finally:
        consumer.close()


def test_a_consumer_does_not_create_the_topic_that_it_asks_for_when_told_not_to(broker, wire, topic):
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "allow.auto.create.topics": False}
    )
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()

    assert message.error().code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert wire.call(metadata_request(topic), 12).topics[0].error_code == 3


class RunningProducer:
    """Produces numbers with librdkafka until it is told to end, and knows where each acknowledged one went."""

    def __init__(self, bootstrap, topic):
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "allow.auto.create.topics": False,
                "linger.ms": 0,
                "topic.metadata.refresh.interval.ms": 200,
            }
        )
        self._topic = topic
        self._ending = threading.Event()
        self._acknowledged = threading.Condition()
        self.offsets = {}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        number = 0
        while not self._ending.wait(0.002):
            self._producer.produce(self._topic, b"%d" % number, partition=0, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1
        self._producer.flush(TIMEOUT_S)

    def _delivered(self, error, message):
        if error is None:
            with self._acknowledged:
                self.offsets[int(message.value())] = message.offset()
                self._acknowledged.notify_all()

    def wait_for_more(self, count):
        """Wait until `count` more numbers are acknowledged; the largest of those from before comes back."""
        with self._acknowledged:
            before = len(self.offsets)
            last = max(self.offsets, default=-1)
            assert self._acknowledged.wait_for(lambda: len(self.offsets) >= before + count, TIMEOUT_S)
        return last

    def end(self):
        self._ending.set()
        self._thread.join()


def test_a_topic_deleted_and_created_again_at_once_under_a_running_producer_loses_nothing_of_the_new_one(
    broker, wire, confluent_admin, topic
):
    create_topic(wire, topic)
    producer = RunningProducer(broker.bootstrap, topic)
    try:
        producer.wait_for_more(50)
        confluent_admin.delete_topics([topic])[topic].result(TIMEOUT_S)
        confluent_admin.create_topics([NewTopic(topic, 1)])[topic].result(TIMEOUT_S)
        old = producer.wait_for_more(50)
        producer.wait_for_more(50)
    finally:
        producer.end()

    kept = {number: offset for number, offset in producer.offsets.items() if number > old + 100}
    read = {record.offset: int(record.value) for record in Confluent(broker.bootstrap).read(topic, len(kept))}
    assert kept
    assert all(read.get(offset, number) == number for number, offset in kept.items())
    assert sorted(read) == list(range(len(read)))
