"""Coordinator stores beside each other, each in a process of its own: `python -m tests.benchmarks.bench --only stores`.

What is written is what a coordinator wrote for CommitFiles, recorded once and given to each store. Reads are those of
FindBatches.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from diskless_core.coordinator.entries import ACCEPTANCE
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.diskless.tables import BATCHES
from diskless_core.plugin.coordinator_store import CoordinatorStore, ShardStore, TableChanges
from diskless_rocksdb.store import RocksdbCoordinatorStore
from diskless_sqlite.store import SqliteCoordinatorStore
from tests.benchmarks.coordinator_load import (
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
from tests.benchmarks.meter import Meter

ABOUT = (
    "Stores with their default settings, in one run, each in a process of its own. The rows are those that a "
    "coordinator wrote for CommitFiles of 1,600 batches over 640 partitions, in the same transactions, the best of "
    "some rounds on empty stores. CPU is that of the whole process, with RocksDB's own threads. A scan is that of "
    "FindBatches: the batch that has an offset, and up to 64 from there on, anywhere in a store with one row a batch. "
    "To open a store includes the first row read."
)

STORES: Mapping[str, Callable[[Path], CoordinatorStore]] = {
    "sqlite": SqliteCoordinatorStore,
    "rocksdb": RocksdbCoordinatorStore,
}
BATCHES_COMMITTED = 96_000
BATCHES_A_FILE = 1_600
IN_FLIGHT = 8
SIZES = (10_000, 1_000_000, 5_000_000)
ROUNDS = 3
SCANS = 2_000
SCANNED = 64

Add = Callable[[str, str], None]
Writes = Sequence[Mapping[str, TableChanges]]


class Sizes(NamedTuple):
    """How much to measure."""

    batches_committed: int = BATCHES_COMMITTED
    batches_stored: Sequence[int] = SIZES


class Scans(NamedTuple):
    """Scans of a store of some size."""

    cpu_us: float
    p50_us: float
    p99_us: float


class Figures(NamedTuple):
    """What one store did."""

    rows_s: float
    cpu_us_a_row: float
    cpu_ms_a_flush: float
    rows_a_flush: float
    scans: Sequence[Scans]
    open_s: float
    disk_mib: float
    began_mib: float
    peak_mib: float


def measure(add: Add, sizes: Sizes = Sizes()) -> None:  # noqa: B008
    """All figures, in about two minutes."""
    with tempfile.TemporaryDirectory(prefix="diskless-bench-") as name:
        folder = Path(name)
        _alone(_record, folder, sizes)
        figures = {store: _alone(_measure, folder, store, sizes) for store in STORES}
    _tell(add, figures, sizes)


def _tell(add: Add, figures: Mapping[str, Figures], sizes: Sizes) -> None:
    sqlite, rocksdb = figures["sqlite"], figures["rocksdb"]
    ratio = rocksdb.rows_s / sqlite.rows_s
    add("rows of CommitFiles, rocksdb beside sqlite", f"{ratio:.1f} times as many rows/s")
    for name, one in figures.items():
        add(f"{name}, rows of CommitFiles", f"{one.rows_s:,.0f} rows/s, {one.cpu_us_a_row:.1f} µs of CPU each")
        add(f"{name}, CPU of a flush of {one.rows_a_flush:,.0f} rows", f"{one.cpu_ms_a_flush:.1f} ms")
        for size, scans in zip(sizes.batches_stored, one.scans, strict=True):
            shown = f"{scans.cpu_us:,.0f} µs of CPU, p50 {scans.p50_us:,.0f} µs, p99 {scans.p99_us:,.0f} µs"
            add(f"{name}, FindBatches at {size:,} batches", shown)
        last = f"{sizes.batches_stored[-1]:,} batches"
        add(f"{name}, opening {last}", f"{one.open_s:.2f} s, {one.disk_mib:,.0f} MiB on disk")
        add(f"{name}, peak memory", f"{one.peak_mib:,.0f} MiB, of which {one.began_mib:,.0f} MiB before it was opened")


def _alone(work: Callable[..., Any], *arguments: object) -> Any:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


# --- in processes of their own -----------------------------------------------------------------------------------


def _record(folder: Path, sizes: Sizes) -> None:
    """Have a coordinator commit, and keep what it writes to its store."""
    as_in_a_broker()
    store = RecordingStore(SqliteCoordinatorStore(folder / "recorded"))

    async def commit() -> None:
        async with running_shard(folder / "recording", store=store) as shard:
            frames = requests(sizes.batches_committed // BATCHES_A_FILE, BATCHES_A_FILE, adjacent=False, producers=0)
            await create_partitions(shard)
            await in_flight(IN_FLIGHT, frames, lambda frame: serve(shard, frame))
            await shard.flush()

    asyncio.run(commit())
    (folder / "writes").write_bytes(pickle.dumps(store.writes))


def _measure(folder: Path, name: str, sizes: Sizes) -> Figures:
    as_in_a_broker()
    make = STORES[name]
    writes: Writes = pickle.loads((folder / "writes").read_bytes())
    rows = sum(len(change.put) + len(change.delete) for write in writes for change in write.values())
    rounds = [_write_all(make(folder / f"{name}-{number}"), writes) for number in range(ROUNDS)]
    wall_s, cpu_s = min(wall for wall, _ in rounds), min(cpu for _, cpu in rounds)
    flushes = len(writes)
    del writes

    meter, place = Meter(os.getpid()), folder / f"{name}-filled"
    began_mib = meter.rss_mib()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak counts from here on
    filler, scans = Filler(place, make(place)), []
    for size in sizes.batches_stored:
        filler.fill(size)
        with closing(_open(make(place))) as store:
            scans.append(_scan(store, filler))
    began = time.perf_counter()
    with closing(_open(make(place))) as store:
        store.scan(BATCHES.name, limit=1)
        open_s = time.perf_counter() - began
    disk = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    return Figures(
        rows_s=rows / wall_s,
        cpu_us_a_row=cpu_s / rows * 1e6,
        cpu_ms_a_flush=cpu_s / flushes * 1e3,
        rows_a_flush=rows / flushes,
        scans=scans,
        open_s=open_s,
        disk_mib=disk / MIB,
        began_mib=began_mib,
        peak_mib=meter.peak_rss_mib(),
    )


def _open(backend: CoordinatorStore) -> ShardStore:
    return backend.open(SHARD_ID, [table.spec for table in (*DisklessMachine.tables, ACCEPTANCE)])


def _write_all(backend: CoordinatorStore, writes: Writes) -> tuple[float, float]:
    """Seconds, and seconds of CPU, until all is written. What RocksDB still does then counts as CPU."""
    began_cpu = time.process_time()
    with closing(_open(backend)) as store:
        began = time.perf_counter()
        for offset, changes in enumerate(writes, 1):
            store.write(changes, offset)
        seconds = time.perf_counter() - began
    return seconds, time.process_time() - began_cpu


def _scan(store: ShardStore, filler: Filler) -> Scans:
    keys, rnd = filled_partitions(), random.Random(1)
    took: list[float] = []
    for warm_up in (True, False):
        took.clear()
        cpu = time.process_time()
        for _ in range(SCANS // 10 if warm_up else SCANS):
            topic_id, partition = keys[rnd.randrange(len(keys))]
            offset = rnd.randrange(filler.heads[keys[partition]].next_offset)
            began = time.perf_counter()
            _find(store, topic_id, partition, offset)
            took.append(time.perf_counter() - began)
        cpu = time.process_time() - cpu
    took.sort()
    p50, p99 = (took[int(len(took) * share)] * 1e6 for share in (0.50, 0.99))
    return Scans(cpu / SCANS * 1e6, p50, p99)


def _find(store: ShardStore, topic_id: bytes, partition: int, offset: int) -> None:
    key, behind = (topic_id, partition), (topic_id, partition + 1)
    [row] = store.scan(BATCHES.name, key, (*key, offset + 1), limit=1, reverse=True)
    if row[2] != offset // RECORDS_A_BATCH * RECORDS_A_BATCH:
        raise RuntimeError(f"offset {offset} is in {row}")
    store.scan(BATCHES.name, row[:3], behind, limit=SCANNED)
