"""Three broker processes on one bucket, as clients find them: any broker is as good as another to begin with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka.admin import KafkaAdminClient

from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import ConsumerGroupHeartbeatRequest, FindCoordinatorRequest
from tests.support.admin_requests import GROUP, SET, alter
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import on_one_bucket, settled
from tests.support.requests import (
    create_topic,
    create_topics,
    delete_topic,
    metadata_request,
    new_producer_id,
    new_topic,
)
from tests.support.waiting import wait_until

LIMIT_S = 120.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, BrokerProcess]]:
    folder: Path = tmp_path_factory.mktemp("three")
    made = {
        node_id: BrokerProcess(
            folder / f"broker-{node_id}",
            {
                "node.id": str(node_id),
                **on_one_bucket(folder),
                "broker.session.timeout.ms": "60000",
                "admin.listener": "http://127.0.0.1:0",
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


# --- groups ----------------------------------------------------------------------------------------------------------

GROUPS = [f"group-{number}" for number in range(8)]
"""Every groups shard has two of them."""


def leaders_of(broker: BrokerProcess, groups: Sequence[str]) -> dict[str, int]:
    """The leaders of groups, as one broker tells its clients."""
    with broker.connect() as wire:
        found = wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=groups), 6).coordinators
    return {one.key: one.node_id for one in found}


def offsets_of(admin: AdminClient, group: str) -> list[tuple[str, int]]:
    """The topics of a group's offsets, with these."""
    answers = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = answers[group].result(LIMIT_S).topic_partitions
    return sorted((one.topic, one.offset) for one in found)


def test_an_admin_client_finds_the_groups_of_all_brokers_and_deleted_topics_leave_no_offsets(
    brokers: dict[int, BrokerProcess], others: list[BrokerProcess]
) -> None:
    settled(brokers)  # one that moves while the brokers are asked may be with none of them, as with Apache Kafka
    assert len(set(leaders_of(others[0], GROUPS).values())) > 1
    admin = AdminClient({"bootstrap.servers": others[0].bootstrap})
    for created in admin.create_topics([NewTopic("kept-offsets", 1), NewTopic("gone", 1)]).values():
        created.result(LIMIT_S)
    for number, group in enumerate(GROUPS):
        committed = [TopicPartition("kept-offsets", 0, number), TopicPartition("gone", 0, 1)]
        asked = [ConsumerGroupTopicPartitions(group, committed)]
        admin.alter_consumer_group_offsets(asked)[group].result(LIMIT_S)

    listed = admin.list_consumer_groups().result(LIMIT_S)
    assert (sorted(one.group_id for one in listed.valid), listed.errors) == (GROUPS, [])
    admin.delete_topics(["gone"])["gone"].result(LIMIT_S)
    for number, group in enumerate(GROUPS):
        expected = [("kept-offsets", number)]
        wait_until(partial(_has_offsets, admin, group, expected), f"the end of an offset of {group}")
    for outcome in admin.delete_consumer_groups(GROUPS).values():
        outcome.result(LIMIT_S)
    assert admin.list_consumer_groups().result(LIMIT_S).valid == []


def _has_offsets(admin: AdminClient, group: str, expected: list[tuple[str, int]]) -> bool:
    return offsets_of(admin, group) == expected


def _led_by_another(broker: BrokerProcess) -> tuple[str, int] | None:
    """A group, and its leader, which is not the controller; None where the controller leads all of them."""
    controller = controller_of(broker)
    return next(
        ((name, node_id) for name, node_id in leaders_of(broker, GROUPS).items() if node_id != controller), None
    )


def test_a_group_s_setting_holds_at_whichever_broker_leads_it(brokers: dict[int, BrokerProcess]) -> None:
    group, leader = wait_until(partial(_led_by_another, brokers[1]), "a leader of a group that is not the controller")
    with brokers[1].connect() as wire:
        assert alter(wire, GROUP, group, ("consumer.heartbeat.interval.ms", SET, "7000")) == (0, None)
    with brokers[leader].connect() as wire:
        beat = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="member",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["kept-offsets"],
            topic_partitions=[],
        )
        wait_until(lambda: wire.call(beat, 1).heartbeat_interval_ms == 7_000, "the setting at the group's leader")
        leave = ConsumerGroupHeartbeatRequest(group_id=group, member_id="member", member_epoch=-1)
        assert wire.call(leave, 1).error_code == 0, "other tests commit as no member"
