"""Measures one Diskless coordinator, without a broker around it: `python -m tests.benchmarks.bench --only coordinator`.

Its rates stand beside what SQLite alone does with the same rows in the same transactions, in the same run.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import psutil

from diskless_core.clock import SystemClock
from diskless_core.coordinator.entries import ACCEPTANCE
from diskless_core.coordinator.shard_store import StoreThread
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.plugin.coordinator_store import TableChanges
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_sqlite.statements import TableStatements, create_table
from diskless_sqlite.store import SqliteCoordinatorStore
from tests.benchmarks.coordinator_load import (
    BATCH_BYTES,
    PARTITIONS_WRITTEN,
    RECORDS_A_BATCH,
    SHARD_ID,
    Filler,
    RecordingStore,
    as_in_a_broker,
    create_partitions,
    filled_partitions,
    in_flight,
    requests,
    running_shard,
    serve,
)
from tests.benchmarks.machine import MIB

IN_FLIGHT = 8
"""CommitFiles under way at a time: as many brokers with one each."""

BATCHES_COMMITTED = 96_000
SIZES = (10_000, 1_000_000, 5_000_000)
LOOKUPS = 400
MILLION = 1_000_000

ROUNDS = 5

Add = Callable[[str, str], None]

ABOUT = (
    "One shard in one process, with the local log and its fsync, and the SQLite store. A commit is decoded, judged, "
    "logged, applied, stored, and its answer encoded. SQLite alone inserts the same rows in the same transactions. "
    "Lookups are CPU time, of stores with one row a batch."
)


class Committed(NamedTuple):
    """A run of commits."""

    batches: int
    seconds: float
    cpu_s: float
    latencies_s: Sequence[float]
    log_bytes_each: float
    store_bytes_each: float
    rows: int
    writes: Sequence[Mapping[str, TableChanges]]

    @property
    def rate(self) -> float:
        return self.batches / self.seconds


def measure(add: Add) -> None:
    """All figures, in about two minutes."""
    as_in_a_broker()
    with tempfile.TemporaryDirectory(prefix="diskless-bench-") as folder:
        _measure_commits(add, Path(folder))
    with tempfile.TemporaryDirectory(prefix="diskless-bench-") as folder:
        asyncio.run(_measure_sizes(add, Path(folder)))


# --- commits -----------------------------------------------------------------------------------------------------


def _measure_commits(add: Add, folder: Path) -> None:
    for batches in (200, 1_600):
        for adjacent in (False, True):
            kind = "adjacent" if adjacent else "apart"
            name = f"CommitFile, {batches:,} batches over {PARTITIONS_WRITTEN} partitions, {kind}"
            place = folder / f"{batches}-{kind}"
            committed = asyncio.run(_commit(place, batches, adjacent=adjacent, idempotent=False))
            if not adjacent:  # comes first: what is adjacent is compared with it too
                raw = committed.batches / _raw_sqlite_s(folder / f"raw-{batches}.db", committed.writes)
                add(f"baseline: SQLite alone, the rows of {batches:,} batches a file, apart", f"{raw:,.0f} batches/s")
            ordered = sorted(committed.latencies_s)
            p50, p99 = (ordered[int(len(ordered) * share)] * 1e3 for share in (0.50, 0.99))
            add(name, f"{committed.rate:,.0f} batches/s ({committed.rate / raw:.2f} of SQLite alone)")
            add(f"{name}, {IN_FLIGHT} under way", f"p50 {p50:.1f} ms, p99 {p99:.1f} ms a file")
            add(f"{name}, CPU", f"{committed.cpu_s / committed.batches * 1e6:.1f} µs a batch")
            add(
                f"{name}, log and store",
                f"{committed.log_bytes_each:.0f} and {committed.store_bytes_each:.0f} bytes a batch, "
                f"{committed.rows * batches / committed.batches:,.0f} rows a file",
            )
    committed = asyncio.run(_commit(folder / "idempotent", 1_600, adjacent=True, idempotent=True))
    add(f"the same of {IN_FLIGHT} idempotent producers", f"{committed.rate:,.0f} batches/s")
    asyncio.run(_measure_recovery(add, folder / "1600-apart"))


async def _commit(folder: Path, batches: int, *, adjacent: bool, idempotent: bool) -> Committed:
    store = RecordingStore(SqliteCoordinatorStore(folder / "store"))
    producers = IN_FLIGHT if idempotent else 0
    frames = requests(BATCHES_COMMITTED // batches, batches, adjacent=adjacent, producers=producers)
    latencies: list[float] = []
    async with running_shard(folder, store=store) as shard:
        await create_partitions(shard)

        async def commit(frame: bytes) -> None:
            began = time.perf_counter()
            await serve(shard, frame)
            latencies.append(time.perf_counter() - began)

        warm_up = len(frames) // 10 // IN_FLIGHT * IN_FLIGHT
        await in_flight(IN_FLIGHT, frames[:warm_up], commit)
        await shard.flush()
        store.writes.clear()
        latencies.clear()
        rest = frames[warm_up:]
        began, cpu = time.perf_counter(), time.process_time()
        await in_flight(IN_FLIGHT, rest, commit)
        await shard.flush()
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    total = len(frames) * batches
    return Committed(
        batches=len(rest) * batches,
        seconds=seconds,
        cpu_s=cpu_s,
        latencies_s=latencies,
        log_bytes_each=_size(folder / "log") / total,
        store_bytes_each=_size(folder / "store") / total,
        rows=sum(len(change.put) for write in store.writes for change in write.values()),
        writes=store.writes,
    )


def _raw_sqlite_s(path: Path, writes: Sequence[Mapping[str, TableChanges]]) -> float:
    """Seconds for the same rows in the same transactions, with nothing else around them."""
    specs = [table.spec for table in (*DisklessMachine.tables, ACCEPTANCE)]
    statements = {spec.name: TableStatements(spec) for spec in specs}
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        for spec in specs:
            connection.execute(create_table(spec))
        began = time.perf_counter()
        for write in writes:
            connection.execute("BEGIN IMMEDIATE")
            for table, changes in write.items():
                connection.executemany(statements[table].put, changes.put)
            connection.execute("COMMIT")
        return time.perf_counter() - began


# --- recovery ----------------------------------------------------------------------------------------------------


async def _measure_recovery(add: Add, folder: Path) -> None:
    """A shard whose log has `BATCHES_COMMITTED` batches, without its store, and from a snapshot."""
    objects = MemoryWalObjectStore(SystemClock())
    snapshots = Snapshots(objects, "snapshots", SystemClock())
    began = time.perf_counter()
    async with running_shard(folder, store=SqliteCoordinatorStore(folder / "rebuilt")) as shard:
        await shard.flush()
        seconds = time.perf_counter() - began
        add("rebuild of a shard from its log", f"{BATCHES_COMMITTED / seconds:,.0f} batches/s")
        began = time.perf_counter()
        manifest = await shard.take_snapshot(snapshots)
        size = sum(part.size for part in manifest.parts)
        seconds = time.perf_counter() - began
        add(
            "taking a snapshot",
            f"{BATCHES_COMMITTED / seconds:,.0f} batches/s, {size / BATCHES_COMMITTED:.0f} bytes a batch",
        )
        specs = [table.spec for table in shard.state.tables]
    thread = StoreThread(SqliteCoordinatorStore(folder / "restored"), SHARD_ID)
    await thread.open(shard.state.tables)
    began = time.perf_counter()
    await snapshots.restore(SHARD_ID, specs, thread)
    add("restoring it", f"{BATCHES_COMMITTED / (time.perf_counter() - began):,.0f} batches/s")
    await thread.close()


# --- what grows with batches -------------------------------------------------------------------------------------


async def _measure_sizes(add: Add, folder: Path) -> None:
    filler = Filler(folder)
    costs: dict[str, list[float]] = {}
    for size in SIZES:
        filler.fill(size)
        rss = psutil.Process().memory_info().rss
        began = time.perf_counter()
        async with running_shard(folder) as shard:
            seconds = time.perf_counter() - began
            add(f"start to leading with {filler.batches:,} batches in the store", f"{seconds:.2f} s")
            for name, look_up in _lookups(shard, filler).items():
                costs.setdefault(name, []).append(await _cost_us(look_up))
            grown = psutil.Process().memory_info().rss - rss
        add(f"its resident memory, store of {_size(folder / 'store') / MIB:,.0f} MiB", f"{grown / MIB:.0f} MiB")
    for name, figures in costs.items():
        shown = ", ".join(f"{figure:,.0f}" for figure in figures)
        add(
            f"{name}, CPU at {', '.join(f'{size:,}' for size in SIZES)} batches",
            f"{shown} µs (last to first {figures[-1] / figures[0]:.2f})",
        )


def _lookups(shard: DisklessShard, filler: Filler) -> Mapping[str, Callable[[], Awaitable[object]]]:
    keys = filled_partitions()
    rnd = random.Random(1)
    ends = {key: head.next_offset for key, head in filler.heads.items()}

    def anywhere() -> tuple[int, int]:
        number = rnd.randrange(len(keys))
        return number, rnd.randrange(ends[keys[number]])

    async def find() -> None:
        number, offset = anywhere()
        found = await shard.find(keys[number], offset, 64 * BATCH_BYTES)
        if found.runs[0].last_offset < offset or found.runs[0].base_offset > offset:
            raise RuntimeError(f"FindBatches answered {found.runs[0]} for offset {offset}")

    async def by_time() -> None:
        number, timestamp = anywhere()
        found = await shard.first_run_at_or_after(keys[number], timestamp, 0)
        if found is None or found.max_timestamp - timestamp >= RECORDS_A_BATCH:
            raise RuntimeError(f"the lookup of {timestamp} found {found}")

    async def latest() -> None:
        number, _ = anywhere()
        [found] = await shard.latest_runs(keys[number])
        if found.last_offset != ends[keys[number]] - 1:
            raise RuntimeError(f"the latest run is not {found}")

    return {
        "FindBatches anywhere": find,
        "ListOffsets by timestamp": by_time,
        "ListOffsets of the greatest timestamp": latest,
    }


async def _cost_us(look_up: Callable[[], Awaitable[object]]) -> float:
    """The least of some rounds, the first of which warms up."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(LOOKUPS // ROUNDS):
            await look_up()
        rounds.append(time.process_time() - began)
    return min(rounds) / (LOOKUPS // ROUNDS) * 1e6


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
