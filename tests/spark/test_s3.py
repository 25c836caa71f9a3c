"""Spark on S3, as moto plays it: topics are read, compacted and read again, in few requests, and no secret is told."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from diskless_core.cli.main import main
from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.testing.orphan_detection import found_by, keys_created_at, search_of
from diskless_fsspec.config import FsspecSettings
from diskless_fsspec.factory import make_store
from diskless_spark import register
from diskless_spark.orphans.config import SparkOrphanSettings
from diskless_spark.orphans.detection import SparkDetection
from tests.integration.test_tiering import SETTINGS, create
from tests.support.broker import BrokerFactory
from tests.support.moto_s3 import moto_s3
from tests.support.waiting import wait_until

BUCKET = "lake"
TOPIC = "orders"
PARTITIONS = 3
RECORDS = 300
SECRET = "hush-hush"
INDEXES = ("index", "leader_epoch_checkpoint", "snapshot", "timeindex")


@dataclass(frozen=True)
class Bucket:
    """A server with one bucket. `requests` are what it was asked: method, path, query, and bytes that were sent."""

    url: str
    requests: list[tuple[str, str, str, int]] = field(default_factory=list)

    def settings(self, place: str) -> dict[str, str]:
        """Settings of the plugin `fsspec`, the secret ones in two ways."""
        options = json.dumps({"secret": f"{SECRET}-in-json"})
        url = f"s3://{BUCKET}/{place}"
        connection = {"url": url, "endpoint.url": self.url, "region": "us-east-1", "options": options}
        return connection | {"key": f"{SECRET}-id", "secret": f"{SECRET}-itself"}

    def broker_settings(self) -> dict[str, str]:
        nouns = {"wal_object_store": "wal", "remote_storage": "tiered"}
        return {
            f"{noun}.fsspec.{name}": value
            for noun, place in nouns.items()
            for name, value in self.settings(place).items()
        }

    def asked_for(self, part: str, start: int) -> list[str]:
        """Methods and what is behind the last dot of the paths of those requests from `start` on that have `part`."""
        return [f"{method} {path.rpartition('.')[2]}" for method, path, _, _ in self.requests[start:] if part in path]


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    requests: list[tuple[str, str, str, int]] = []

    def note(environ: dict[str, Any]) -> None:
        size = int(environ.get("CONTENT_LENGTH") or 0)
        requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"], size))

    with moto_s3(note) as port:
        made = Bucket(f"http://127.0.0.1:{port}", requests)
        client = boto3.client(
            "s3", endpoint_url=made.url, region_name="us-east-1", aws_access_key_id="k", aws_secret_access_key="s"
        )
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield made


@contextmanager
def event_log(spark: SparkSession, folder: Path) -> Iterator[Callable[[], str]]:
    """Have Spark write an event log; what is in it by now."""
    assert spark._jvm is not None
    jvm, context = spark._jvm, spark.sparkContext._jsc.sc()
    conf = context.getConf().set("spark.eventLog.compress", "false").set("spark.eventLog.rolling.enabled", "false")
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "test", jvm.scala.Option.empty(), jvm.java.net.URI(folder.as_uri()), conf
    )
    listener.start()
    context.addSparkListener(listener)

    def written() -> str:
        context.listenerBus().waitUntilEmpty()
        return "".join(path.read_text() for path in folder.iterdir() if not path.name.startswith("."))

    yield written
    context.removeSparkListener(listener)
    listener.stop()


def connections_of_workers(bucket: Bucket) -> list[Any]:
    """Those of Spark's Python processes to the bucket."""
    port = int(bucket.url.rpartition(":")[2])
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):  # it has just ended, and its connections with it
            if "python" in process.name():
                found += [one for one in process.net_connections() if one.raddr and one.raddr.port == port]
    return found


def produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 500})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number * 100, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def count(frame: DataFrame) -> dict[int, int]:
    return {row["partition"]: row["count"] for row in frame.groupBy("partition").count().collect()}


def each(records: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), records // PARTITIONS)


def test_a_topic_in_a_bucket_is_read_compacted_and_read_again(
    spark: SparkSession, bucket: Bucket, new_broker: BrokerFactory, tmp_path: Path
) -> None:
    broker = new_broker(SETTINGS | bucket.broker_settings())
    create(broker, TOPIC, PARTITIONS)
    produce(broker.bootstrap)
    options = {"diskless.url": broker.admin, "subscribe": TOPIC, **bucket.broker_settings()}
    register(spark)
    (tmp_path / "events").mkdir()
    with event_log(spark, tmp_path / "events") as logged:
        spark.read.format("diskless").options(**options).load().createOrReplaceTempView("before")
        assert count(spark.table("before")) == each(RECORDS)

        objects = [path for method, path, _, _ in bucket.requests if method == "PUT" and "/wal/wal/" in path]
        before = len(bucket.requests)
        config = tmp_path / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in bucket.broker_settings().items()))
        arguments = ["--topic", TOPIC, "--everything", "--engine", "spark", "--master", "local[2]", "--json"]
        done = CliRunner().invoke(main, ["compact", *arguments, "--url", broker.admin, "--config", str(config)])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["segments"] == PARTITIONS
        of_segments = Counter(bucket.asked_for("/tiered/", before))
        # besides, another task reads each log back, and the broker its indexes and its end
        written = dict.fromkeys([f"{method} {one}" for method in ("PUT", "GET") for one in (*INDEXES, "log")], 1)
        assert of_segments == {request: PARTITIONS * times for request, times in (written | {"GET log": 2}).items()}
        assert sum("uploads" in query for _, _, query, _ in bucket.requests[before:]) == PARTITIONS
        reads = [path for method, path, _, _ in bucket.requests[before:] if method == "GET" and path in objects]
        # each of two tasks reads what it needs of an object at once, and the driver looks whether there are any objects
        assert len(objects) < len(reads) <= 2 * len(objects) + 1

        produce(broker.bootstrap)
        stream = spark.readStream.format("diskless").options(**options, startingOffsets="earliest").load()
        query = (
            stream.select("partition", "offset")
            .writeStream.format("memory")
            .queryName("streamed")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        assert count(spark.table("streamed")) == each(2 * RECORDS)

        elsewhere = options | {"remote_storage.fsspec.url": "s3://elsewhere/tiered"}
        with pytest.raises(PySparkException, match="no such bucket; create it or correct the url") as error:
            count(spark.read.format("diskless").options(**elsewhere).load())
        assert SECRET not in str(error.value)
        events = logged()
    assert "wal_object_store.fsspec.options=*********(redacted)" in events
    assert SECRET not in events
    wait_until(lambda: not connections_of_workers(bucket), "the workers have closed their connections")


@pytest.mark.usefixtures("spark")
async def test_orphans_of_a_bucket_are_found_and_reported_there(bucket: Bucket, tmp_path: Path) -> None:
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    settings = FsspecSettings.model_validate(bucket.settings("orphaned"))
    orphans = keys_created_at(range(3))
    store = make_store(context, settings)
    await store.start()
    for key in orphans:
        await store.put(key, b"object")
    search = replace(search_of(MemoryWalObjectStore(SystemClock())), objects=partial(make_store, context, settings))
    connection = bucket.settings("")
    place = {"endpoint_url": bucket.url, "key": connection["key"], "secret": connection["secret"]}
    reports = {"report_url": f"s3://{BUCKET}/reports", "options": json.dumps(place)}
    detection = SparkDetection(context, SparkOrphanSettings.model_validate(reports))
    assert sorted(await found_by(detection, search)) == sorted(orphans)
    await store.stop()
    (report,) = {path for method, path, _, _ in bucket.requests if method == "PUT" and "/reports/" in path}
    assert report.endswith(".json")
