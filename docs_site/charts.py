"""Charts of what `make bench` measured, read from docs/benchmarks.md, and the page that shows them.

A chart whose figures the page does not have is left out, as after a benchmark without Apache Kafka beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from docs_site.svg import Drawing

Rows = Mapping[str, Sequence[str]]
"""The tables of the page: what was measured → its figures, one a column."""

FOLDER = "images/benchmarks"
_PLACES = ("first", "second", "third")
_NUMBER = r"([\d,]*\.?\d+)"
_WIDTH, _BAR, _GAP = 440, 18, 14


class Bar(NamedTuple):
    """One bar. `figure` is what stands at its end, `place` its colour: first, second or third."""

    value: float
    figure: str
    place: str = "first"


class Group(NamedTuple):
    """Bars under one name."""

    name: str
    bars: Sequence[Bar]


class Chart(NamedTuple):
    """Bars from the left to the right, on one scale. `legend` names the colours where there are several."""

    name: str
    title: str
    says: str
    groups: Sequence[Group]
    legend: Sequence[str] = ()


def read_rows(page: str) -> Rows:
    """All tables of docs/benchmarks.md together."""
    lines = [line.strip().strip("|").split(" | ") for line in page.splitlines() if line.startswith("|")]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}


def charts(page: str) -> list[Chart]:
    """The charts for which docs/benchmarks.md has figures."""
    rows = read_rows(page)
    drawn = (make(rows) for make in _CHARTS)
    return [chart for chart in drawn if chart.groups]


def draw(chart: Chart) -> Drawing:
    """The picture of a chart."""
    legend = 26 if chart.legend else 0
    heights = [22 + len(group.bars) * (_BAR + 3) + _GAP for group in chart.groups]
    words = [f"{group.name}: {', '.join(bar.figure for bar in group.bars)}" for group in chart.groups]
    of = f" ({', '.join(chart.legend)})" if chart.legend else ""
    drawing = Drawing(_WIDTH, 6 + legend + sum(heights), f"{chart.title}{of}. {'; '.join(words)}.")
    _draw_legend(drawing, chart.legend)
    most = max(bar.value for group in chart.groups for bar in group.bars)
    longest = max(len(bar.figure) for group in chart.groups for bar in group.bars)
    room = _WIDTH - 18 - 8.6 * longest
    y = 4.0 + legend
    for group, height in zip(chart.groups, heights, strict=True):
        drawing.write((4, y + 14), group.name, size=14)
        for number, bar in enumerate(group.bars):
            top = y + 22 + number * (_BAR + 3)
            length = max(2.0, round(bar.value / most * room, 1))
            drawing.box(f"bar-{bar.place}", (4, top), (length, _BAR), radius=2)
            drawing.write((length + 10, top + 14), bar.figure, size=13, style="soft")
        y += height
    return drawing


def render_page(drawn: Sequence[Chart]) -> str:
    """docs/benchmarks-in-pictures.md."""
    sections = "".join(
        f"\n## {chart.title}\n\n{chart.says}\n\n![{chart.title}]({FOLDER}/{chart.name}.svg)\n" for chart in drawn
    )
    return _PREAMBLE + sections


_PREAMBLE = """\
# Benchmarks in pictures

<!-- Written by `make bench` and `make docs` from docs/benchmarks.md. -->

One machine, one broker, its clients on the same two cores. The figures, the machine and how they were measured are on
[benchmarks](benchmarks.md); `make bench` measures yours.
"""


def _draw_legend(drawing: Drawing, names: Sequence[str]) -> None:
    x = 4.0
    for place, name in zip(_PLACES, names, strict=False):
        drawing.box(f"bar-{place}", (x, 5), (13, 13), radius=2)
        drawing.write((x + 18, 16), name, size=13)
        x += 32 + 8 * len(name)


def _number(text: str, unit: str) -> tuple[float, str] | None:
    """The first number of a figure that has this unit, and how it is written."""
    found = re.search(rf"{_NUMBER} ?({unit})", text)
    if not found:
        return None
    return float(found[1].replace(",", "")), f"{found[1]}{'' if found[2].startswith('/') else ' '}{found[2]}"


def _group(rows: Rows, row: str, unit: str, name: str | None = None) -> Iterator[Group]:
    """The figures of a row that have this unit, one bar for each column; nothing if the row is not there."""
    found = [_number(cell, unit) for cell in rows.get(row, ())]
    bars = [Bar(number[0], number[1], place) for number, place in zip(found, _PLACES, strict=False) if number]
    if bars:
        yield Group(name or row, bars)


_BESIDE = ("Diskless", "Apache Kafka", "Kafka, synced")
_MANY = "librdkafka producer, 1,000 partitions"
_STREAMS = ("librdkafka producer", "librdkafka consumer", "Java producer", "Java consumer", _MANY)


def _throughput(rows: Rows) -> Chart:
    groups = [group for row in _STREAMS for group in _group(rows, row, "MB/s")]
    says = (
        "One client with records of 1 KiB; longer is better. Diskless acknowledges what is synced to disk. Apache "
        "Kafka acknowledges what is in the page cache, and with `log.flush.interval.messages=1` what is synced."
    )
    return Chart("throughput", "Throughput beside Apache Kafka", says, groups, _BESIDE)


def _cpu(rows: Rows) -> Chart:
    groups = [group for row in _STREAMS if row != _MANY for group in _group(rows, row, "CPU-s/GiB")]
    says = "Processor time of the broker for each GiB; shorter is better."
    return Chart("cpu", "CPU beside Apache Kafka", says, groups, _BESIDE)


def _cpu_of_many_partitions(rows: Rows) -> Chart:
    groups = list(_group(rows, _MANY, "CPU-s/GiB"))
    says = (
        "The same where records are spread over 1,000 partitions. Diskless puts batches of all of them into one "
        "object; Apache Kafka has files for each."
    )
    return Chart("cpu-many-partitions", "CPU with 1,000 partitions", says, groups, _BESIDE)


def _small(rows: Rows) -> Chart:
    groups = list(_group(rows, "200 connections, one small record a request", r"/s(?!\w)", "200 connections"))
    says = "Requests a second, each with one small record, the hardest case for a broker in Python; longer is better."
    return Chart("small-requests", "Small requests beside Apache Kafka", says, groups, _BESIDE)


def _start(rows: Rows) -> Chart:
    groups = list(_group(rows, "start to first record", "s(?!\\w)"))
    says = "From the command to the first record that is acknowledged; shorter is better."
    return Chart("start", "Start to first record", says, groups, _BESIDE)


def _memory(rows: Rows) -> Chart:
    groups = list(_group(rows, "peak resident memory", "MiB"))
    says = "The most memory that the broker had during all of these; shorter is better."
    return Chart("memory", "Memory beside Apache Kafka", says, groups, _BESIDE)


def _latency(rows: Rows) -> Chart:
    groups = []
    for row, cells in rows.items():
        interval = re.match(r"produce latency at 1 MiB/s, commit interval (\d+) ms", row)
        figures = re.match(rf"p50 {_NUMBER} ms, p99 {_NUMBER} ms", cells[0] if cells else "")
        if interval and figures:
            bars = [Bar(float(figures[1]), f"{figures[1]} ms"), Bar(float(figures[2]), f"{figures[2]} ms", "second")]
            groups.append(Group(f"commit interval {interval[1]} ms", bars))
    says = (
        "From a record's way into the client to its acknowledgement, at 1 MiB/s. The "
        "[commit interval](operations.md#latency-and-cost) is the longest that data is gathered for one object."
    )
    return Chart("latency", "Produce latency", says, groups, ("median", "99th percentile"))


def _commits(rows: Rows) -> Chart:
    named = {
        "baseline: SQLite alone, the rows of 1,600 batches a file, apart": ("SQLite alone, the same rows", "second"),
        "CommitFile, 1,600 batches over 640 partitions, apart": ("1,600 batches an object, apart", "first"),
        "CommitFile, 1,600 batches over 640 partitions, adjacent": ("1,600 batches an object, adjacent", "first"),
        "CommitFile, 200 batches over 640 partitions, apart": ("200 batches an object, apart", "first"),
        "rebuild of a shard from its log": ("rebuild of a shard from its log", "first"),
    }
    groups = [group for row, (name, place) in named.items() for group in _single(rows, row, "batches/s", name, place)]
    says = (
        "Batches that one coordinator commits a second, logged with an fsync and stored, beside SQLite that only "
        "inserts the same rows; longer is better."
    )
    return Chart("commits", "Commits of a coordinator", says, groups)


def _lookups(rows: Rows) -> Chart:
    groups = []
    for row, cells in rows.items():
        sizes = re.match(r"(.+?)(?: anywhere)?, CPU at ([\d,]+), ([\d,]+), ([\d,]+) batches$", row)
        found = re.match(r"(\d+), (\d+), (\d+) µs", cells[0] if cells else "")
        if sizes and found:
            counts = [f"{int(sizes[place].replace(',', '')):,}" for place in (2, 3, 4)]
            bars = [
                Bar(float(found[place + 1]), f"{found[place + 1]} µs, {counts[place]} batches", _PLACES[place])
                for place in range(3)
            ]
            groups.append(Group(sizes[1], bars))
    says = "Processor time of one lookup while the store grows five-hundredfold; shorter is better."
    return Chart("lookups", "Lookups in stores of three sizes", says, groups)


def _compaction(rows: Rows) -> Chart:
    wanted = {
        "compaction, 64 partitions": ("in the broker, one core, 64 partitions", "first"),
        "compaction, 1,000 partitions": ("in the broker, one core, 1,000 partitions", "first"),
        "Spark compaction, 64 partitions": ("Spark, two cores, 64 partitions", "second"),
        "Spark compaction, 1,000 partitions": ("Spark, two cores, 1,000 partitions", "second"),
        "replay from segments, one librdkafka consumer": ("replay from segments, one consumer", "third"),
    }
    groups = [group for row, (name, place) in wanted.items() for group in _single(rows, row, "MB/s", name, place)]
    return Chart("compaction", "Compaction and replay", "Bytes of records a second; longer is better.", groups)


def _spark(rows: Rows) -> Chart:
    wanted = {
        "Spark reads the same rows in Parquet": ("Parquet, for comparison", "third"),
        "Spark reads segments": ("Diskless, segments", "first"),
        "Spark reads WAL objects": ("Diskless, WAL objects", "first"),
        "a loop with librdkafka": ("a loop with librdkafka", "second"),
        "Spark's Kafka source through the broker": ("Spark's Kafka source", "second"),
    }
    groups = [
        group for row, (name, place) in wanted.items() for group in _single(rows, row, "million records/s", name, place)
    ]
    says = "Ten million records of 100 bytes as a DataFrame, in millions a second; longer is better."
    return Chart("spark", "Topics as DataFrames", says, groups)


def _single(rows: Rows, row: str, unit: str, name: str, place: str) -> Iterator[Group]:
    """The first figure of a row, in a colour of its own."""
    number = _number(rows[row][0], unit) if rows.get(row) else None
    if number:
        yield Group(name, [Bar(number[0], number[1], place)])


_CHARTS: Sequence[Callable[[Rows], Chart]] = (
    _throughput,
    _cpu,
    _cpu_of_many_partitions,
    _small,
    _start,
    _memory,
    _latency,
    _commits,
    _lookups,
    _compaction,
    _spark,
)
