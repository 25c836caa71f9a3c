"""`make bench`: measures a broker with one client beside it, writes docs/benchmarks.md, and draws its charts.

All backends are measured too, each alone, for docs/backends.md.

Everything runs on one machine and competes for its cores. The baselines and ratios of the same run make figures of
different machines comparable.
"""

from __future__ import annotations

import argparse
import io
import pstats
import resource
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from rich.console import Console
from rich.markup import escape

from diskless_core.cli.broker_process import BrokerProcess
from diskless_core.clock import SystemClock
from docs_site import backends as backends_page
from docs_site import drawn_files
from tests.benchmarks import (
    backends,
    beside_kafka,
    cluster,
    coordinator,
    copies,
    load,
    machine,
    orphans,
    racks,
    scaling,
    spark,
    start,
    stores,
    tiering,
)
from tests.benchmarks.apart import apart
from tests.benchmarks.machine import GIB, MIB
from tests.benchmarks.meter import Meter

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
RECORD_BYTES = 1024
WARM_UP_BYTES = 512 * MIB
"""Written before anything is measured: a virtual machine gets its memory from the host when it is first touched."""

SMALL_BYTES = 100
SMALL_CONNECTIONS = 64
IDLE_CONNECTIONS = 1_000
PACE_BYTES_S = MIB
PROFILE_LINES = 15


class Section(NamedTuple):
    """A part of the page that can be measured alone. `measure` gets where figures go, and how many bytes to move."""

    heading: str
    about: str
    measure: Callable[[Callable[[str, str], None], int], None]


SECTIONS = {
    "start": Section("## The start", start.ABOUT, lambda add, _: start.measure(add)),
    "coordinator": Section("## The coordinator", coordinator.ABOUT, lambda add, _: coordinator.measure(add)),
    "stores": Section("## Coordinator stores", stores.ABOUT, lambda add, _: stores.measure(add)),
    "cluster": Section("## A cluster", cluster.ABOUT, lambda add, _: cluster.measure(add)),
    "racks": Section("## What crosses racks", racks.ABOUT, lambda add, _: racks.measure(add)),
    "scaling": Section("## Brokers that come and go", scaling.ABOUT, lambda add, _: scaling.measure(add)),
    "copies": Section("## Copies in a large cluster", copies.ABOUT, lambda add, _: apart(add, copies.measure)),
    "tiering": Section("## Tiered storage", tiering.ABOUT, tiering.measure),
    "orphans": Section("## Orphans at scale", orphans.ABOUT, lambda add, _: apart(add, orphans.measure)),
    "spark": Section("## Spark", spark.ABOUT, lambda add, total: spark.measure(add, 2 * total)),
}

BACKENDS = "backends"
"""What is measured alone for a page of its own."""


@dataclass(slots=True)
class Report:
    """Figures in the order in which they were measured, shown at once."""

    console: Console
    rows: list[tuple[str, str]] = field(default_factory=list)
    comparison: str = ""
    profile: str = ""
    sections: list[str] = field(default_factory=list)

    def add(self, name: str, value: str) -> None:
        self._show(self.rows, name, value)

    def measure(self, section: Section, total: int) -> str:
        """Measure a section, and return it as it stands on the page."""
        rows: list[tuple[str, str]] = []
        section.measure(lambda name, value: self._show(rows, name, value), total)
        self.sections.append(f"{section.heading}\n\n{section.about}\n\n{_table(rows)}")
        return self.sections[-1]

    def measure_backends(self) -> None:
        """Measure all backends, and keep their figures, of which docs/backends.md is drawn."""
        backends_page.write(backends.measure(lambda name, value: self._show([], name, escape(value))))

    def _show(self, rows: list[tuple[str, str]], name: str, value: str) -> None:
        rows.append((name, value))
        self.console.print(f"{name}: [bold]{value}[/bold]", highlight=False)

    def markdown(self) -> str:
        """The whole page."""
        return (
            "# Benchmarks\n\n<!-- Written by `make bench`. -->\n\n"
            f"{machine.describe()}; {datetime.now(UTC):%Y-%m-%d}. One broker with its default backends, fsync on, and "
            "its clients on the same cores.\n\n"
            f"{_table(self.rows)}\n{self.comparison}\n"
            + "\n".join([*self.sections, ""])
            + f"## Small requests: where the broker's time goes\n\n```text\n{self.profile}\n```\n"
        )


def _table(rows: Sequence[tuple[str, str]]) -> str:
    return "| What | Figure |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in rows)


def replaced(page: str, heading: str, section: str) -> str:
    """The page with another section of this heading, and everything else as it was."""
    before, _, after = page.partition(f"{heading}\n")
    _, next_heading, following = after.partition("\n## ")
    return f"{before.rstrip()}\n\n{section}{next_heading}{following}"


@contextmanager
def running_broker(
    overrides: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None
) -> Iterator[BrokerProcess]:
    """A broker on a folder of its own, stopped in the end."""
    with (
        tempfile.TemporaryDirectory(prefix="diskless-bench-") as folder,
        BrokerProcess(Path(folder), SystemClock(), overrides=overrides, environ=environ) as broker,
    ):
        broker.start()
        with urlopen(f"{broker.admin}/health/live") as answer:  # it imports its HTTP server now, and not while measured
            answer.read()
        yield broker
        broker.stop()


def measure_baselines(report: Report) -> tuple[float, float]:
    """Disk and loopback, in MB/s."""
    with tempfile.TemporaryDirectory(prefix="diskless-bench-") as folder:
        disk = machine.disk_write_mb_s(Path(folder))
    loopback = machine.loopback_mb_s()
    report.add("baseline: disk, four at a time, files of 8 MiB with fsync", f"{disk:,.0f} MB/s")
    report.add("baseline: TCP over loopback", f"{loopback:,.0f} MB/s")
    return disk, loopback


def measure_bulk(report: Report, total: int, disk: float, loopback: float) -> None:
    """Throughput and its price in CPU and memory, then what idle connections cost."""
    with running_broker() as broker:
        meter, topic = Meter(broker.pid), load.create_topic(broker.bootstrap)
        warm_up = load.create_topic(broker.bootstrap)
        load.produce_bulk(broker.bootstrap, warm_up, WARM_UP_BYTES, RECORD_BYTES)
        written = total // RECORD_BYTES // 1_000 * 1_000 * RECORD_BYTES
        started = meter.cpu_s()
        seconds = load.produce_bulk(broker.bootstrap, topic, total, RECORD_BYTES)
        cpu, rate = meter.cpu_s() - started, written / seconds / 1e6
        report.add("produce, 1 KiB records, 8 partitions, acks=all", f"{rate:,.0f} MB/s ({rate / disk:.2f} of disk)")
        report.add("produce, CPU of the broker", f"{cpu / (written / GIB):.2f} s/GiB")

        started = meter.cpu_s()
        seconds = load.consume_bulk(broker.bootstrap, topic, written // RECORD_BYTES)
        cpu, rate = meter.cpu_s() - started, written / seconds / 1e6
        report.add("fetch, one consumer", f"{rate:,.0f} MB/s ({rate / loopback:.2f} of loopback)")
        report.add("fetch, CPU of the broker", f"{cpu / (written / GIB):.2f} s/GiB")
        report.add("peak resident memory under this load", f"{meter.peak_rss_mib():,.0f} MiB")

        before = meter.rss_mib()
        idle = load.open_idle(broker.bootstrap, IDLE_CONNECTIONS)
        load.create_topic(broker.bootstrap)
        after = meter.rss_mib()
        report.add(f"resident memory with {IDLE_CONNECTIONS:,} idle connections more", f"{after:,.0f} MiB")
        report.add("of that, each connection", f"{max(after - before, 0) * 1024 / IDLE_CONNECTIONS:.1f} KiB")
        for connection in idle:
            connection.close()


def measure_fetch_from_cache(report: Report, total: int) -> None:
    """What a fetch costs when no object has to be read: the difference to a cold one is the price of the disk."""
    with running_broker({"diskless.fetch.cache.max.bytes": str(2 * total)}) as broker:
        meter, topic = Meter(broker.pid), load.create_topic(broker.bootstrap)
        load.produce_bulk(broker.bootstrap, topic, total, RECORD_BYTES)
        records = total // RECORD_BYTES // 1_000 * 1_000
        started = meter.cpu_s()
        seconds = load.consume_bulk(broker.bootstrap, topic, records)
        cpu, written = meter.cpu_s() - started, records * RECORD_BYTES
    report.add("fetch, one consumer, all from the broker's cache", f"{written / seconds / 1e6:,.0f} MB/s")
    report.add("fetch from the cache, CPU of the broker", f"{cpu / (written / GIB):.2f} s/GiB")


def measure_small(report: Report, requests: int) -> None:
    """Requests of one small record, first as they are, then under the profiler."""
    with running_broker() as broker:
        meter, topic = Meter(broker.pid), load.create_topic(broker.bootstrap)
        load.produce_small(broker.bootstrap, topic, SMALL_CONNECTIONS, requests // 10, SMALL_BYTES)
        started = meter.cpu_s()
        seconds = load.produce_small(broker.bootstrap, topic, SMALL_CONNECTIONS, requests, SMALL_BYTES)
        cpu_us = (meter.cpu_s() - started) / requests * 1e6
        report.add(f"requests of one 100-byte record, {SMALL_CONNECTIONS} connections", f"{requests / seconds:,.0f}/s")
        report.add("CPU of the broker for each", f"{cpu_us:,.0f} µs")
    with tempfile.TemporaryDirectory(prefix="diskless-bench-") as folder:
        dump = Path(folder) / "profile"
        with running_broker(environ={"DISKLESS_PROFILE": str(dump)}) as broker:
            topic = load.create_topic(broker.bootstrap)
            load.produce_small(broker.bootstrap, topic, SMALL_CONNECTIONS, requests // 4, SMALL_BYTES)
        report.profile = profile_excerpt(dump)


def profile_excerpt(dump: Path) -> str:
    """The functions with the most time of their own."""
    text = io.StringIO()
    pstats.Stats(str(dump), stream=text).strip_dirs().sort_stats("tottime").print_stats(PROFILE_LINES)
    lines = text.getvalue().splitlines()
    head = next(number for number, line in enumerate(lines) if line.lstrip().startswith("ncalls"))
    return "\n".join(line.rstrip() for line in lines[head:]).rstrip()


def measure_latency(report: Report, interval_ms: int, seconds: float) -> None:
    """What a record waits at a modest rate when objects are gathered for the whole interval."""
    overrides = {
        "diskless.append.commit.interval.ms": str(interval_ms),
        "diskless.append.linger.ms": str(interval_ms),
    }
    with running_broker(overrides) as broker:
        topic = load.create_topic(broker.bootstrap)
        load.produce_paced(broker.bootstrap, topic, PACE_BYTES_S, RECORD_BYTES, 1)
        latency = load.produce_paced(broker.bootstrap, topic, PACE_BYTES_S, RECORD_BYTES, seconds)
    report.add(
        f"produce latency at 1 MiB/s, commit interval {interval_ms} ms, client's linger {load.PACED_LINGER_MS} ms",
        f"p50 {latency.p50_ms:.0f} ms, p99 {latency.p99_ms:.0f} ms",
    )


def _write(out: Path, page: str) -> None:
    """Write the page, and draw its charts where it is the project's own."""
    out.write_text(page, encoding="utf-8")
    if out == PAGE:
        drawn_files.write(PAGE.parent)


def main() -> None:
    """Measure everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=2048, help="how much to write and read in bulk")
    parser.add_argument("--requests", type=int, default=64_000, help="how many small requests to send")
    parser.add_argument("--seconds", type=float, default=15, help="how long to measure latency")
    parser.add_argument("--alone", action="store_true", help="leave out the comparison with Apache Kafka")
    parser.add_argument("--beside-mib", type=int, default=1024, help="how much each contender writes and reads")
    parser.add_argument(
        "--only", choices=sorted([*SECTIONS, BACKENDS]), help="measure this part only, and write only its section"
    )
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    arguments = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * IDLE_CONNECTIONS)), hard))

    report = Report(Console())
    if arguments.only == BACKENDS:
        report.measure_backends()
        drawn_files.write(PAGE.parent)
        report.console.print(f"wrote {PAGE.parent / 'backends.md'}")
        return
    if arguments.only:
        section = SECTIONS[arguments.only]
        page = arguments.out.read_text(encoding="utf-8")
        new = replaced(page, section.heading, report.measure(section, arguments.mib * MIB))
        _write(arguments.out, new)
        report.console.print(f"wrote a section of {arguments.out}")
        return
    disk, loopback = measure_baselines(report)
    measure_bulk(report, arguments.mib * MIB, disk, loopback)
    measure_fetch_from_cache(report, arguments.mib * MIB // 2)
    measure_small(report, arguments.requests)
    for interval_ms in (250, 10):
        measure_latency(report, interval_ms, arguments.seconds)
    if not arguments.alone:
        report.comparison = beside_kafka.compare(report.console, arguments.beside_mib * MIB)
    for section in SECTIONS.values():
        report.measure(section, arguments.mib * MIB)
    if arguments.out == PAGE:
        report.measure_backends()
    _write(arguments.out, report.markdown())
    report.console.print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
