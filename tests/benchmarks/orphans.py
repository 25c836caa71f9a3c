"""Orphan detection with Spark: an inventory of millions of objects against what the coordinators' snapshots know."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from crc32c import crc32c
from pydantic import SecretStr

from diskless_core.clock import SystemClock
from diskless_core.diskless.tables import DEAD_FILES, FILES, GONE_FILES, LIVE_FILES, RECEIVED_FILES
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.orphan_detection import OrphanSearch
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import RecordData
from diskless_core.shards import DISKLESS
from diskless_core.snapshot import format as snapshot_format
from diskless_core.snapshot import reading
from diskless_core.snapshot.format import BATCH_ROWS, PART_BYTES, Manifest, Part
from diskless_core.snapshot.reading import FolderName
from diskless_core.wal.format import object_key
from diskless_fsspec.local_store import LocalObjectStore
from diskless_spark.orphans.config import SparkOrphanSettings
from diskless_spark.orphans.detection import SparkDetection
from diskless_spark.session import spark_session
from tests.benchmarks.machine import MIB
from tests.benchmarks.process_memory import ProcessMemory
from tests.support.inventories import PARQUET_NAMES, write_manifest
from tests.support.spark import settings as spark_settings
from tests.support.spark import spark_environment

ABOUT = (
    "The detector `spark` in `local[2]`, with Spark's default heap of 1 GiB. It reads an S3 Inventory in Parquet and "
    "the snapshots of two coordinators, which know all objects but one in a thousand, as live files; it looks for "
    "each of the others in the bucket. All are files of one folder. Without the start of the session."
)
KEYS = 10_000_000
SHARDS = 2
ORPHANS_EACH = 1_000
INVENTORY_FILE_KEYS = 500_000
_DAY_MS = 86_400_000
_ANSWER = bytes(64)
_ZSTD = 4
_LOG = FolderName(uuid.UUID(int=1), None)

Add = Callable[[str, str], None]


def measure(add: Add, keys: int = KEYS) -> None:
    """All of it, with so many objects in the bucket."""
    with tempfile.TemporaryDirectory(prefix="diskless-bench-") as name:
        folder = Path(name)
        orphans, snapshot_bytes = _make(folder, keys)
        os.environ.update(spark_environment())
        with ProcessMemory(os.getpid()) as memory:
            found, seconds = asyncio.run(_found(folder))
    if found != orphans:
        raise RuntimeError(f"{found} candidates were found, and {orphans} objects are unknown")
    name = f"orphan anti-join, {keys:,} objects"
    add(name, f"{seconds:.0f} s, {keys / seconds:,.0f} objects/s; snapshots of {snapshot_bytes / MIB:,.0f} MiB")
    add(f"{name}, memory at its peak", str(memory))


async def _found(folder: Path) -> tuple[int, float]:
    """How many candidates there are, and in how many seconds they were found, once a session was there."""
    conf = {**spark_settings(folder), "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "200"}
    settings = SparkOrphanSettings(
        master="local[2]", conf=SecretStr(json.dumps(conf)), inventory_url=f"file://{folder / 'inventory'}"
    )
    context = PluginContext(node_id=1, data_dir=folder, log_dir=folder, clock=SystemClock())
    objects = partial(LocalObjectStore, folder, node_id=1, clock=SystemClock())
    search = OrphanSearch(
        prefix="wal/",
        threshold_ms=SystemClock().now_ms(),
        list_objects=objects().list,
        objects=objects,
        snapshot_prefix="wal-snapshots",
        note_listed=lambda _: None,
    )
    async with spark_session(settings.session()):
        began = time.monotonic()
        found = sum([len(page) async for page in SparkDetection(context, settings).find(search)])
        return found, time.monotonic() - began


# --- what is there -----------------------------------------------------------------------------------------------


def _make(folder: Path, keys: int) -> tuple[int, int]:
    """An inventory and snapshots; how many orphans there are, and the size of the snapshots."""
    now_ms, orphans = SystemClock().now_ms(), 0
    writer = _SnapshotWriter(folder)
    files = []
    (folder / "inventory" / "data").mkdir(parents=True)
    random = np.random.default_rng(1)
    for start in range(0, keys, INVENTORY_FILE_KEYS):
        count = min(INVENTORY_FILE_KEYS, keys - start)
        ids = random.bytes(16 * count)
        names = sorted(
            object_key(
                "wal", now_ms - _DAY_MS - (start + n) % (30 * _DAY_MS), uuid.UUID(bytes=ids[n * 16 : n * 16 + 16])
            )
            for n in range(count)
        )
        files.append(_write_inventory_file(folder / "inventory", names))
        orphans += len(names[::ORPHANS_EACH])
        for name in names[::ORPHANS_EACH]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"object")
        del names[::ORPHANS_EACH]
        writer.add(names)
    write_manifest(folder / "inventory", files, created_ms=now_ms)
    return orphans, writer.finish(now_ms)


def _write_inventory_file(folder: Path, names: Sequence[str]) -> Path:
    bucket, key, _, is_latest, is_marker, size, _ = PARQUET_NAMES
    count = len(names)
    columns = {
        bucket: pa.repeat("bucket", count),
        key: pa.array(names, pa.string()),
        is_latest: pa.repeat(True, count),
        is_marker: pa.repeat(False, count),
        size: pa.repeat(8 * MIB, count),
    }
    path = folder / "data" / f"{len(list((folder / 'data').iterdir()))}.parquet"
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


def _stem(shard: int) -> str:
    return reading.stem("wal-snapshots", DISKLESS.shard(shard), _LOG, 1, uuid.UUID(int=1))


class _SnapshotWriter:
    """Writes what shards know, in the form of their snapshots, in the order in which it comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts: list[list[Part]] = [[] for _ in range(SHARDS)]
        self._buffers = [bytearray() for _ in range(SHARDS)]

    def add(self, names: Sequence[str]) -> None:
        for shard in range(SHARDS):
            mine = names[shard::SHARDS]
            for start in range(0, len(mine), BATCH_ROWS):
                page = mine[start : start + BATCH_ROWS]
                self._put(shard, FILES.name, [(name, 1, 8 * MIB, 1, "0", 0, bytes(16), _ANSWER) for name in page])
                self._put(shard, LIVE_FILES.name, [(name, 1, 0, "0") for name in page])

    def finish(self, taken_at: int) -> int:
        for shard, parts in enumerate(self._parts):
            self._end_part(shard)
            tables = [table.spec for table in (FILES, LIVE_FILES, DEAD_FILES, RECEIVED_FILES, GONE_FILES)]
            manifest = Manifest(
                applied_offset=1,
                taken_at=taken_at,
                tables=snapshot_format.declared(tables),
                parts=parts,
                log_id=_LOG.log_id,
            )
            key = _stem(shard) + reading.MANIFEST_SUFFIX
            (self._folder / key).write_bytes(snapshot_format.encode_manifest(manifest))
        return sum(part.size for parts in self._parts for part in parts)

    def _put(self, shard: int, table: str, rows: Sequence[tuple[object, ...]]) -> None:
        record = RecordData(key=table.encode(), value=msgpack.packb(rows, use_bin_type=True))
        self._buffers[shard] += record_batch.build([record], timestamp_ms=0, compression=_ZSTD)
        if len(self._buffers[shard]) > PART_BYTES:
            self._end_part(shard)

    def _end_part(self, shard: int) -> None:
        data = bytes(self._buffers[shard])
        key = f"{_stem(shard)}/{len(self._parts[shard]):05d}"
        (self._folder / key).parent.mkdir(parents=True, exist_ok=True)
        (self._folder / key).write_bytes(data)
        self._parts[shard].append(Part(key=key, size=len(data), crc=crc32c(data)))
        self._buffers[shard].clear()


# --- memory ------------------------------------------------------------------------------------------------------
