"""What administrators do with stock clients: kafka-python's KafkaAdminClient and librdkafka's AdminClient."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
)
from kafka import TopicPartition as StockPartition
from kafka.admin import ConfigResource as StockResource
from kafka.admin import ConfigResourceType, KafkaAdminClient
from kafka.errors import InvalidPartitionsError
from kafka.structs import OffsetAndMetadata

from tests.support.batches import batch_of
from tests.support.requests import append, create_topic, metadata_request

pytestmark = pytest.mark.in_a_cluster_too

TIMEOUT_S = 300


@pytest.fixture
def librdkafka(broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def kafka_python(broker) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield admin
    admin.close()


def done(futures):
    """The results by what they are about."""
    return {key: future.result(TIMEOUT_S) for key, future in futures.items()}


def error_of(future):
    with pytest.raises(KafkaException) as raised:
        future.result(TIMEOUT_S)
    return raised.value.args[0].name()


# --- librdkafka ------------------------------------------------------------------------------------------------------


def test_librdkafka_adds_partitions(librdkafka, wire, topic):
    create_topic(wire, topic)

    done(librdkafka.create_partitions([NewPartitions(topic, 3)], validate_only=True))
    done(librdkafka.create_partitions([NewPartitions(topic, 2)]))

    assert len(librdkafka.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == 2
    refused = librdkafka.create_partitions([NewPartitions(topic, 1)])[topic]
    assert error_of(refused) == "INVALID_PARTITIONS"


@pytest.mark.one_broker
def test_librdkafka_describes_the_cluster(librdkafka, broker, wire):
    described = librdkafka.describe_cluster().result(TIMEOUT_S)

    assert described.cluster_id == wire.call(metadata_request(), 12).cluster_id
    assert [f"{node.host}:{node.port}" for node in described.nodes] == [broker.bootstrap]
    assert described.controller.id == described.nodes[0].id


def test_librdkafka_describes_and_alters_settings(librdkafka, wire, topic):
    create_topic(wire, topic, segment_ms="5")
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

    def described():
        return done(librdkafka.describe_configs([resource]))[resource]

    assert described()["retention.ms"].source == ConfigSource.DEFAULT_CONFIG.value
    change = ConfigEntry("retention.ms", "77", incremental_operation=AlterConfigOpType.SET)
    done(librdkafka.incremental_alter_configs([ConfigResource("topic", topic, incremental_configs=[change])]))
    assert (described()["retention.ms"].value, described()["segment.ms"].value) == ("77", "5")
    with pytest.warns(DeprecationWarning, match="alter_configs has been deprecated"):
        replaced = librdkafka.alter_configs([ConfigResource("topic", topic, set_config={"retention.bytes": "9"})])
    done(replaced)
    assert described()["retention.bytes"].value == "9"
    assert described()["segment.ms"].source == ConfigSource.DEFAULT_CONFIG.value

    change = ConfigEntry("retention.ms", "x", incremental_operation=AlterConfigOpType.SET)
    wrong = ConfigResource("topic", topic, incremental_configs=[change])
    assert error_of(librdkafka.incremental_alter_configs([wrong])[wrong]) == "INVALID_CONFIG"


def test_librdkafka_describes_the_brokers_settings(librdkafka):
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")

    settings = done(librdkafka.describe_configs([resource]))[resource]

    assert settings["log.dirs"].is_read_only
    assert not settings["message.max.bytes"].is_read_only


def test_librdkafka_looks_after_groups(librdkafka, wire, topic):
    create_topic(wire, topic, 2)
    append(wire, topic, batch_of(b"v"))
    group = f"group-of-{topic}"
    offsets = [TopicPartition(topic, 0, 1), TopicPartition(topic, 1, 0)]
    done(librdkafka.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)]))

    listed = librdkafka.list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
    assert (group, "EMPTY") in {(one.group_id, one.state.name) for one in listed.valid}
    described = done(librdkafka.describe_consumer_groups([group]))[group]
    assert (described.state.name, described.members) == ("EMPTY", [])

    done(librdkafka.delete_consumer_groups([group]))

    assert error_of(librdkafka.delete_consumer_groups([group])[group]) == "GROUP_ID_NOT_FOUND"


def test_librdkafka_sees_who_is_in_a_group_and_cannot_delete_it(librdkafka, broker, wire, topic):
    create_topic(wire, topic, 2)
    append(wire, topic, batch_of(b"v"))
    group = f"group-of-{topic}"
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": "somebody",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        assert consumer.poll(TIMEOUT_S).value() == b"v"
        described = done(librdkafka.describe_consumer_groups([group]))[group]
        refusal = error_of(librdkafka.delete_consumer_groups([group])[group])
    finally:
        consumer.close()

    assert (described.state.name, described.partition_assignor) == ("STABLE", "range")
    [member] = described.members
    assert member.client_id == "somebody"
    assigned = {(one.topic, one.partition) for one in member.assignment.topic_partitions}
    assert assigned == {(topic, 0), (topic, 1)}
    assert refusal == "NON_EMPTY_GROUP"


# --- kafka-python ----------------------------------------------------------------------------------------------------


def test_kafka_python_adds_partitions(kafka_python, wire, topic):
    create_topic(wire, topic)

    kafka_python.create_partitions({topic: 3})

    [described] = kafka_python.describe_topics([topic])
    assert len(described["partitions"]) == 3
    with pytest.raises(InvalidPartitionsError):
        kafka_python.create_partitions({topic: 2})


@pytest.mark.one_broker
def test_kafka_python_describes_the_cluster(kafka_python, wire):
    described = kafka_python.describe_cluster()

    assert described["cluster_id"] == wire.call(metadata_request(), 12).cluster_id
    assert [node["broker_id"] for node in described["brokers"]] == [described["controller_id"]]


@pytest.mark.parametrize("incremental", [True, False])
def test_kafka_python_describes_and_alters_settings(kafka_python, wire, topic, incremental):
    create_topic(wire, topic)
    changed = StockResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "77"})

    kafka_python.alter_configs([changed], incremental=incremental)

    described = kafka_python.describe_configs([StockResource(ConfigResourceType.TOPIC, topic)])
    assert described["topic"][topic]["retention.ms"]["value"] == "77"
    assert topic in kafka_python.list_config_resources()["topic"]


@pytest.mark.one_broker
def test_kafka_python_describes_the_log_directory(kafka_python, wire, topic):
    create_topic(wire, topic, 2)
    batch = batch_of(b"v")
    append(wire, topic, batch, partition=1)

    [of_broker] = kafka_python.describe_log_dirs({topic: [0, 1]})

    [folder] = of_broker["log_dirs"]
    [described] = folder["topics"]
    sizes = {one["partition_index"]: one["partition_size"] for one in described["partitions"]}
    assert (described["name"], sizes) == (topic, {0: 0, 1: len(batch)})
    assert folder["usable_bytes"] > 0


@pytest.mark.one_broker
def test_kafka_python_looks_after_groups(kafka_python, wire, topic):
    create_topic(wire, topic, 2)
    group = f"group-of-{topic}"
    partitions = [StockPartition(topic, 0), StockPartition(topic, 1)]
    kafka_python.alter_group_offsets(group, {one: OffsetAndMetadata(0, "", -1) for one in partitions})

    assert group in {one["group_id"] for one in kafka_python.list_groups(states_filter=["Empty"])}
    assert kafka_python.describe_groups([group])[group]["group_state"] == "Empty"
    kafka_python.delete_group_offsets(group, partitions[:1])
    kept = kafka_python.list_group_offsets({group: partitions})[group]
    assert [kept[one].offset for one in partitions] == [-1, 0]

    kafka_python.delete_groups([group])

    assert group not in {one["group_id"] for one in kafka_python.list_groups()}
