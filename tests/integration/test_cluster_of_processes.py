"""Three broker processes on one bucket, as clients find them: any broker is as good as another to begin with."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka.admin import KafkaAdminClient

from diskless_core.protocol.errors import ErrorCode
from tests.support.broker import BrokerProcess
from tests.support.requests import (
    create_topic,
    create_topics,
    delete_topic,
    metadata_request,
    new_producer_id,
    new_topic,
)

LIMIT_S = 120.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, BrokerProcess]]:
    folder: Path = tmp_path_factory.mktemp("three")
    made = {
        node_id: BrokerProcess(
            folder / f"broker-{node_id}",
            {
                "node.id": str(node_id),
                "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
                "inter.broker.listener.name": "INTERNAL",
                "coordinator_log": "bucket",
                "broker.session.timeout.ms": "60000",
                "wal_object_store.fsspec.url": f"file://{folder / 'bucket'}",
            },
        )
        for node_id in (1, 2, 3)
    }
    try:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(BrokerProcess.start, made.values()))
        yield made
    finally:
        for broker in made.values():
            broker.end()


def controller_of(broker: BrokerProcess) -> int:
    """The controller, as one broker tells its clients."""
    with broker.connect() as wire:
        controller: int = wire.call(metadata_request(), 12).controller_id
    return controller


@pytest.fixture
def others(brokers: dict[int, BrokerProcess]) -> list[BrokerProcess]:
    """The brokers that are not the controller."""
    controller = controller_of(brokers[1])
    assert controller in brokers
    return [broker for node_id, broker in brokers.items() if node_id != controller]


def test_idempotent_producers_of_every_broker_get_ids_that_nobody_else_has(brokers: dict[int, BrokerProcess]) -> None:
    ids = []
    for broker in brokers.values():
        with broker.connect() as wire:
            ids += [new_producer_id(wire) for _ in range(5)]
    assert len(set(ids)) == len(ids)


def test_an_idempotent_producer_that_knows_one_broker_is_acknowledged(brokers: dict[int, BrokerProcess]) -> None:
    with brokers[controller_of(brokers[1])].connect() as wire:
        create_topic(wire, "idempotent", 3)
    for broker in brokers.values():
        assert outcomes(Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})) == [None] * 3


def outcomes(producer: Producer) -> list[KafkaError | None]:
    """What becomes of a record in each partition of the topic."""
    heard: list[KafkaError | None] = []
    for partition in range(3):
        producer.produce("idempotent", b"v", partition=partition, on_delivery=lambda error, _: heard.append(error))
    assert producer.flush(LIMIT_S) == 0
    return heard


def test_a_broker_that_is_not_the_controller_changes_topics_and_sees_the_change_at_once(
    others: list[BrokerProcess],
) -> None:
    with others[0].connect() as wire:
        [created] = create_topics(wire, new_topic("not-here"))
        assert created.error_code == ErrorCode.NONE
        assert wire.call(metadata_request("not-here"), 12).topics[0].error_code == ErrorCode.NONE
        [again] = create_topics(wire, new_topic("not-here"))
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert delete_topic(wire, "not-here") == ErrorCode.NONE
        assert delete_topic(wire, "not-here") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_librdkafka_changes_topics_that_begins_at_another_broker_than_the_controller(
    others: list[BrokerProcess],
) -> None:
    for number, broker in enumerate(others):
        admin, name = AdminClient({"bootstrap.servers": broker.bootstrap}), f"librdkafka-{number}"
        admin.create_topics([NewTopic(name, 1)])[name].result(LIMIT_S)
        admin.create_partitions([NewPartitions(name, 2)])[name].result(LIMIT_S)
        admin.delete_topics([name])[name].result(LIMIT_S)


def test_kafka_python_changes_topics_that_begins_at_another_broker_than_the_controller(
    others: list[BrokerProcess],
) -> None:
    for number, broker in enumerate(others):
        admin, name = KafkaAdminClient(bootstrap_servers=broker.bootstrap), f"kafka-python-{number}"
        admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}})
        admin.create_partitions({name: 2})
        admin.delete_topics([name])
        admin.close()
