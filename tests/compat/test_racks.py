"""Real clients of a cluster in three racks: whom they produce to and consume from (KIP-1181, "Test Plan").

The second rack has a coordinator's leader or not, as it happens: any broker takes what is produced to any partition.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
import httpx
import kafka
import pytest
from prometheus_client.parser import text_string_to_metric_families

from diskless_core.protocol.messages import DescribeTopicPartitionsRequest, MetadataRequest
from tests.compat.senders import PARTITIONS, TOPIC, Java, Librdkafka, Sender, go_on, require_each_once_and_in_order
from tests.support.apache_kafka import java
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import on_one_bucket, settled
from tests.support.requests import create_topic
from tests.support.waiting import wait_until
from tests.support.wire import WireClient

pytestmark = pytest.mark.xdist_group("racks")

LIMIT_S = 300.0
RACKS = {1: "a", 2: "b", 3: "c"}
RECORDS = 200

Brokers = Mapping[int, BrokerProcess]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """One broker in each rack. A client whose client id says nothing is in the third, by its address."""
    folder = tmp_path_factory.mktemp("racks")
    made = {
        node_id: BrokerProcess(
            folder / f"broker-{node_id}",
            {
                "node.id": str(node_id),
                "broker.rack": rack,
                **on_one_bucket(folder),
                "admin.listener": "http://127.0.0.1:0",
                "diskless.metadata.topic.num.partitions": "3",
                "diskless.client.racks.by.network": "127.0.0.0/8=c",
                "unstable.api.versions.enable": "true",
                "broker.session.timeout.ms": "60000",
                "diskless.shutdown.timeout.ms": "240000",
            },
        )
        for node_id, rack in RACKS.items()
    }
    try:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(BrokerProcess.start, made.values()))
        yield made
    finally:
        for broker in made.values():
            broker.end()


def requests(brokers: Brokers, api: str) -> dict[int, float]:
    """How many requests of an API each broker has answered."""
    return {node_id: answered(broker, api) for node_id, broker in brokers.items()}


def answered(broker: BrokerProcess, api: str) -> float:
    text = httpx.get(f"{broker.admin}/metrics", timeout=LIMIT_S).raise_for_status().text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "diskless_request_seconds_count" and sample.labels["api"] == api
    )


def asked_since(before: Mapping[int, float], brokers: Brokers, api: str) -> set[int]:
    """The brokers that have answered such requests since."""
    return {node_id for node_id, count in requests(brokers, api).items() if count > before[node_id]}


def bootstrap(brokers: Brokers) -> str:
    return ",".join(broker.bootstrap for broker in brokers.values())


def with_librdkafka(servers: str, client_id: str, topic: str) -> list[bytes]:
    """Produce some records and read them again."""
    common = {"bootstrap.servers": servers, "client.id": client_id}
    producer = confluent_kafka.Producer({**common, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(LIMIT_S) == 0
    consumer = confluent_kafka.Consumer({**common, "group.id": topic, "enable.auto.commit": False})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        found: list[bytes] = []

        def have_all() -> bool:
            for message in consumer.consume(RECORDS, 0.2):
                assert message.error() is None, message.error()
                value = message.value()
                assert value is not None
                found.append(value)
            return len(found) >= RECORDS

        wait_until(have_all, "all records are read")
        return sorted(found)
    finally:
        consumer.close()


def with_java(jars: Path, servers: str, client_id: str, topic: str) -> list[bytes]:
    """The same with Apache Kafka's console tools."""
    lines = "".join(f"{number}\n" for number in range(RECORDS))
    produced = ["--command-property", f"client.id={client_id}", "--bootstrap-server", servers, "--topic", topic]
    _run(java(jars, "org.apache.kafka.tools.ConsoleProducer", *produced), lines)
    consumed = ["--command-property", f"client.id={client_id}", "--bootstrap-server", servers, "--topic", topic]
    consumed += ["--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "300000"]
    return sorted(
        line.encode() for line in _run(java(jars, "org.apache.kafka.tools.consumer.ConsoleConsumer", *consumed)).split()
    )


def _run(command: list[str], given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


EXPECTED = sorted(b"%d" % number for number in range(RECORDS))


@pytest.mark.parametrize("node_id", RACKS)
def test_librdkafka_produces_and_consumes_in_the_rack_of_its_client_id(brokers, topic, node_id):
    before = make(brokers, topic)
    assert with_librdkafka(bootstrap(brokers), f"orders,diskless_az={RACKS[node_id]}", topic) == EXPECTED
    require_only(brokers, before, {node_id})


def test_java_clients_produce_and_consume_in_the_rack_of_their_client_id(brokers, topic, kafka_jars):
    before = make(brokers, topic)
    assert with_java(kafka_jars, bootstrap(brokers), "diskless_az=b", topic) == EXPECTED
    require_only(brokers, before, {2})


def test_a_client_that_says_nothing_is_in_the_rack_of_its_address(brokers, topic):
    before = make(brokers, topic)
    assert with_librdkafka(brokers[1].bootstrap, "orders", topic) == EXPECTED
    require_only(brokers, before, {3})


def test_a_client_of_a_rack_without_brokers_is_served_by_others(brokers, topic, kafka_jars):
    before = make(brokers, topic)
    assert with_librdkafka(bootstrap(brokers), "diskless_az=nowhere", topic) == EXPECTED
    assert asked_since(before["Produce"], brokers, "Produce") <= set(RACKS)


def test_an_old_client_produces_and_consumes_in_its_rack(brokers, topic):
    before = make(brokers, topic)
    old = {"bootstrap_servers": bootstrap(brokers), "client_id": "diskless_az=b", "api_version": (0, 11)}
    producer = kafka.KafkaProducer(**old)
    sent = [producer.send(topic, b"%d" % number, partition=number % PARTITIONS) for number in range(RECORDS)]
    producer.flush(LIMIT_S)
    assert all(one.succeeded() for one in sent)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=LIMIT_S * 1000, **old)
    found = sorted(next(consumer).value for _ in range(RECORDS))
    consumer.close()

    assert found == EXPECTED
    require_only(brokers, before, {2})


def make(brokers, topic):
    """A new topic, and how many requests brokers have answered before. No coordinator moves meanwhile."""
    settled(brokers)
    with brokers[1].connect() as wire:
        create_topic(wire, topic, PARTITIONS)
    return {api: requests(brokers, api) for api in ("Produce", "Fetch")}


def require_only(brokers, before, expected):
    for api, counts in before.items():
        assert asked_since(counts, brokers, api) == expected, api


def told(wire: WireClient, topic: str, rack: str) -> list[tuple[int, int, list[int], list[int]]]:
    """Leader, epoch, replicas and in-sync replicas of each partition, by both APIs, which say the same."""
    asked = [MetadataRequest.MetadataRequestTopic(name=topic, topic_id=None)]
    [one] = wire.call(MetadataRequest(topics=asked, rack_id=rack), 14).topics
    described = [DescribeTopicPartitionsRequest.TopicRequest(name=topic)]
    [other] = wire.call(DescribeTopicPartitionsRequest(topics=described, rack_id=rack), 1).topics
    answers = [
        [(p.leader_id, p.leader_epoch, list(p.replica_nodes), list(p.isr_nodes)) for p in answer.partitions]
        for answer in (one, other)
    ]
    assert answers[0] == answers[1]
    return answers[0]


def test_a_request_that_says_a_rack_gets_a_leader_there_which_is_the_only_replica(brokers, topic):
    make(brokers, topic)
    for broker in brokers.values():
        with broker.connect() as wire:
            for node_id, rack in RACKS.items():
                assert told(wire, topic, rack) == [(node_id, 0, [node_id], [node_id])] * PARTITIONS
            assert told(wire, topic, "") == [(3, 0, [3], [3])] * PARTITIONS


def test_all_brokers_say_the_same_to_a_client_and_spread_clients_that_have_no_rack(brokers, topic):
    make(brokers, topic)
    said = set()
    for number in range(30):
        answers = []
        for broker in brokers.values():
            with broker.connect(client_id=f"client-{number}") as wire:
                answers.append(told(wire, topic, "nowhere"))
        assert answers[0] == answers[1] == answers[2]
        said |= {leader for leader, *_ in answers[0]}
    assert said == set(RACKS)


def test_producers_leave_a_rack_that_stops_and_come_back_and_nothing_is_lost_doubled_or_reordered(
    brokers: Brokers, kafka_jars: Path, tmp_path: Path
) -> None:
    """Gateways change with five requests in flight: with the broker's end, and back while the other one goes on."""
    make(brokers, TOPIC)
    servers, client_id = bootstrap(brokers), {"client.id": "diskless_az=b"}
    senders: list[Sender] = []
    with ExitStack() as stack:
        for sender in (
            Librdkafka("1", servers, {**client_id, "topic.metadata.refresh.interval.ms": 300}),
            Librdkafka("2", servers, {**client_id, "topic.metadata.refresh.interval.ms": 300}),
            Java("3", servers, kafka_jars, tmp_path, {**client_id, "metadata.max.age.ms": 300}),
        ):
            stack.callback(sender.end)
            senders.append(sender)
        go_on(senders)
        for _ in range(2):
            brokers[2].stop()
            go_on(senders)
            brokers[2].start()
            others = {node_id: brokers[node_id] for node_id in (1, 3)}
            wait_until(lambda: answered(brokers[2], "Produce") > 0, "the rack is produced to again")
            wait_until(lambda others=others: are_quiet(others, senders), "producers are in their rack")
    require_each_once_and_in_order(senders, servers)


def are_quiet(others: Brokers, senders: list[Sender]) -> bool:
    """Whether all producers go on, and none of them at these brokers."""
    before = requests(others, "Produce")
    go_on(senders)
    return not asked_since(before, others, "Produce")
