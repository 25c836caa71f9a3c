"""Spark: what a compaction costs beside a copy of the same bytes, and what reading topics as DataFrames gives."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from diskless_core.cli.broker_process import BrokerProcess
from diskless_spark import register
from tests.benchmarks import load, spark_events, tiering
from tests.benchmarks.apart import Add, apart
from tests.benchmarks.machine import MIB
from tests.benchmarks.process_memory import ProcessMemory
from tests.benchmarks.spark_events import Cluster, Events
from tests.support.maven import fetch_jars
from tests.support.spark import spark_environment

ABOUT = (
    "`diskless compact --engine spark` runs on this machine with two cores, beside the broker for which it works; the "
    "WAL objects are copied by one process, each with its `fsync`. The time is that from when Spark, and Python on its "
    "executors, have started until the coordinator has taken all segments. Then 10 million records of 100 bytes are "
    "read as a DataFrame and thrown away (Spark's format `noop`), all columns of them; Spark's source for Kafka reads "
    "the same from the same broker."
)
PARTITIONS = (64, 1_000)
RECORD_BYTES = 1024
READ_RECORDS = 10_000_000
READ_RECORD_BYTES = 100
COMPACT_TIMEOUT_S = 900
REQUEST_BYTES = 8 * MIB
CLUSTER = Cluster(executors=32, cores=4, slow_executors=1, slow_factor=4.0, requests_s=3_500.0)
CLUSTER_BYTES = 4 << 40


class Compaction(NamedTuple):
    """One run. `seconds` are those from when Spark was ready, `start_s` those before; memory is at its peak."""

    seconds: float
    start_s: float
    events: Events
    memory: str
    size_bytes: int


def measure(add: Add, total: int) -> None:
    """Everything; `total` bytes are compacted at a time."""
    for partitions in PARTITIONS:
        with tiering.running_broker() as (broker, folder):
            topic = load.create_topic(broker.bootstrap, partitions)
            load.produce_bulk(broker.bootstrap, topic, total, RECORD_BYTES, partitions)
            copied = tiering.copy_mb_s(broker.objects, folder / "copied")
            found = _compaction(broker, folder, topic, "local[2]")
        name = f"Spark compaction, {partitions:,} partitions"
        rate = found.size_bytes / found.seconds / 1e6
        add(name, f"{rate:,.0f} MB/s ({rate / copied:.2f} of copying), after {found.start_s:.1f} s of starting")
        add(f"{name}, memory at its peak", found.memory)
        add(f"{name}, shuffled", f"{found.events.shuffle_bytes:,} bytes")
        if partitions == PARTITIONS[0]:
            _one_core(add, total, partitions, found)
            _cluster(add, found)
    apart(add, _reading)


def _one_core(add: Add, total: int, partitions: int, on_two: Compaction) -> None:
    with tiering.running_broker() as (broker, folder):
        topic = load.create_topic(broker.bootstrap, partitions)
        load.produce_bulk(broker.bootstrap, topic, total, RECORD_BYTES, partitions)
        on_one = _compaction(broker, folder, topic, "local[1]")
    add("Spark compaction, two cores instead of one", f"{on_one.seconds / on_two.seconds:.2f} times as quick")


def _cluster(add: Add, found: Compaction) -> None:
    """Tasks of this machine on a cluster that is not there."""
    tasks = round(CLUSTER_BYTES / found.size_bytes * len(found.events.task_s))
    requests = 2 * CLUSTER_BYTES // REQUEST_BYTES
    plain, again = (
        spark_events.simulated_s(CLUSTER, found.events.task_s, tasks, requests, speculation=speculation)
        for speculation in (False, True)
    )
    add(
        f"simulated: {CLUSTER_BYTES >> 40} TiB on {CLUSTER.executors} executors of {CLUSTER.cores} cores, one of them "
        f"{CLUSTER.slow_factor:.0f} times as slow, {CLUSTER.requests_s:,.0f} requests/s",
        f"{plain / 60:.1f} min, with speculation {again / 60:.1f} min; "
        f"{requests / CLUSTER.requests_s / 60:.1f} min for the requests alone",
    )


def _compaction(broker: BrokerProcess, folder: Path, topic: str, master: str) -> Compaction:
    events = folder / "events"
    events.mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.ui.enabled": "false",
    }
    overrides = {
        "log.dirs": str(folder / "data"),
        "wal_object_store.fsspec.url": broker.objects.as_uri(),
        "segment_compaction.spark.conf": json.dumps(conf),
    }
    options = [part for item in overrides.items() for part in ("--override", "=".join(item))]
    command = [tiering.diskless(), "compact", "--topic", topic, "--everything", "--json", "--url", broker.admin]
    everything = [*command, "--engine", "spark", "--master", master, *options]
    environ = {**os.environ, **spark_environment()}
    with subprocess.Popen(everything, stdout=subprocess.PIPE, env=environ) as process:
        with ProcessMemory(process.pid) as memory:
            out, _ = process.communicate(timeout=COMPACT_TIMEOUT_S)
        if process.returncode:
            raise RuntimeError("the compaction failed")
    report: Any = json.loads(out)
    found = spark_events.read(events)
    size = sum(topic_report["size_bytes"] for topic_report in report["topics"].values())
    seconds = (report["ended_at_ms"] - found.ready_ms) / 1000
    return Compaction(seconds, (found.ready_ms - found.started_ms) / 1000, found, str(memory), size)


# --- reading ---------------------------------------------------------------------------------------------------------


def _reading(add: Add) -> None:
    with tiering.running_broker() as (broker, folder):
        topic = load.create_topic(broker.bootstrap)
        load.produce_bulk(broker.bootstrap, topic, READ_RECORDS * READ_RECORD_BYTES, READ_RECORD_BYTES)
        config = folder / "server.properties"
        config.write_text(
            f"log.dirs={folder / 'data'}\nwal_object_store.fsspec.url={broker.objects.as_uri()}\n"
            f"admin.listener={broker.admin}\n"
        )
        options = {"diskless.config": str(config), "subscribe": topic}
        with _session(folder) as spark:
            ours = _seconds(spark.read.format("diskless").options(**options).load())
            tiering.compact(broker, topic)
            tiered = _seconds(spark.read.format("diskless").options(**options).load())
            kafka = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
            theirs = _seconds(spark.read.format("kafka").options(**kafka).load())
            parquet = str(folder / "parquet")
            spark.read.format("diskless").options(**options).load().write.parquet(parquet)
            columns = _seconds(spark.read.parquet(parquet))
        loop = load.consume_bulk(broker.bootstrap, topic, READ_RECORDS)

    def told(seconds: float) -> str:
        return f"{READ_RECORDS / seconds / 1e6:.2f} million records/s"

    ratios = (
        f"{theirs / ours:.2f} of Spark's Kafka source, {columns / ours:.2f} of Parquet, {loop / ours:.2f} of a loop"
    )
    add("Spark reads WAL objects", f"{told(ours)} ({ratios} with librdkafka)")
    add("Spark reads segments", f"{told(tiered)} ({theirs / tiered:.2f} of Spark's Kafka source)")
    add("Spark's Kafka source through the broker", told(theirs))
    add("Spark reads the same rows in Parquet", told(columns))
    add("a loop with librdkafka", told(loop))


def _seconds(rows: DataFrame) -> float:
    """How long it takes to read everything. Once before, for what only a first query does."""
    rows.limit(1).collect()
    began = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


@contextmanager
def _session(folder: Path) -> Iterator[SparkSession]:
    os.environ.update(spark_environment())
    jars = ",".join(sorted(map(str, fetch_jars("spark").glob("*.jar"))))
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.jars", jars)
        .getOrCreate()
    )
    try:
        register(spark)
        yield spark
    finally:
        spark.stop()
