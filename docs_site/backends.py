"""The page of all backends that ship, docs/backends.md: what is known of each in words, and what one run measured.

The words stand here and nowhere else. `make bench ONLY=backends` writes the figures and draws the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskless_core.plugin_host.nouns import NOUNS
from diskless_core.trial.bench.load import ARITHMETIC

FILE = Path(__file__).parent / "backend_figures.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A row of the page: a backend in a place that it can keep things in.

    Attributes:
        place: tells rows of one backend apart; empty where it has one row.
        durability: what survives when it has acknowledged.
        cost: what it makes an operator pay for.
        needs: what has to be there.
        elsewhere: the page that has its figures, where it is not measured alone.
    """

    noun: str
    name: str
    place: str = ""
    durability: str
    cost: str
    needs: str
    elsewhere: str = ""

    @property
    def key(self) -> str:
        """Its name among the figures."""
        return f"{self.noun}.{self.name}" + (f" ({self.place})" if self.place else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured of a row.

    Attributes:
        measures: as `diskless plugins bench` names them.
        memory_mib: by how much the peak of resident memory grew.
        missing: why it could not be measured; empty where it was.
    """

    measures: Mapping[str, float]
    memory_mib: float
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the benchmark.

    Attributes:
        machine: what it ran on, in a line.
        date: year, month and day.
        figures: by the rows' keys.
    """

    machine: str
    date: str
    figures: Mapping[str, Figures]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the page shows of a noun.

    Attributes:
        about: how it was measured.
        latencies: label and the measures' name before `, p50 ms`.
        rates: label and name of a measure, and what stands behind the number.
    """

    about: str
    latencies: Sequence[tuple[str, str]] = ()
    rates: Sequence[tuple[str, str, str]] = ()


_IN_S3 = "that of the bucket: on Amazon S3, three availability zones"
_IN_A_FOLDER = "synced to the disk; lost with the disk"
_IN_AZURE = "that of the storage account: LRS is three copies in one data centre, ZRS three zones"
_EMULATED = "a container; see [Azure](azure.md). Measured on Azurite, in memory"
_CACHE = "a cache: what a power failure takes from it, the coordinator log still has"
_STATELESS = "keeps nothing"
_BUCKET_NEEDS = "a bucket with conditional writes; see [the bucket log](bucket_log.md). Measured on versitygw"

BACKENDS: Sequence[Backend] = (
    Backend(
        noun="coordinator_log",
        name="local",
        durability="synced to this node's disk; lost with the disk",
        cost="no request, nothing to run",
        needs="a disk that outlives the broker; one broker only",
    ),
    Backend(
        noun="coordinator_log",
        name="bucket",
        place="files",
        durability=_IN_A_FOLDER,
        cost="no request is billed; a file for each append",
        needs="a folder that all brokers of one host share",
    ),
    Backend(
        noun="coordinator_log",
        name="bucket",
        place="S3, 20 ms added, no linger",
        durability=_IN_S3,
        cost="a PUT for each append, and GETs: [prices](bucket_log.md#what-it-costs)",
        needs=f"{_BUCKET_NEEDS}, with `linger.ms=0`",
    ),
    Backend(
        noun="coordinator_log",
        name="bucket",
        place="S3, 20 ms added, default linger",
        durability=_IN_S3,
        cost="a PUT every 250 ms for each shard at most, and GETs: [prices](bucket_log.md#what-it-costs)",
        needs=_BUCKET_NEEDS,
    ),
    Backend(
        noun="coordinator_log",
        name="kafka",
        durability="on two or three brokers of that Kafka, which sync to disk as they are set to",
        cost="no request is billed; three Kafka brokers to run",
        needs="an Apache Kafka, 3.x or newer; see [the log in a Kafka](kafka_log.md). Measured on one broker of it",
    ),
    Backend(
        noun="coordinator_log",
        name="postgres",
        durability="a commit that is synced to the server's disk, and to its synchronous replicas where it has any",
        cost="no request is billed; a PostgreSQL to run",
        needs="`diskless-postgres`, PostgreSQL 14 or newer; see [the log in PostgreSQL](postgres_log.md). Measured "
        "without a replica",
    ),
    Backend(
        noun="coordinator_store",
        name="sqlite",
        durability=_CACHE,
        cost="disk space of each broker",
        needs="nothing",
    ),
    Backend(
        noun="coordinator_store",
        name="rocksdb",
        durability=_CACHE,
        cost="disk space of each broker, compressed; CPU of its own threads",
        needs="`diskless-rocksdb`; see [State in RocksDB](rocksdb.md)",
    ),
    Backend(
        noun="wal_object_store",
        name="fsspec",
        place="files",
        durability=_IN_A_FOLDER,
        cost="no request is billed",
        needs="a folder, shared where there are several brokers",
    ),
    Backend(
        noun="wal_object_store",
        name="fsspec",
        place="S3",
        durability=_IN_S3,
        cost="a PUT for each object, a GET for each read: [prices](cluster.md#what-it-costs)",
        needs="`diskless[s3]`, a bucket. Measured on versitygw",
    ),
    Backend(
        noun="wal_object_store",
        name="obstore",
        durability=_IN_S3,
        cost="the requests of fsspec in S3, for less CPU time of the broker",
        needs="`diskless-obstore`, a bucket; see [obstore](obstore.md). Measured on versitygw",
    ),
    Backend(
        noun="wal_object_store",
        name="azure",
        durability=_IN_AZURE,
        cost="a write operation for each object, a read operation for each read: [prices](azure.md#costs)",
        needs=f"`diskless-azure`, {_EMULATED}",
    ),
    Backend(
        noun="offset_assignment",
        name="sequential",
        durability=_STATELESS,
        cost="nothing",
        needs="nothing",
    ),
    Backend(
        noun="gateway_placement",
        name="kip1164",
        durability=_STATELESS,
        cost="nothing",
        needs="nothing",
    ),
    Backend(
        noun="gateway_placement",
        name="rendezvous",
        durability=_STATELESS,
        cost="nothing",
        needs="nothing",
    ),
    Backend(
        noun="orphan_detection",
        name="listing",
        durability=_STATELESS,
        cost="lists all WAL objects: in S3 a LIST for each thousand",
        needs="nothing",
        elsewhere="as quick as the object store lists",
    ),
    Backend(
        noun="orphan_detection",
        name="spark",
        durability=_STATELESS,
        cost="reads an inventory of the bucket, or lists it; executors to run",
        needs="`diskless-spark`; see [Spark](spark.md#orphans)",
        elsewhere="[Orphans at scale](benchmarks.md#orphans-at-scale)",
    ),
    Backend(
        noun="remote_storage",
        name="fsspec",
        place="files",
        durability=_IN_A_FOLDER,
        cost="no request is billed",
        needs="a folder, shared where there are several brokers",
    ),
    Backend(
        noun="remote_storage",
        name="fsspec",
        place="S3",
        durability=_IN_S3,
        cost="PUTs for the parts of a segment and its indexes, a GET for each read",
        needs="`diskless[s3]`, a bucket. Measured on versitygw",
    ),
    Backend(
        noun="remote_storage",
        name="azure",
        durability=_IN_AZURE,
        cost="a write operation for each 8 MiB and each index, a read operation for each read: "
        "[prices](azure.md#costs)",
        needs=f"`diskless-azure`, {_EMULATED}",
    ),
    Backend(
        noun="remote_log_metadata",
        name="coordinator",
        durability="that of the coordinator log",
        cost="an entry of the coordinator log for each change",
        needs="nothing. Measured with a coordinator in memory: an append of the log comes on top",
    ),
    Backend(
        noun="remote_log_metadata",
        name="kafka",
        durability="on two or three brokers of that Kafka, which sync to disk as they are set to",
        cost="no request is billed; three Kafka brokers to run",
        needs="an Apache Kafka, which can read the segments too; see [Leaving for Kafka](leaving-for-kafka.md). "
        "Measured on one broker of it",
    ),
    Backend(
        noun="segment_compaction",
        name="inline",
        durability="that of the remote storage",
        cost="CPU and memory of the broker; each byte is read once and written once",
        needs="nothing",
        elsewhere="[Tiered storage](benchmarks.md#tiered-storage)",
    ),
    Backend(
        noun="segment_compaction",
        name="spark",
        durability="that of the remote storage",
        cost="executors to run; each byte is read once and written once",
        needs="`diskless-spark`; see [Spark](spark.md#compact-with-spark)",
        elsewhere="[Spark](benchmarks.md#spark)",
    ),
)
"""All backends that ship, those of one noun in the order of their rows."""

SHOWN: Mapping[str, Shown] = {
    "coordinator_log": Shown(
        about="Entries of 300 bytes. One pending append is one at a time. A thousand pending appends are what a "
        "coordinator hands to its log at once when so many commands have waited; their latency is that until all are "
        "durable.",
        latencies=[("1 pending", "append, 1 pending"), ("1,000 pending", "append, 1,000 pending")],
        rates=[
            ("1 pending", "appends/s, 1 pending", "/s"),
            ("1,000 pending", "entries/s, 1,000 pending", "/s"),
        ],
    ),
    "coordinator_store": Shown(
        about="A commit is that of an object with batches of 100 partitions. A scan is for 20 batches anywhere in the "
        "store. `make bench ONLY=stores` compares both stores at 10 thousand to 5 million batches.",
        latencies=[("commit", "commit of 100 rows"), ("scan", "scan of 20 batches")],
        rates=[("rows", "rows of commits/s", "/s"), ("scans", "scans/s of 20 batches", "/s")],
    ),
    "wal_object_store": Shown(
        about="Puts of 8 MiB, four at once; gets of 1 MiB, sixteen at once.",
        latencies=[("put", "put of 8 MiB"), ("get", "get of 1 MiB")],
        rates=[("puts", "puts of 8 MiB, MB/s", " MB/s"), ("gets", "gets of 1 MiB, MB/s", " MB/s")],
    ),
    "offset_assignment": Shown(
        about="A call gives offsets to a batch.", latencies=[("call", "call")], rates=[("calls", "calls/s", "/s")]
    ),
    "gateway_placement": Shown(
        about="A call places 16 coordinators on 12 brokers in three racks. A broker asks when one of them changes.",
        latencies=[("call", "call")],
        rates=[("calls", "calls/s", "/s")],
    ),
    "orphan_detection": Shown(about="Not measured alone: what a detector does is bounded by what it reads."),
    "remote_storage": Shown(
        about="Copies of segments of 16 MiB, one at a time; reads of 1 MiB, sixteen at once.",
        latencies=[("copy", "copy of 16 MiB"), ("read", "fetch of 1 MiB")],
        rates=[("copies", "copies of 16 MiB, MB/s", " MB/s"), ("reads", "fetches of 1 MiB, MB/s", " MB/s")],
    ),
    "remote_log_metadata": Shown(
        about="Segments are noted, and found, one at a time.",
        latencies=[("noted", "segment noted"), ("found", "look-up")],
        rates=[("noted", "segments noted/s", "/s"), ("found", "look-ups/s", "/s")],
    ),
    "segment_compaction": Shown(
        about="Not measured alone: what an engine does is bounded by what it reads and writes."
    ),
}

_ABOUT = (
    "All backends that ship, kind by kind. Durability, cost and needs are those of a broker's default settings. "
    "Latency, throughput and memory come from one run, `make bench ONLY=backends`, on one machine, which ran the "
    "backends' servers too:"
)
_HOW = (
    "Each backend was measured at what a broker asks of it, as `diskless plugins bench` does, in a process of its "
    "own. A figure is the median of three rounds after a warm-up; p50 and p99 are those within a round. Memory is by "
    "how much the peak of that process's resident memory grew: client libraries and buffers are in it, servers are "
    "not. A server on the same machine answers sooner than a service across a network: "
    "[try yours](trying_a_backend.md#how-quick-it-is)."
)
_COLUMNS = ("Backend", "Durability", "Cost", "Latency, p50 / p99", "Throughput", "Memory", "What it needs")
_NOTHING = "-"
_NO_BREAK = "\N{NO-BREAK SPACE}"
_LINE_END = " <br> "
"""With spaces, or the words around it would count as one long word, which the site may break."""
_UNITS_MS = ((1000.0, "s", 1000.0), (1.0, "ms", 1.0), (0.0, "µs", 0.001))
"""From so many milliseconds on, a unit, and how many milliseconds one is."""


def read(file: Path = FILE) -> Run:
    """The last run."""
    said: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    figures = {key: Figures(**one) for key, one in said["figures"].items()}
    return Run(machine=said["machine"], date=said["date"], figures=figures)


def write(run: Run, file: Path = FILE) -> None:
    """Keep a run, of which the page is drawn from then on."""
    figures = {
        key: {"measures": dict(one.measures), "memory_mib": one.memory_mib, "missing": one.missing}
        for key, one in run.figures.items()
    }
    said = {"machine": run.machine, "date": run.date, "figures": figures}
    file.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def render(run: Run, backends: Sequence[Backend] = BACKENDS) -> str:
    """The whole page. A row that has no figures says why."""
    parts = [
        "# Backends compared",
        "<!-- Written by `make bench ONLY=backends`; the words are in docs_site/backends.py. -->",
        _ABOUT,
        f"> {run.machine}; {run.date}",
        _HOW,
        ARITHMETIC,
    ]
    for noun in NOUNS:
        rows = [one for one in backends if one.noun == noun]
        if rows:
            shown = SHOWN[noun]
            parts += [f"## {noun}", f"{NOUNS[noun].help} [More](plugins/{noun}.md)", shown.about]
            parts.append(_table(rows, shown, run.figures))
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[Backend], shown: Shown, figures: Mapping[str, Figures]) -> str:
    lines = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    for row in rows:
        name = f"`{row.name}`" + (f", {row.place}" if row.place else "")
        cells = [name, row.durability, row.cost, *_measured(row, shown, figures.get(row.key)), row.needs]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _measured(row: Backend, shown: Shown, found: Figures | None) -> tuple[str, str, str]:
    if row.elsewhere:
        return row.elsewhere, _NOTHING, _NOTHING
    if found is None or found.missing:
        reason = "not measured yet" if found is None else f"not measured: {_in_a_cell(found.missing)}"
        return reason, _NOTHING, _NOTHING
    latencies = [_labelled(label, f"{_p(50, name, found)} / {_p(99, name, found)}") for label, name in shown.latencies]
    rates = [_labelled(label, f"{number(found.measures[name])}{unit}") for label, name, unit in shown.rates]
    return _LINE_END.join(latencies), _LINE_END.join(rates), f"{max(found.memory_mib, 0):,.0f} MiB"


def _p(percent: int, name: str, found: Figures) -> str:
    return duration(found.measures[f"{name}, p{percent} ms"])


def _labelled(label: str, figure: str) -> str:
    """Both in a line of a cell, or each in one of its own: neither is torn apart."""
    kept = figure.replace(" ", _NO_BREAK)
    return f"{label.replace(' ', _NO_BREAK)}: {kept}"


def duration(milliseconds: float) -> str:
    """Milliseconds in the unit that they are read in best."""
    unit, size = next((unit, size) for least, unit, size in _UNITS_MS if milliseconds >= least)
    return f"{number(milliseconds / size)} {unit}"


def number(value: float) -> str:
    """Two digits that count, or as many as there are before the point."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _in_a_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
