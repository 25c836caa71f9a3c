"""Tiered storage: what a compaction costs beside a copy of the same bytes, and what a replay from segments gives."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx

from diskless_core.cli.broker_process import BrokerProcess
from diskless_core.clock import SystemClock
from tests.benchmarks import beside_kafka, load, segments
from tests.benchmarks.machine import GIB, MIB
from tests.benchmarks.meter import Meter

ABOUT = (
    "All records of a topic are compacted by the engine `inline` in a broker that is bound to one core, and its WAL "
    "objects are copied by one process, each with its `fsync`, on one core and the same disk. Both find them in the "
    "page cache. Then the topic is read from its segments; the consumer of the replay beside a producer runs at a low "
    "priority, for elsewhere it has a machine of its own. Lookups and reading are of one segment of 256 MiB in a "
    "remote storage that is memory: what the broker itself costs."
)
PARTITIONS = (64, 1_000)
SEGMENT_BYTES = 64 * MIB
RECORD_BYTES = 1024
PACE_BYTES_S = MIB
LATENCY_S = 20.0
REPLAY_NICENESS = 10
COMPACT_TIMEOUT_S = 900

Add = Callable[[str, str], None]


class Counted(NamedTuple):
    """What the broker says that a compaction has read."""

    reads: float
    bytes_read: float


def measure(add: Add, total: int) -> None:
    """Everything, `total` bytes of records at a time."""
    for partitions in PARTITIONS:
        with running_broker() as (broker, folder):
            _compaction(add, broker, folder, total, partitions)
    _replay(add, total)
    asyncio.run(segments.measure(add))


@contextmanager
def running_broker() -> Iterator[tuple[BrokerProcess, Path]]:
    """A broker on a folder of its own, that one too. It keeps the WAL objects that it needs no more."""
    with tempfile.TemporaryDirectory(prefix="diskless-bench-") as name:
        overrides = {"diskless.file.delete.delay.ms": "3600000", "log.segment.bytes": str(SEGMENT_BYTES)}
        with BrokerProcess(Path(name), SystemClock(), overrides=overrides) as broker:
            broker.start()
            yield broker, Path(name)
            broker.stop()


def _compaction(add: Add, broker: BrokerProcess, folder: Path, total: int, partitions: int) -> None:
    topic = load.create_topic(broker.bootstrap, partitions)
    load.produce_bulk(broker.bootstrap, topic, total, RECORD_BYTES, partitions)
    with _on_one_core(os.getpid()):
        copied = copy_mb_s(broker.objects, folder / "copied")
    meter, process = Meter(broker.pid), broker.pid
    before, cpu, memory = _counted(broker), meter.cpu_s(), meter.peak_rss_mib()
    with _on_one_core(process):
        seconds = compact(broker, topic)
    size = sum(path.stat().st_size for path in folder.rglob("*.log") if "kafka-tiered-storage" in path.parts)
    rate, counted = size / seconds / 1e6, _counted(broker)
    name = f"compaction, {partitions:,} partitions"
    add(name, f"{rate:,.0f} MB/s ({rate / copied:.2f} of copying)")
    add(f"{name}, CPU of the broker", f"{(meter.cpu_s() - cpu) / (size / GIB):.2f} s/GiB")
    add(
        f"{name}, read for each byte",
        f"{(counted.bytes_read - before.bytes_read) / size:.2f} bytes, "
        f"{(counted.reads - before.reads) / (size / GIB):,.0f} requests a GiB",
    )
    add(f"{name}, peak resident memory", f"{meter.peak_rss_mib():,.0f} MiB ({memory:,.0f} before it)")


def compact(broker: BrokerProcess, topic: str) -> float:
    """Seconds that the broker took until all of a topic was in segments."""
    done = subprocess.run(
        [diskless(), "compact", "--topic", topic, "--everything", "--json", "--url", broker.admin],
        check=True,
        timeout=COMPACT_TIMEOUT_S,
        stdout=subprocess.PIPE,
    )
    report = json.loads(done.stdout)
    return float(report["ended_at_ms"] - report["begun_at_ms"]) / 1000


def diskless() -> str:
    """The command."""
    return str(Path(sys.executable).with_name("diskless"))


def _counted(broker: BrokerProcess) -> Counted:
    figures = dict(
        line.rsplit(" ", 1)
        for line in httpx.get(f"{broker.admin}/metrics").text.splitlines()
        if line and not line.startswith("#")
    )
    return Counted(
        float(figures["diskless_compaction_store_reads_total"]),
        float(figures["diskless_compaction_store_bytes_read_total"]),
    )


def copy_mb_s(source: Path, target: Path) -> float:
    """A copy of all files, each made durable, in MB/s. The first one only warms the page cache."""
    rate = 0.0
    for _ in range(2):
        target.mkdir()
        began, size = time.perf_counter(), 0
        for path in source.rglob("*"):
            if path.is_file():
                copy = target / path.name
                shutil.copyfile(path, copy)
                with copy.open("rb") as file:
                    os.fsync(file.fileno())
                size += path.stat().st_size
        rate = size / (time.perf_counter() - began) / 1e6
        shutil.rmtree(target)
    return rate


@contextmanager
def _on_one_core(pid: int) -> Iterator[None]:
    before = os.sched_getaffinity(pid)
    _bind(pid, {min(before)})
    try:
        yield
    finally:
        _bind(pid, before)


def _bind(pid: int, cores: set[int]) -> None:
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):  # threads come and go
            os.sched_setaffinity(int(task.name), cores)


# --- reading back ----------------------------------------------------------------------------------------------------


def _replay(add: Add, total: int) -> None:
    """A consumer from the beginning, from segments here and from Apache Kafka's log; and a producer beside it."""
    records = total // RECORD_BYTES // 1_000 * 1_000
    with running_broker() as (broker, _):
        topic = load.create_topic(broker.bootstrap)
        load.produce_bulk(broker.bootstrap, topic, total, RECORD_BYTES)
        compact(broker, topic)
        seconds = load.consume_bulk(broker.bootstrap, topic, records)
        ours = records * RECORD_BYTES / seconds / 1e6
        alone, beside = _latency_beside(broker.bootstrap, topic, records)
    with beside_kafka.running(beside_kafka.apache_kafka({})) as kafka:
        topic = load.create_topic(kafka.bootstrap)
        load.produce_bulk(kafka.bootstrap, topic, total, RECORD_BYTES)
        seconds = load.consume_bulk(kafka.bootstrap, topic, records)
        theirs = records * RECORD_BYTES / seconds / 1e6
        of_kafka = _latency_beside(kafka.bootstrap, topic, records)
    add("replay from segments, one librdkafka consumer", f"{ours:,.0f} MB/s ({ours / theirs:.2f} of Kafka's local log)")
    name = "produce latency at 1 MiB/s, without and with that replay beside it"
    add(name, _p99s(alone, beside))
    add(f"{name}, Apache Kafka", _p99s(*of_kafka))


def _p99s(alone: load.Latency, beside: load.Latency) -> str:
    return f"p99 {alone.p99_ms:.0f} and {beside.p99_ms:.0f} ms ({beside.p99_ms / alone.p99_ms:.2f})"


def _latency_beside(bootstrap: str, topic: str, records: int) -> tuple[load.Latency, load.Latency]:
    written = load.create_topic(bootstrap)
    load.produce_paced(bootstrap, written, PACE_BYTES_S, RECORD_BYTES, 1)
    alone = load.produce_paced(bootstrap, written, PACE_BYTES_S, RECORD_BYTES, LATENCY_S)
    reader = multiprocessing.get_context("spawn").Process(target=_replay_for_ever, args=(bootstrap, topic, records))
    reader.start()
    try:
        beside = load.produce_paced(bootstrap, written, PACE_BYTES_S, RECORD_BYTES, LATENCY_S)
    finally:
        reader.kill()
        reader.join()
    return alone, beside


def _replay_for_ever(bootstrap: str, topic: str, records: int) -> None:
    """In a process of its own: in the producer's, the two would wait for each other in Python.

    It gives way to the broker and the producer, which would not share its machine elsewhere.
    """
    os.nice(REPLAY_NICENESS)
    while True:
        load.consume_bulk(bootstrap, topic, records)
