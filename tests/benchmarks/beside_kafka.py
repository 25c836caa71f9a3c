"""Diskless and Apache Kafka one after the other on this machine, with the same clients doing the same."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from diskless_core.cli.broker_process import BrokerProcess
from diskless_core.clock import SystemClock
from tests.benchmarks import load
from tests.benchmarks.machine import GIB
from tests.benchmarks.meter import Meter
from tests.support.apache_kafka import ApacheKafka, java
from tests.support.maven import fetch_jars

RECORD_BYTES = 1024
MANY_PARTITIONS = 1_000
MANY_CONNECTIONS = 200
SMALL_REQUESTS = 20_000
SMALL_BYTES = 100
WARM_UP_SHARE = 4
JAVA_TIMEOUT_S = 600
# What Kafka's own start script gives its broker.
KAFKA_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
_PRODUCED = re.compile(r"^\d+ records sent, [\d.,]+ records/sec \(([\d.]+) MB/sec\)", re.MULTILINE)


class Running(NamedTuple):
    """A contender that has been started."""

    bootstrap: str
    pid: int
    seconds_to_first_record: float


Contender = Callable[[Path], Iterator[Running]]


def diskless(folder: Path) -> Iterator[Running]:
    """With all defaults, that is with an fsync before each acknowledgement."""
    clock = SystemClock()
    with BrokerProcess(folder, clock) as broker:
        began = clock.monotonic()
        broker.start()
        load.produce_one(broker.bootstrap)
        yield Running(broker.bootstrap, broker.pid, clock.monotonic() - began)


def apache_kafka(properties: dict[str, str]) -> Contender:
    """One KRaft node with Kafka's defaults besides these properties."""

    def run(folder: Path) -> Iterator[Running]:
        clock = SystemClock()
        kafka = ApacheKafka(fetch_jars("kafka"), folder, properties, KAFKA_OPTIONS)
        kafka.format()
        began = clock.monotonic()
        try:
            kafka.start()
            load.produce_one(kafka.bootstrap)
            yield Running(kafka.bootstrap, kafka.pid, clock.monotonic() - began)
        finally:
            kafka.end()

    return run


CONTENDERS: dict[str, Contender] = {
    "Diskless": diskless,
    "Apache Kafka": apache_kafka({}),
    "Apache Kafka, flush.messages=1": apache_kafka({"log.flush.interval.messages": "1"}),
}


def compare(console: Console, total_bytes: int) -> str:
    """Measure all contenders, and return a Markdown section."""
    columns: list[dict[str, str]] = []
    for name, contender in CONTENDERS.items():
        console.print(f"[bold]{name}[/bold]")
        with running(contender) as started:
            figures = {"start to first record": f"{started.seconds_to_first_record:.1f} s"}
            figures |= _measure(started, total_bytes)
        for what, figure in figures.items():
            console.print(f"  {what}: [bold]{figure}[/bold]", highlight=False)
        columns.append(figures)
    return _section(columns, total_bytes)


@contextmanager
def running(contender: Contender) -> Iterator[Running]:
    """A contender on a folder of its own, ended in the end."""
    with tempfile.TemporaryDirectory(prefix="diskless-bench-") as folder:
        life = contender(Path(folder))
        yield next(life)
        for _ in life:
            raise RuntimeError("a contender runs once")


def _section(columns: Sequence[dict[str, str]], total_bytes: int) -> str:
    rows = "\n".join(f"| {what} | {' | '.join(column[what] for column in columns)} |" for what in columns[0])
    return (
        f"## Beside Apache Kafka\n\nOne broker each, after one another, {total_bytes >> 20} MiB a run after a warm-up, "
        "the same clients on the same cores. Diskless acknowledges what is synced to disk; Apache Kafka by default "
        "what is in the page cache, with `log.flush.interval.messages=1` what is synced. Writing through the page "
        "cache, as Apache Kafka does, is dear on a virtual machine; `baseline` rows say what this one's disk does. "
        "Apache Kafka's consumers then read from that page cache, which holds everything here; those of Diskless read "
        "what its own cache of 128 MiB does not hold from the disk. A profile of that: 29 % of the broker's time is "
        "reading files, 13 % checking checksums, the rest mostly sending; from the cache, see above, a fetch costs a "
        "third.\n\n"
        f"| | {' | '.join(CONTENDERS)} |\n|---|{'---|' * len(CONTENDERS)}\n{rows}\n"
    )


def _measure(running: Running, total_bytes: int) -> dict[str, str]:
    bootstrap, meter = running.bootstrap, Meter(running.pid)
    load.produce_bulk(bootstrap, load.create_topic(bootstrap), total_bytes // WARM_UP_SHARE, RECORD_BYTES)
    records = total_bytes // RECORD_BYTES // 1_000 * 1_000
    written = records * RECORD_BYTES
    topic, java_topic = load.create_topic(bootstrap), load.create_topic(bootstrap)
    many = load.create_topic(bootstrap, MANY_PARTITIONS)

    def moved(work: Callable[[], float]) -> str:
        cpu = meter.cpu_s()
        rate = written / work() / 1e6
        return f"{rate:,.0f} MB/s, {(meter.cpu_s() - cpu) / (written / GIB):.2f} CPU-s/GiB"

    figures = {
        "librdkafka producer": moved(lambda: load.produce_bulk(bootstrap, topic, total_bytes, RECORD_BYTES)),
        "librdkafka consumer": moved(lambda: load.consume_bulk(bootstrap, topic, records)),
        "Java producer": moved(lambda: _java_producer(bootstrap, java_topic, records)),
        "Java consumer": moved(lambda: _java_consumer(bootstrap, java_topic, records)),
        f"librdkafka producer, {MANY_PARTITIONS:,} partitions": moved(
            lambda: load.produce_bulk(bootstrap, many, total_bytes, RECORD_BYTES, MANY_PARTITIONS)
        ),
    }
    cpu = meter.cpu_s()
    seconds = load.produce_small(bootstrap, topic, MANY_CONNECTIONS, SMALL_REQUESTS, SMALL_BYTES)
    cpu_us = (meter.cpu_s() - cpu) / SMALL_REQUESTS * 1e6
    figures[f"{MANY_CONNECTIONS} connections, one small record a request"] = (
        f"{SMALL_REQUESTS / seconds:,.0f}/s, {cpu_us:,.0f} CPU-µs each"
    )
    figures["peak resident memory"] = f"{meter.peak_rss_mib():,.0f} MiB"
    return figures


def _java_producer(bootstrap: str, topic: str, records: int) -> float:
    """Kafka's own producer performance tool; returns its seconds."""
    settings = ["acks=all", "linger.ms=20", "batch.size=1000000", "buffer.memory=134217728"]
    output = _tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(RECORD_BYTES), "--throughput", "-1"),
        *("--bootstrap-server", bootstrap, "--command-property", *settings),
    )
    rates = _PRODUCED.findall(output)
    return records * RECORD_BYTES / (float(rates[-1]) * (1 << 20))


def _java_consumer(bootstrap: str, topic: str, records: int) -> float:
    """Kafka's own consumer performance tool; returns its seconds without those of joining the group."""
    output = _tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)),
        *("--fetch-size", str(8 << 20), "--timeout", "60000"),
    )
    header, figures = (
        line.split(", ") for line in output.splitlines() if line.startswith("start.time") or line[:2] == "20"
    )
    found = dict(zip(header, figures, strict=True))
    if int(found["data.consumed.in.nMsg"]) < records:
        raise RuntimeError(f"the consumer read less than it should: {output}")
    return float(found["fetch.time.ms"]) / 1000


def _tool(main: str, *arguments: str) -> str:
    command = java(fetch_jars("kafka"), main, *arguments, options=("-Xmx512m",))
    done = subprocess.run(command, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout
