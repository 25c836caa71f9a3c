"""`spark.read.format("diskless")` and `readStream` on a real broker: what consumers and Spark's Kafka source get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from diskless_spark import register
from tests.integration.test_tiering import SETTINGS, compact, create
from tests.support.broker import BrokerFactory, BrokerProcess
from tests.support.waiting import wait_until

PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OF_EACH_CODEC = 60
FIRST_MS = 1_700_000_000_000
COLUMNS = ("topic", "partition", "offset", "key", "value", "timestamp_ms", "timestampType", "headers")


@dataclass(frozen=True, kw_only=True)
class World:
    """A broker and a topic, one half of which is in segments."""

    broker: BrokerProcess
    config: Path
    topic: str = "orders"

    def options(self, **options: Any) -> dict[str, str]:
        return {"diskless.config": str(self.config), "subscribe": self.topic, **options}


def produce(broker: BrokerProcess, topic: str, first: int) -> None:
    """Records in all codecs; keys, values and headers of all kinds."""
    number = first
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 20})
        for _ in range(OF_EACH_CODEC):
            producer.produce(
                topic,
                partition=number % PARTITIONS,
                key=None if number % 7 == 0 else b"key %d" % number,
                value=None if number % 11 == 0 else b"value %d " % number * (number % 13),
                timestamp=FIRST_MS + number,
                headers=[] if number % 5 else [("n", b"%d" % number), ("ü", None)],
            )
            number += 1
        assert producer.flush(30) == 0


def consumed(world: World) -> list[tuple[Any, ...]]:
    """All records as a consumer gets them, in the order of `COLUMNS`."""
    consumer = Consumer({"bootstrap.servers": world.broker.bootstrap, "group.id": "none", "enable.auto.commit": False})
    found = []
    for partition in range(PARTITIONS):
        place = TopicPartition(world.topic, partition)
        _, end = consumer.get_watermark_offsets(place, timeout=300)
        consumer.assign([TopicPartition(world.topic, partition, 0)])
        position = 0
        while position < end:
            message = consumer.poll(300)
            assert message is not None
            assert message.error() is None
            kind, time_ms = message.timestamp()
            headers = message.headers()
            place_of_it = (world.topic, partition, message.offset())
            found.append((*place_of_it, message.key(), message.value(), time_ms, kind - 1, headers))
            position = message.offset() + 1
    consumer.close()
    return found


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The same of a data frame that has headers, sorted."""
    shown = frame.withColumn("timestamp_ms", F.unix_millis("timestamp")).select(*COLUMNS).collect()
    return sorted(
        (*row[:3], *(None if one is None else bytes(one) for one in row[3:5]), *row[5:7], headers_of(row["headers"]))
        for row in shown
    )


def headers_of(headers: Any) -> list[tuple[str, bytes | None]] | None:
    return None if headers is None else [(one["key"], one["value"] and bytes(one["value"])) for one in headers]


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in frame.select("partition", "offset").collect())


def between(start: int, end: int, partitions: Sequence[int] = range(PARTITIONS)) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in partitions for offset in range(start, end)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    factory = BrokerFactory(folder)
    try:
        broker = factory(SETTINGS | {"metadata.log.max.snapshot.interval.ms": "500", "log.retention.ms": "-1"})
        config = folder / "server.properties"
        config.write_text(f"log.dirs={broker.folder / 'data'}\nadmin.listener={broker.admin}\n")
        world = World(broker=broker, config=config)
        create(broker, world.topic, PARTITIONS)
        produce(broker, world.topic, 0)
        assert compact(broker, "--topic", world.topic, "--everything")["segments"] == PARTITIONS
        produce(broker, world.topic, len(CODECS) * OF_EACH_CODEC)
        yield world
    finally:
        factory.end()


@pytest.fixture
def read(spark: SparkSession, world: World):
    """Make data frames of the topic with further options."""
    register(spark)
    return lambda **options: spark.read.format("diskless").options(**world.options(**options)).load()


EACH = 2 * len(CODECS) * OF_EACH_CODEC // PARTITIONS


def test_rows_are_what_a_consumer_reads(read, world: World) -> None:
    assert rows(read(includeHeaders="true", minPartitions="5")) == consumed(world)


def test_rows_are_those_of_the_kafka_source(spark: SparkSession, read, world: World) -> None:
    options = {"kafka.bootstrap.servers": world.broker.bootstrap, "subscribe": world.topic, "includeHeaders": "true"}
    kafka = spark.read.format("kafka").options(**options).load()
    own = read(includeHeaders="true")
    assert own.schema == kafka.schema
    assert rows(own) == rows(kafka)


def test_the_snapshots_in_the_bucket_tell_the_same_without_a_broker(read, world: World) -> None:
    bucket = {"diskless.snapshot": "bucket", "diskless.url": "http://127.0.0.1:1"}
    wait_until(lambda: offsets(read(**bucket)) == between(0, EACH), "no snapshot has everything")


def test_filters_options_and_columns_say_what_is_read(spark: SparkSession, read, world: World) -> None:
    start, end = '{"orders": {"0": 3, "1": -2, "2": 150}}', '{"orders": {"0": 10, "1": 0, "2": -1}}'
    wanted = between(3, 10, [0]) + between(150, EACH, [2])
    assert offsets(read(startingOffsets=start, endingOffsets=end)) == wanted
    some = read().where("partition IN (0, 1) AND partition <> 0 AND offset >= 95 AND offset < 105")
    assert offsets(some) == between(95, 105, [1])
    by_time = read(startingTimestamp=str(FIRST_MS + 30), endingTimestamp=str(FIRST_MS + 330))
    assert offsets(by_time) == between(10, 110)
    late = read().where(F.col("timestamp") >= F.timestamp_millis(F.lit(FIRST_MS + 590)))
    assert offsets(late) == sorted((number % 3, number // 3) for number in range(590, 600))
    options = {"diskless.config": str(world.config), "assign": '{"orders": [2]}'}
    only = spark.read.format("diskless").schema("value BINARY, offset LONG").options(**options).load()
    assert only.columns == ["value", "offset"]
    assert sorted(row["offset"] for row in only.collect()) == list(range(EACH))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"wal_object_store.fsspec.ulr": "file:///x"}, "did you mean wal_object_store.fsspec.url"),
        ({"startingOffsets": '{"orders": {"0": 5}}'}, "orders-1 is not named"),
        ({"startingTimestamp": str(FIRST_MS * 2)}, "startingTimestamp: orders-0 has no record of that time"),
        ({"endingOffsets": f'{{"orders": {{"0": {EACH + 1}, "1": 0, "2": 0}}}}'}, f"ends before {EACH}"),
    ],
)
def test_what_cannot_be_read_is_a_clear_error(read, options: dict[str, str], message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        read(**options).count()


def run_stream(spark: SparkSession, world: World, out: Path, **options: str) -> list[int]:
    """Read what there is, and say how many rows each micro-batch had."""
    frame = spark.readStream.format("diskless").options(**world.options(**options)).load()
    query = (
        frame.select("partition", "offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(out / "rows"))
    )
    assert query.awaitTermination(60)
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


@pytest.mark.parametrize("columns", [None, "value BINARY"], ids=["at load", "at start"])
def test_what_a_stream_cannot_do_is_a_clear_error(spark: SparkSession, read, world: World, columns) -> None:
    reader = spark.readStream.format("diskless").options(**world.options(startingOffset="earliest"))
    with pytest.raises(PySparkException, match="did you mean startingOffsets") as raised:  # noqa: PT012 - either can
        frame = (reader if columns is None else reader.schema(columns)).load()
        frame.writeStream.format("noop").start().awaitTermination(60)
    assert "UnboundLocalError" not in str(raised.value)


def test_a_stream_goes_on_where_it_stopped_within_its_limit(
    spark: SparkSession, read, world: World, tmp_path: Path
) -> None:
    topic = World(broker=world.broker, config=world.config, topic="streamed")
    create(world.broker, topic.topic, PARTITIONS)
    produce(world.broker, topic.topic, 0)
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
    assert run_stream(spark, topic, tmp_path, **limits) == [200, 100]
    produce(world.broker, topic.topic, 300)
    admin = AdminClient({"bootstrap.servers": world.broker.bootstrap})
    admin.create_partitions([NewPartitions(topic.topic, 4)])[topic.topic].result(10)
    producer = Producer({"bootstrap.servers": world.broker.bootstrap})
    producer.produce(topic.topic, b"to the new one", partition=3)
    assert producer.flush(30) == 0
    at_least = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "1000"}
    assert sum(run_stream(spark, topic, tmp_path, **at_least)) == 301
    found = offsets(spark.read.parquet(str(tmp_path / "rows")))
    assert found == [*between(0, EACH), (3, 0)]


def test_lost_records_are_an_error_unless_that_is_allowed(spark: SparkSession, read, world: World) -> None:
    topic = World(broker=world.broker, config=world.config, topic="shortened")
    create(world.broker, topic.topic, PARTITIONS)
    produce(world.broker, topic.topic, 0)
    admin = AdminClient({"bootstrap.servers": world.broker.bootstrap})
    admin.delete_records([TopicPartition(topic.topic, 1, 40)])
    start = '{"shortened": {"0": 0, "1": 0, "2": 0}}'
    options = topic.options(startingOffsets=start)
    wait_until(lambda: admin_start(world, topic.topic, 1) == 40, "the records are still there")
    with pytest.raises(PySparkException, match="shortened-1: offsets from 0 on are asked for"):
        spark.read.format("diskless").options(**options).load().count()
    found = spark.read.format("diskless").options(**options, failOnDataLoss="false").load()
    assert offsets(found) == sorted(between(0, 100, [0, 2]) + between(40, 100, [1]))


def admin_start(world: World, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": world.broker.bootstrap, "group.id": "none"})
    start, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=300)
    consumer.close()
    return start
