"""A stock Apache Kafka serves segments of Diskless and goes on with the topic, and the way back."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pytest
from kafka import KafkaAdminClient, TopicPartition
from typer.testing import CliRunner

from diskless_core.cli import kafka_cluster, kafka_log_dir, log_positions
from diskless_core.cli.kafka_cluster import KafkaCluster, KafkaClusterError, Leader, Topic
from diskless_core.cli.kafka_exporter import Exporter
from diskless_core.cli.kafka_importer import Importer, PartitionReport
from diskless_core.cli.kafka_log_dir import LogDirError
from diskless_core.cli.log_positions import Address
from diskless_core.cli.main import main
from diskless_core.cli.remote_storages import RemoteStorages
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.tiering.migration.kafka_export import REQUIRED_CONFIG, ExportError, SourcePartition, Step
from diskless_core.tiering.migration.kafka_import import TopicImportError
from tests.compat.clients import CODECS, Confluent, Got, Sent
from tests.compat.kafka_tools import KafkaTools
from tests.support.apache_kafka import TieredKafka, free_ports
from tests.support.broker import BrokerProcess
from tests.support.built_segments import PRODUCER_ID, BuiltPartition, read_segments
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("tiered-kafka")

LEADER = Leader(broker_id=0, address=Address("localhost", 9092))
TOPIC = "exported"
REAL = "real"
NATIVE = "native"
NATIVE_RECORDS = 5
TRIMMED_TO = 50
DELETED_TO = 7


@dataclass
class BuiltTopics:
    """In place of a running Diskless: topics whose segments were built, and topics that adopt segments."""

    topics: dict[str, list[SourcePartition]] = field(default_factory=dict)
    adopted: dict[int, tuple[int, list[RemoteLogSegmentMetadata]]] = field(default_factory=dict)

    def partition_count(self, topic):
        return len(self.topics[topic])

    def config(self, topic):
        return {"max.message.bytes": "2000000", "retention.ms": "5"}

    def compact(self, topics):
        assert set(topics) <= set(self.topics)

    def partitions(self, topic):
        return self.topics[topic]

    def ensure_topic(self, name, partitions, config):
        return Topic(name=name, topic_id=uuid.UUID(int=99), leaders=dict.fromkeys(range(partitions), LEADER))

    def segments(self, topic):
        return {partition: segments for partition, (_, segments) in self.adopted.items()}

    def adopt(self, partition, log_start_offset, segments):
        adopted = (log_start_offset, list(segments))
        assert self.adopted.setdefault(partition.partition, adopted) == adopted


class Diskless(NamedTuple):
    """A real one, the address of its HTTP interface, and what it served of each partition before its compaction."""

    broker: BrokerProcess
    admin: str
    records: list[list[Got]]

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def run(self, *arguments: str) -> str:
        """Run a command on the broker's configuration; what it says."""
        overrides = {
            "log.dirs": self.broker.folder / "data",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "admin.listener": self.admin,
        }
        options = [f"--override={name}={value}" for name, value in overrides.items()]
        done = CliRunner().invoke(main, [*arguments, *options], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output


@dataclass
class Exported:
    """A Kafka that has taken over a topic of four partitions, and what is in it.

    Partition 0 is whole, 1 has leader epochs of another Kafka, the beginning of 2 was deleted, all of 3 was.
    """

    kafka: TieredKafka
    exporter: Exporter
    source: BuiltTopics
    built: list[BuiltPartition]

    def records(self, partition: int, start: int = 0) -> list[Got]:
        return [
            Got(partition, record.offset, record.value, record.key, record.headers, record.timestamp, 0)
            for record in self.built[partition].records[start:]
        ]


@pytest.fixture(scope="module")
def tiered_kafka(kafka_jars, tmp_path_factory) -> Iterator[TieredKafka]:
    kafka = TieredKafka(kafka_jars, tmp_path_factory.mktemp("tiered-kafka"))
    try:
        yield kafka.start()
    finally:
        kafka.end()


@pytest.fixture(scope="module")
def storages(tmp_path_factory) -> RemoteStorages:
    return RemoteStorages.configured(None, [f"log.dirs={tmp_path_factory.mktemp('diskless')}"])


async def build(storages: RemoteStorages) -> list[BuiltPartition]:
    topic_id = uuid.UUID(int=12345)
    built = [BuiltPartition(TopicIdPartition(topic_id, TOPIC, partition)) for partition in range(3)]
    async with storages.own() as storage:
        for partition in built:
            for epoch in (0, 4, 7) if partition is built[1] else (0, 0, 0):
                await partition.add_segment(storage, 10, epoch)
    return built


@pytest.fixture(scope="module")
def diskless(tmp_path_factory) -> Iterator[Diskless]:
    """A broker with a topic, whose records are all in WAL objects."""
    (port,) = free_ports(1)
    admin = f"http://127.0.0.1:{port}"
    broker = BrokerProcess(tmp_path_factory.mktemp("leaving"), {"admin.listener": admin})
    try:
        broker.start()
        client = Confluent(broker.bootstrap)
        with closing(KafkaCluster(broker.bootstrap)) as cluster:
            cluster.create_topic(REAL, 2, 1, {})
        for number, codec in enumerate(CODECS):
            sent = [Sent(b"%d" % index * 50, key=codec.encode(), partition=number % 2) for index in range(100)]
            client.produce(REAL, sent, codec=codec, idempotent=number > 2)
        yield Diskless(broker, admin, [client.read(REAL, 300, (0,)), client.read(REAL, 200, (1,))])
    finally:
        broker.end()


@pytest.fixture(scope="module")
def exported(tiered_kafka, storages, diskless) -> Exported:
    storage = f"--tiered-storage-dir={tiered_kafka.storage}"
    to_kafka = ("export", "kafka", f"--topic={REAL}", storage, f"--bootstrap={tiered_kafka.bootstrap}")
    built = asyncio.run(build(storages))
    partitions = [
        SourcePartition(partition=index, log_start_offset=0, next_offset=one.next_offset, segments=one.segments)
        for index, one in enumerate(built)
    ]
    partitions[2] = replace(partitions[2], log_start_offset=TRIMMED_TO, segments=built[2].segments[1:])
    partitions.append(SourcePartition(partition=3, log_start_offset=DELETED_TO, next_offset=DELETED_TO, segments=()))
    source = BuiltTopics({TOPIC: partitions})
    exporter = make_exporter(source, storages, tiered_kafka)
    first = asyncio.run(exporter.export([TOPIC], tiered_kafka.bootstrap, -1))
    assert (first.step, first.segments) == (Step.PREPARE, 8)
    assert "--prepare-log-dir LOG_DIR" in diskless.run(*to_kafka)
    make_native_topic(tiered_kafka.bootstrap)
    produce_native(tiered_kafka.bootstrap, 0)
    with pytest.raises(LogDirError, match="a broker is running"):
        asyncio.run(exporter.prepare([TOPIC], tiered_kafka.folder / "data"))
    tiered_kafka.stop()
    asyncio.run(exporter.prepare([TOPIC], tiered_kafka.folder / "data"))
    asyncio.run(exporter.prepare([TOPIC], tiered_kafka.folder / "data"))
    prepared = diskless.run(
        "export", "kafka", f"--topic={REAL}", storage, f"--prepare-log-dir={tiered_kafka.folder / 'data'}"
    )
    assert f"{REAL}-0 begins at offset 300\n{REAL}-1 begins at offset 200\n" in prepared
    tiered_kafka.start()
    assert f"it serves all records of {REAL}\n" in diskless.run(*to_kafka)
    last = asyncio.run(exporter.export([TOPIC], tiered_kafka.bootstrap, -1))
    assert last == replace(first, step=Step.NOTHING)
    produce_native(tiered_kafka.bootstrap, 1)
    return Exported(tiered_kafka, exporter, source, built)


def make_exporter(source, storages, kafka):
    return Exporter(
        source=source, storages=storages, place=str(kafka.storage), place_options=(), echo=lambda line: None
    )


def make_native_topic(bootstrap):
    """A topic that Kafka tiers itself, to the last record."""
    config = {"remote.storage.enable": "true", "local.retention.ms": "1"}
    with closing(KafkaCluster(bootstrap)) as cluster:
        cluster.create_topic(NATIVE, 2, 1, config)


def native_values(life):
    return [b"%d of %d" % (number, life) for number in range(NATIVE_RECORDS)]


def produce_native(bootstrap, life):
    for value in native_values(life):
        Confluent(bootstrap).produce(NATIVE, [Sent(value)])


@pytest.fixture
def cluster(exported) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(exported.kafka.bootstrap)
    yield cluster
    cluster.close()


@pytest.mark.parametrize(("partition", "count"), [(0, 300), (1, 200)])
def test_kafka_serves_what_was_produced_to_diskless(exported, diskless, partition, count):
    read = Confluent(exported.kafka.bootstrap).read(REAL, count, (partition,))
    assert read == diskless.records[partition]
    assert [record.offset for record in read] == list(range(count))


@pytest.mark.parametrize("partition", [0, 1])
def test_kafka_serves_every_record_from_the_segments_as_it_was_written(exported, partition):
    records = exported.records(partition)
    read = Confluent(exported.kafka.bootstrap).read(TOPIC, len(records), (partition,))
    assert read[: len(records)] == records


def test_kafka_serves_a_partition_from_its_log_start_in_the_middle_of_a_segment(exported):
    records = exported.records(2, TRIMMED_TO)
    read = Confluent(exported.kafka.bootstrap).read(TOPIC, len(records), (2,))
    assert read == records


def test_kafka_tools_say_where_the_log_and_its_local_part_begin(exported, kafka_jars, tool_runner):
    tools = KafkaTools(kafka_jars, tool_runner, exported.kafka.bootstrap)

    def offsets(when):
        lines = tools.out("kafka-get-offsets", "--topic-partitions", f"{TOPIC}:1-4", "--time", str(when)).split()
        return [int(line.rsplit(":", 1)[1]) for line in lines]

    assert offsets("earliest") == [0, TRIMMED_TO, DELETED_TO]
    assert offsets("earliest-local") == [120, 120, DELETED_TO]
    assert offsets("latest") == [120, 120, DELETED_TO]
    wait_until(lambda: offsets("latest-tiered")[:2] == [119, 119], "all is tiered")


@pytest.mark.parametrize("offset", [0, 1, 57, 119])
def test_kafka_finds_records_in_segments_by_their_time(exported, offset):
    admin = KafkaAdminClient(bootstrap_servers=exported.kafka.bootstrap)
    with closing(admin):
        partition = TopicPartition(TOPIC, 1)
        timestamp = exported.built[1].records[offset].timestamp
        for wanted in (timestamp, timestamp - 5):
            found = admin.list_partition_offsets({partition: wanted})[partition]
            assert (found.offset, found.timestamp) == (offset, timestamp)


def test_kafka_goes_on_behind_the_segments(exported):
    client = Confluent(exported.kafka.bootstrap)
    sent = [Sent(b"new", key=b"key %d" % number) for number in range(5)]
    offsets = [client.produce(TOPIC, sent, codec=codec, idempotent=True)[0] for codec in CODECS]
    assert offsets[0] == exported.built[0].next_offset
    read = client.read(TOPIC, 120 + 25)
    assert read[:120] == exported.records(0)
    assert [record.offset for record in read] == list(range(145))
    assert {record.value for record in read[120:]} == {b"new"}


def test_kafka_knows_the_idempotent_producers_of_the_segments(exported):
    admin = KafkaAdminClient(bootstrap_servers=exported.kafka.bootstrap)
    with closing(admin):
        partition = TopicPartition(TOPIC, 1)
        ((producer,),) = admin.describe_producers([partition])[partition]
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (PRODUCER_ID, 0, 119)


async def test_an_export_that_is_done_changes_nothing_when_it_is_run_again(exported, cluster):
    topic = cluster.topic(TOPIC)
    before = cluster.remote_log_events([topic.partition(index) for index in range(1, 4)])
    report = await exported.exporter.export([TOPIC], exported.kafka.bootstrap, -1)
    assert report.step is Step.NOTHING
    assert cluster.remote_log_events([topic.partition(index) for index in range(1, 4)]) == before


@pytest.mark.parametrize(
    ("partitions", "config", "problem"),
    [
        (2, REQUIRED_CONFIG, "2 partitions in Kafka and 1 in Diskless"),
        (1, {}, "remote.storage.enable=true, retention.ms=-1"),
    ],
)
async def test_a_topic_that_was_made_otherwise_is_refused(
    exported, storages, cluster, topic, partitions, config, problem
):
    cluster.create_topic(topic, partitions, 1, config)
    source = BuiltTopics({topic: [replace(exported.source.topics[TOPIC][0])]})
    with pytest.raises(ExportError, match=problem):
        await make_exporter(source, storages, exported.kafka).export([topic], exported.kafka.bootstrap, -1)


async def test_a_topic_with_records_is_refused(exported, storages, cluster, topic):
    cluster.create_topic(topic, 1, 1, REQUIRED_CONFIG)
    Confluent(exported.kafka.bootstrap).produce(topic, [Sent(b"theirs")])
    source = BuiltTopics({topic: exported.source.topics[TOPIC][:1]})
    with pytest.raises(ExportError, match="nobody has written to"):
        await make_exporter(source, storages, exported.kafka).export([topic], exported.kafka.bootstrap, -1)


async def test_a_folder_is_not_prepared_before_the_segments_are_copied(exported, storages, cluster, topic):
    cluster.create_topic(topic, 1, 1, REQUIRED_CONFIG)
    log_dir = exported.kafka.folder / "data"
    wait_until(lambda: kafka_log_dir.topic_id_in(log_dir, topic, 0) is not None, "the broker has made the folder")
    source = BuiltTopics({topic: exported.source.topics[TOPIC][:1]})
    with pytest.raises(ExportError, match="have been copied yet"):
        await make_exporter(source, storages, exported.kafka).prepare([topic], log_dir)


def test_a_cluster_that_does_not_answer_is_told(monkeypatch):
    monkeypatch.setattr(kafka_cluster, "CONNECT_TIMEOUT_MS", 200)
    with pytest.raises(KafkaClusterError, match=r"127\.0\.0\.1:1 "):
        KafkaCluster("127.0.0.1:1")


def make_importer(target, storages, kafka):
    return Importer(
        target=target, storages=storages, place=str(kafka.storage), place_options=(), echo=lambda line: None
    )


async def test_what_kafka_has_tiered_is_imported_with_its_offsets_and_epochs(exported, storages, cluster):
    values = native_values(0) + native_values(1)
    native = cluster.topic(NATIVE)
    wait_until(lambda: cluster.offsets(native, log_positions.LATEST_TIERED)[0] == len(values) - 1, "all is tiered")
    target = BuiltTopics()
    importer = make_importer(target, storages, exported.kafka)

    reports = await importer.import_topics([NATIVE], exported.kafka.bootstrap)

    log_start, segments = target.adopted[0]
    assert log_start == 0
    assert len({epoch for segment in segments for epoch in segment.segment_leader_epochs}) == 2
    async with storages.own() as storage:
        records = await read_segments(storage, segments)
    assert [(record.offset, record.value) for record in records] == list(enumerate(values))
    size_bytes = sum(segment.segment_size_bytes for segment in segments)
    assert reports == [report(NATIVE, 0, len(segments), size_bytes, 10, 10), report(NATIVE, 1, 0, 0, 0, 0)]
    assert await importer.import_topics([NATIVE], exported.kafka.bootstrap) == reports


def test_diskless_serves_what_it_imported_and_goes_on(exported, cluster, diskless):
    native = cluster.topic(NATIVE)
    wait_until(
        lambda: cluster.offsets(native, log_positions.LATEST_TIERED)[0] == 2 * NATIVE_RECORDS - 1, "all is tiered"
    )
    from_kafka = ("import", "kafka", f"--topic={NATIVE}", f"--bootstrap={exported.kafka.bootstrap}")
    for _ in range(2):
        said = diskless.run(*from_kafka, f"--tiered-storage-dir={exported.kafka.storage}")
        assert "not imported" not in said
    client = Confluent(diskless.bootstrap)
    assert client.produce(NATIVE, [Sent(b"after")]) == [2 * NATIVE_RECORDS]
    there = Confluent(exported.kafka.bootstrap).read(NATIVE, 2 * NATIVE_RECORDS)
    here = client.read(NATIVE, 2 * NATIVE_RECORDS + 1)
    assert here[:-1] == there
    assert here[-1].value == b"after"


async def test_records_that_kafka_has_not_tiered_are_not_imported_but_told(exported, storages, cluster, topic):
    cluster.create_topic(topic, 1, 1, {"remote.storage.enable": "true"})
    Confluent(exported.kafka.bootstrap).produce(topic, [Sent(b"local")] * 3)
    importer = make_importer(BuiltTopics(), storages, exported.kafka)
    assert await importer.import_topics([topic], exported.kafka.bootstrap) == [report(topic, 0, 0, 0, 0, 3)]


async def test_a_topic_that_kafka_does_not_have_is_not_imported(exported, storages, topic):
    with pytest.raises(TopicImportError, match=f"no topic {topic}"):
        await make_importer(BuiltTopics(), storages, exported.kafka).import_topics([topic], exported.kafka.bootstrap)


def report(topic, partition, segments, size_bytes, next_offset, log_end_offset):
    return PartitionReport(
        topic=topic,
        partition=partition,
        segments=segments,
        size_bytes=size_bytes,
        next_offset=next_offset,
        log_end_offset=log_end_offset,
    )
