"""Orphan detection with Spark: what it has the coordinators asked for, what it tells, and what is never touched."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from diskless_core.broker.node import Node
from diskless_core.clock import SystemClock
from diskless_core.clock_watch import ClockWatch
from diskless_core.config.load import load_config
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.diskless.commands import HandOver
from diskless_core.files.orphans import OrphanScanner, OrphanServices
from diskless_core.metrics import Metrics
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.orphan_detection import OrphanDetectionError
from diskless_core.plugin.wal_object_store import ObjectInfo
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.protocol.errors import ErrorCode
from diskless_core.shards import DISKLESS
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.testing.orphan_detection import PREFIX, THRESHOLD_MS, found_by, keys_created_at, search_of
from diskless_core.wal.format import object_key
from diskless_spark.orphans.config import SparkOrphanSettings
from diskless_spark.orphans.detection import SparkDetection
from tests.support.inventories import Listed, write_inventory
from tests.support.lent_objects import LentObjects, lent
from tests.support.shards import TOPIC, ShardNode, batch, commit_of

CLOCK = SystemClock()
HOUR_MS = 3_600_000
SNAPSHOTS = "wal-snapshots"

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def objects() -> MemoryWalObjectStore:
    return MemoryWalObjectStore(CLOCK, page_objects=3)


@pytest.fixture
def source(objects: MemoryWalObjectStore, tmp_path: Path) -> Iterator[LentObjects]:
    with lent(objects, tmp_path) as source:
        yield source


def detection(folder: Path, **settings: object) -> SparkDetection:
    context = PluginContext(node_id=1, data_dir=folder, log_dir=folder, clock=CLOCK)
    return SparkDetection(context, SparkOrphanSettings(**settings))


class Shards:
    """Two coordinator shards whose snapshots are in the store, and a scan of the store."""

    def __init__(self, objects: MemoryWalObjectStore, source: LentObjects) -> None:
        self.objects = objects
        self.source = source
        self.snapshots = Snapshots(objects, SNAPSHOTS, CLOCK)
        self.nodes = [
            ShardNode(SharedLog(), CLOCK, shard_id=DISKLESS.shard(index), snapshots=self.snapshots)
            for index in range(2)
        ]
        self.now_ms = CLOCK.now_ms()

    async def old_object(self) -> str:
        """One from before the threshold, by a few seconds more than those before it."""
        self.now_ms -= 5_000
        key = object_key("wal", self.now_ms - 2 * HOUR_MS, CLOCK.new_uuid())
        await self.objects.put(key, b"object")
        return key

    async def commit(self, key: str, shard: int) -> None:
        (result,) = await self.nodes[shard].commit(commit_of(key, batch(), owner_ids=(shard,)))
        assert result.error is ErrorCode.NONE

    async def take_snapshots(self) -> None:
        for node in self.nodes:
            await node.shard.flush()
            await node.shard.take_snapshot(self.snapshots)

    async def scan(self, detection: SparkDetection, *, dry_run: bool = False):
        services = OrphanServices(
            objects=self.objects,
            objects_source=self.source,
            object_prefix="wal",
            snapshot_prefix=SNAPSHOTS,
            detection=detection,
            shards={index: node.shard for index, node in enumerate(self.nodes)},
            shards_in_use=self.in_use,
            scans_here=lambda: True,
            grace_period_ms=HOUR_MS,
            clock_watch=ClockWatch(CLOCK),
            metrics=Metrics(),
        )
        return await OrphanScanner(services, HOUR_MS).scan(dry_run=dry_run)

    async def in_use(self) -> set[int]:
        return {0, 1}


@asynccontextmanager
async def running_shards(objects: MemoryWalObjectStore, source: LentObjects) -> AsyncIterator[Shards]:
    shards = Shards(objects, source)
    for node in shards.nodes:
        await node.start()
        await node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
    yield shards
    for node in shards.nodes:
        await node.stop()


def only_report(folder: Path) -> dict[str, object]:
    (report,) = folder.iterdir()
    return json.loads(report.read_text())


async def test_what_a_snapshot_knows_is_not_asked_for_and_what_was_committed_since_is_kept(
    objects: MemoryWalObjectStore, source: LentObjects, tmp_path: Path
) -> None:
    async with running_shards(objects, source) as shards:
        known, refused, buried, later, orphan = [await shards.old_object() for _ in range(5)]
        await shards.commit(known, 0)
        await shards.nodes[1].commit(commit_of(refused, batch(9), owner_ids=(1,)))
        await shards.nodes[1].shard.hand_over([HandOver(buried, (0, 1), 0, 0)])
        await shards.take_snapshots()
        await shards.commit(later, 1)
        objects.objects["wal/ab/readme"] = b"not ours"
        young = object_key("wal", CLOCK.now_ms(), CLOCK.new_uuid())
        await objects.put(young, b"on its way")

        scan = detection(tmp_path, report_url=f"file://{tmp_path}/reports")
        dry = await shards.scan(scan, dry_run=True)
        assert (dry.listed, dry.candidates, dry.orphans, dry.deleted) == (7, 2, [orphan], 0)
        assert orphan in objects.objects
        report = only_report(tmp_path / "reports")
        assert report["listed"] == {"objects": 7, "bytes": 48}
        assert report["known"] == {"objects": 3, "bytes": 18}
        assert report["too_young"] == {"objects": 1, "bytes": 10}
        assert report["other"] == {"objects": 1, "bytes": 8}
        assert report["candidates"] == {"objects": 2, "bytes": 12}
        assert sum(day["objects"] for day in report["candidates_by_day"].values()) == 2
        assert set(report["sample"]) == {later, orphan}
        assert set(report["snapshots"]) == {"__diskless_metadata-0", "__diskless_metadata-1"}
        assert (report["unread_parts"], report["inventory"]) == (0, None)

        part = next(key for key in objects.objects if key.startswith(f"{SNAPSHOTS}/__diskless_metadata-1/"))
        objects.objects[part] = b"damaged"
        real = await shards.scan(detection(tmp_path))
        assert set(real.orphans) == {orphan}
        assert real.candidates == 4, "what the damaged part knew is asked for"
        kept = {key for key in objects.objects if not key.startswith(SNAPSHOTS)}
        assert kept == {known, refused, buried, later, young, "wal/ab/readme"}


@pytest.mark.parametrize("file_format", ["CSV", "Parquet"])
async def test_an_inventory_tells_of_orphans_that_are_still_there(
    objects: MemoryWalObjectStore, source: LentObjects, tmp_path: Path, file_format: str
) -> None:
    orphans = keys_created_at(range(1, 40))
    young = keys_created_at([THRESHOLD_MS])
    gone = [object_key("wal", 50, uuid.UUID(int=10**30))]
    objects.objects = dict.fromkeys([*orphans, *young], b"object")
    listed = [Listed(f"some/path/{key}", 6) for key in [*orphans, *gone, *young, "other.txt"]]
    url = write_inventory(
        tmp_path / "inventory", [listed[:20], listed[20:]], created_ms=CLOCK.now_ms() - HOUR_MS, file_format=file_format
    )
    noted: list[int] = []
    search = replace(search_of(objects), objects=source, note_listed=noted.append)
    reports = tmp_path / "reports"
    scan = detection(tmp_path, inventory_url=url, inventory_key_prefix="some/path/", report_url=f"file://{reports}")
    found = await found_by(scan, search)
    assert sorted(found) == sorted(orphans)
    assert noted == [42]
    report = only_report(reports)
    assert report["gone"] == {"objects": 1, "bytes": 6}
    assert report["candidates"] == {"objects": 39, "bytes": 39 * 6}
    assert report["known"] == {"objects": 0, "bytes": 0}


async def test_an_inventory_that_cannot_tell_is_an_error_and_not_an_empty_answer(
    objects: MemoryWalObjectStore, source: LentObjects, tmp_path: Path
) -> None:
    search = replace(search_of(objects), objects=source)
    rows = [Listed(key) for key in keys_created_at([1])]
    url = write_inventory(tmp_path / "inventory", [rows], created_ms=CLOCK.now_ms() - HOUR_MS)
    for settings, reason in (
        ({"inventory_key_prefix": "elsewhere/"}, "set orphan_detection.spark.inventory.key.prefix"),
        ({"inventory_max_age_ms": HOUR_MS // 2}, "is 1 hours old"),
        ({"report_url": f"file://{Path(__file__)}/reports"}, "Not a directory"),
    ):
        with pytest.raises(OrphanDetectionError, match=reason):
            await found_by(detection(tmp_path, **{"inventory_url": url, **settings}), search)


async def test_objects_in_the_memory_of_the_broker_are_refused(objects: MemoryWalObjectStore, tmp_path: Path) -> None:
    with pytest.raises(OrphanDetectionError, match="set wal_object_store to a folder or a bucket"):
        await found_by(detection(tmp_path), search_of(objects))


class HeldObjects(MemoryWalObjectStore):
    """Lists when it may."""

    def __init__(self) -> None:
        super().__init__(CLOCK)
        self.asked, self.may_list = threading.Event(), threading.Event()

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        if prefix.startswith(PREFIX):
            self.asked.set()
            await asyncio.to_thread(self.may_list.wait)
        async for page in super().list(prefix):
            yield page


async def test_the_event_loop_runs_while_spark_works_and_a_search_can_be_given_up(tmp_path: Path) -> None:
    objects = HeldObjects()
    objects.objects = dict.fromkeys(keys_created_at([1]), b"object")
    with lent(objects, tmp_path) as source:
        search = replace(search_of(objects), objects=source)
        searching = asyncio.create_task(found_by(detection(tmp_path), search))
        await asyncio.to_thread(objects.asked.wait)
        searching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching
        objects.may_list.set()
        assert await found_by(detection(tmp_path), search) == list(objects.objects)


async def test_a_broker_deletes_the_orphans_among_thousands_of_objects(spark: SparkSession, tmp_path: Path) -> None:
    now_ms = CLOCK.now_ms()
    orphans = {object_key("wal", now_ms - 48 * HOUR_MS - number, uuid.UUID(int=number << 112)) for number in range(500)}
    young = {object_key("wal", now_ms - number, uuid.UUID(int=number << 112)) for number in range(2_500)}
    settings = (
        "listeners=PLAINTEXT://127.0.0.1:0",
        "admin.listener=",
        f"log.dirs={tmp_path}",
        "orphan_detection=spark",
    )
    plugins = PluginManager.discover({})
    node = Node(load_config(None, settings, {}, plugins), plugins, CLOCK)
    await node.start()
    try:
        for key in orphans | young:
            path = tmp_path / "wal-objects" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"object")
        report = await node.scan_for_orphans(dry_run=False)
    finally:
        await node.stop()
    assert (report.listed, report.candidates, report.deleted) == (3_000, 500, 500)
    assert set(report.orphans) == orphans
    left = {str(path.relative_to(tmp_path / "wal-objects")) for path in (tmp_path / "wal-objects" / "wal").rglob("*-*")}
    assert left == young
    assert spark.range(1).count() == 1, "the session that was there goes on"
