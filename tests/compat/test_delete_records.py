"""DeleteRecords by stock admin clients, and consumers whose position was deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient
from kafka.errors import OffsetOutOfRangeError

from tests.support.batches import batch_of
from tests.support.requests import append, create_topic

pytestmark = pytest.mark.in_a_cluster_too

TIMEOUT_S = 300

Delete = Callable[[str, int], int]
"""Delete a topic's records before an offset; where its partition 0 begins then."""


@pytest.fixture(params=["confluent", "kafka-python"])
def delete_records(request: pytest.FixtureRequest, broker) -> Iterator[Delete]:
    if request.param == "confluent":
        librdkafka = AdminClient({"bootstrap.servers": broker.bootstrap})

        def delete(topic: str, offset: int) -> int:
            partition = confluent_kafka.TopicPartition(topic, 0, offset)
            low_watermark: int = librdkafka.delete_records([partition])[partition].result(TIMEOUT_S).low_watermark
            return low_watermark

        yield delete
        return
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)

    def delete_with_kafka_python(topic: str, offset: int) -> int:
        partition = kafka.TopicPartition(topic, 0)
        low_watermark: int = admin.delete_records({partition: offset})[partition]["low_watermark"]
        return low_watermark

    yield delete_with_kafka_python
    admin.close()


@pytest.fixture
def written(wire, topic) -> str:
    """A topic with the offsets 0 to 9, two in each batch."""
    create_topic(wire, topic)
    append(wire, topic, *(batch_of(b"%d" % number, b"%d" % (number + 1)) for number in range(0, 10, 2)))
    return topic


def test_stock_admin_clients_delete_records(delete_records: Delete, client, written):
    assert delete_records(written, 3) == 3
    assert delete_records(written, 2) == 3
    assert [got.value for got in client.read(written, 7)] == [b"%d" % number for number in range(3, 10)]
    assert delete_records(written, -1) == 10


def test_an_offset_beyond_the_end_is_an_error_for_stock_admin_clients(delete_records: Delete, written):
    with pytest.raises((confluent_kafka.KafkaException, OffsetOutOfRangeError), match=r"(?i)out.?of.?range"):
        delete_records(written, 11)


def test_a_consumer_in_the_deleted_range_goes_on_at_the_new_beginning(delete_records: Delete, broker, written):
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(written, 0, 1)])
        assert consumer.consume(1, TIMEOUT_S)[0].offset() == 1
        delete_records(written, 7)
        consumer.assign([confluent_kafka.TopicPartition(written, 0, 2)])
        read = [message.offset() for message in consumer.consume(3, TIMEOUT_S)]
        assert read == [7, 8, 9]
    finally:
        consumer.close()


def test_a_consumer_that_wants_to_know_is_told_that_its_position_is_gone(delete_records: Delete, broker, written):
    delete_records(written, 7)
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="none", group_id=None)
    try:
        partition = kafka.TopicPartition(written, 0)
        consumer.assign([partition])
        consumer.seek(partition, 2)
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll(TIMEOUT_S * 1000)
    finally:
        consumer.close()
