"""The scan for orphans: what it deletes, what it leaves alone, whoever scans and whatever a detector says."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence

import pytest

from diskless_core.clock_watch import ClockWatch
from diskless_core.coordinator.errors import ClockSkewError, CoordinatorError
from diskless_core.diskless.commands import PartitionKey
from diskless_core.files import orphans
from diskless_core.files.orphans import OrphanScanner, OrphanServices, threshold_ms
from diskless_core.metrics import Metrics
from diskless_core.passed_time import Passed
from diskless_core.plugin.orphan_detection import OrphanDetection, OrphanDetectionError, OrphanSearch
from diskless_core.protocol.errors import ErrorCode
from diskless_core.shards import DISKLESS
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from diskless_core.wal.format import object_key
from tests.support.detection import listing_detection
from tests.support.guarantees import guarantee
from tests.support.shards import OTHER_TOPIC, TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

GRACE_MS = 60_000
HOUR_MS = 3_600_000
TOPICS = (TOPIC, OTHER_TOPIC)
HOMES = [PartitionKey(topic, 0) for topic in TOPICS]
"""Partition 0 of the first topic lives in shard 0, that of the second in shard 1."""


class Cluster:
    """Two shards, an object store, and a node that scans."""

    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.objects = MemoryWalObjectStore(self.clock, page_objects=3)
        self.shared = SharedLog()
        self.scanning_clock = VirtualClock(asyncio.get_running_loop())
        self.detection = listing_detection()
        self.scans_here = True
        self.used = {0, 1}
        self.metrics = Metrics()
        self.nodes = [
            ShardNode(self.shared, self.clock, shard_id=DISKLESS.shard(index)) for index in range(len(TOPICS))
        ]

    async def start(self) -> None:
        for node, topic in zip(self.nodes, TOPICS, strict=True):
            await node.start()
            if node.shard.head(PartitionKey(topic, 0)) is None:
                await node.shard.create_partitions(uuid.UUID(bytes=topic), "t", [0])

    async def stop(self) -> None:
        for node in self.nodes:
            await node.stop()

    def scanner(self, clock_watch: ClockWatch | None = None) -> OrphanScanner:
        services = OrphanServices(
            objects=self.objects,
            objects_source=lambda: self.objects,
            object_prefix="wal",
            snapshot_prefix="wal-snapshots",
            detection=self.detection,
            shards={index: node.shard for index, node in enumerate(self.nodes)},
            shards_in_use=self.shards_in_use,
            scans_here=lambda: self.scans_here,
            grace_period_ms=GRACE_MS,
            clock_watch=clock_watch or ClockWatch(self.scanning_clock),
            metrics=self.metrics,
        )
        return OrphanScanner(services, HOUR_MS)

    async def shards_in_use(self) -> set[int]:
        return self.used

    async def scan(self, *, dry_run: bool = False):
        return await self.scanner().scan(dry_run=dry_run)

    async def upload(self, *, skew_ms: int = 0) -> str:
        key = object_key("wal", self.clock.now_ms() + skew_ms, self.clock.new_uuid())
        await self.objects.put(key, b"object")
        return key

    async def commit(self, key: str, shard: int = 0) -> ErrorCode:
        (result,) = await self.nodes[shard].commit(commit_of(key, batch(topic=TOPICS[shard]), owner_ids=(shard,)))
        return result.error

    async def readable(self) -> set[str]:
        return {
            found.object_key
            for node, home in zip(self.nodes, HOMES, strict=True)
            for found in await node.read_all(home)
        }


def on_a_cluster(story) -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        await story(cluster)
        await cluster.stop()

    run(main)


@pytest.mark.parametrize(
    ("oldest", "expected"),
    [([], 900), ([None, None], 900), ([500, None], 600), ([850, 700], 800), ([990], 900), ([0], 100)],
)
def test_the_threshold_is_the_smaller_of_both(oldest, expected):
    assert threshold_ms(oldest, 100, Passed(now_ms=1_000)) == expected


@guarantee("Deletion and retention", "An object that was stored and never committed is deleted in the end.")
def test_what_nobody_committed_is_deleted_after_the_grace_period():
    async def story(cluster: Cluster) -> None:
        orphans = {await cluster.upload() for _ in range(7)}
        committed = [await cluster.upload() for _ in range(4)]
        for index, key in enumerate(committed):
            assert await cluster.commit(key, shard=index % 2) is ErrorCode.NONE
        report = await cluster.scan()
        assert (report.listed, report.candidates, report.orphans, report.deleted) == (11, 0, [], 0), "they are young"
        await asyncio.sleep(GRACE_MS / 1000 + 1)
        young = await cluster.upload()
        report = await cluster.scan()
        assert set(report.orphans) == orphans
        assert (report.listed, report.candidates, report.deleted) == (12, 11, 7)
        assert set(cluster.objects.objects) == {*committed, young}

    on_a_cluster(story)


def test_an_object_that_came_too_late_is_refused_for_ever_and_its_producer_may_send_again():
    async def story(cluster: Cluster) -> None:
        late = await cluster.upload()
        await asyncio.sleep(GRACE_MS / 1000 + 1)
        await cluster.scan()
        for _ in range(2):
            assert await cluster.commit(late) is ErrorCode.KAFKA_STORAGE_ERROR
            await cluster.nodes[0].kill()
            await cluster.nodes[0].start()
        assert await cluster.commit(await cluster.upload()) is ErrorCode.NONE

    on_a_cluster(story)


def test_a_commit_is_answered_again_however_old_its_object_is():
    async def story(cluster: Cluster) -> None:
        key = await cluster.upload()
        assert await cluster.commit(key) is ErrorCode.NONE
        await asyncio.sleep(GRACE_MS / 1000 + 1)
        await cluster.scan()
        assert await cluster.commit(key) is ErrorCode.NONE
        assert await cluster.readable() == {key}

    on_a_cluster(story)


def test_a_young_object_is_no_orphan_though_the_clocks_of_all_jump_a_day_ahead():
    async def story(cluster: Cluster) -> None:
        key = await cluster.upload()
        scanner = cluster.scanner()
        for clock in (cluster.clock, cluster.scanning_clock):
            clock.skew_ms += 86_400_000
        report = await scanner.scan(dry_run=False)
        assert (report.candidates, report.deleted) == (0, 0)
        assert await cluster.commit(key) is ErrorCode.NONE

    on_a_cluster(story)


def test_no_orphan_is_looked_for_while_the_clock_of_a_live_broker_is_off():
    async def story(cluster: Cluster) -> None:
        key = await cluster.upload()
        await asyncio.sleep(2 * GRACE_MS / 1000)
        watch = ClockWatch(cluster.scanning_clock)
        watch.compared({2: 86_400_000})
        with pytest.raises(ClockSkewError, match="the clock of a live broker is off"):
            await cluster.scanner(watch).scan(dry_run=False)
        assert await cluster.commit(key) is ErrorCode.NONE

    on_a_cluster(story)


def test_a_dry_run_changes_nothing():
    async def story(cluster: Cluster) -> None:
        key = await cluster.upload()
        await asyncio.sleep(GRACE_MS / 1000 + 1)
        report = await cluster.scan(dry_run=True)
        assert (report.orphans, report.deleted) == ([key], 0)
        assert await cluster.commit(key) is ErrorCode.NONE

    on_a_cluster(story)


@guarantee("Deletion and retention", "Objects in the bucket that are not Diskless's own are left alone.")
def test_what_bears_another_name_is_left_alone():
    async def story(cluster: Cluster) -> None:
        for key in ("wal/readme.txt", "other/ab/0000000000001-x", "wal-snapshots/0000000000001-x"):
            await cluster.objects.put(key, b"mine")
        await asyncio.sleep(GRACE_MS / 1000 + 1)
        assert (await cluster.scan()).orphans == []
        assert len(cluster.objects.objects) == 3

    on_a_cluster(story)


def test_a_shard_that_does_not_answer_keeps_everything():
    async def story(cluster: Cluster) -> None:
        key = await cluster.upload()
        await asyncio.sleep(GRACE_MS / 1000 + 1)
        await cluster.nodes[1].kill()
        with pytest.raises(CoordinatorError):
            await cluster.scan()
        assert key in cluster.objects.objects
        await cluster.nodes[1].start()

    on_a_cluster(story)


def test_the_worker_goes_on_after_a_failure():
    async def story(cluster: Cluster) -> None:
        key = await cluster.upload()
        working = asyncio.create_task(cluster.scanner().run())
        cluster.objects.fail_next(Operation.LIST)
        await asyncio.sleep(1_000)
        assert key in cluster.objects.objects
        await asyncio.sleep(2 * HOUR_MS / 1000)
        assert key not in cluster.objects.objects
        working.cancel()

    on_a_cluster(story)


@pytest.mark.parametrize("error", [OrphanDetectionError("the inventory is not there"), ZeroDivisionError("a defect")])
def test_the_worker_goes_on_after_a_detector_failed(error):
    class Failing(OrphanDetection):
        failing = True

        async def find(self, search: OrphanSearch) -> AsyncIterator[Sequence[str]]:
            if Failing.failing:
                raise error
            async for page in listing_detection().find(search):
                yield page

    async def story(cluster: Cluster) -> None:
        cluster.detection = Failing()
        key = await cluster.upload()
        working = asyncio.create_task(cluster.scanner().run())
        await asyncio.sleep(1_000)
        assert cluster.metrics.registry.get_sample_value("diskless_orphan_scan_failures_total") == 1
        Failing.failing = False
        await asyncio.sleep(HOUR_MS / 1000)
        assert key not in cluster.objects.objects
        working.cancel()

    on_a_cluster(story)


def test_a_node_scans_by_itself_only_while_it_is_its_turn_and_soon_after_it_became_so():
    async def story(cluster: Cluster) -> None:
        key = await cluster.upload()
        cluster.scans_here = False
        working = asyncio.create_task(cluster.scanner().run())
        await asyncio.sleep(5 * HOUR_MS / 1000)
        assert cluster.objects.calls[Operation.LIST] == 0
        cluster.scans_here = True
        await asyncio.sleep(orphans.FIRST_SCAN_S + 1)
        assert key not in cluster.objects.objects
        await asyncio.sleep(HOUR_MS / 2000)
        assert cluster.objects.calls[Operation.LIST] == 1
        working.cancel()

    on_a_cluster(story)


@guarantee("Deletion and retention", "An orphan_detection plugin that is wrong loses no data.")
def test_a_detector_that_names_the_wrong_objects_does_no_harm():
    async def story(cluster: Cluster) -> None:
        orphan, committed = await cluster.upload(), await cluster.upload()
        assert await cluster.commit(committed) is ErrorCode.NONE
        await cluster.objects.put("other/ab/0000000000001-x", b"mine")
        await asyncio.sleep(GRACE_MS / 1000 + 1)
        young = await cluster.upload()

        class NamesEverything(OrphanDetection):
            async def find(self, search: OrphanSearch) -> AsyncIterator[Sequence[str]]:
                for _ in range(2):
                    yield [*cluster.objects.objects, orphan, object_key("wal", 1, uuid.UUID(int=7)), "", "wal/"]

        cluster.detection = NamesEverything()
        report = await cluster.scan()
        assert orphan in report.orphans
        assert len(report.orphans) == report.deleted == 2, "that which never was is gone as well"
        assert set(cluster.objects.objects) == {committed, young, "other/ab/0000000000001-x"}

    on_a_cluster(story)


@guarantee("Offsets", "A node whose clock is wrong cannot have the objects of others refused that are young.")
@pytest.mark.parametrize("skew_ms", [GRACE_MS, 2 * GRACE_MS, 10 * GRACE_MS])
def test_a_node_whose_clock_is_far_ahead_cannot_have_young_objects_refused(skew_ms):
    async def story(cluster: Cluster) -> None:
        await asyncio.sleep(HOUR_MS / 1000)
        young = await cluster.upload()
        cluster.scanning_clock.skew_ms = skew_ms
        with pytest.raises(ClockSkewError, match="set the clock"):
            await cluster.scan()
        assert await cluster.commit(young) is ErrorCode.NONE
        cluster.scanning_clock.skew_ms = 0
        await cluster.scan()

    on_a_cluster(story)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_shard_that_the_scanning_node_does_not_know_keeps_everything(when):
    async def story(cluster: Cluster) -> None:
        key = await cluster.upload()
        await asyncio.sleep(GRACE_MS / 1000 + 1)

        class Growing(OrphanDetection):
            async def find(self, search: OrphanSearch) -> AsyncIterator[Sequence[str]]:
                cluster.used = {0, 1, 2}
                yield [key]

        if when == "before":
            cluster.used = {0, 1, 2}
        else:
            cluster.detection = Growing()
        with pytest.raises(CoordinatorError, match=r"\[2\].*diskless\.metadata\.topic\.num\.partitions"):
            await cluster.scan()
        assert key in cluster.objects.objects

    on_a_cluster(story)


def test_a_leader_that_was_deposed_and_does_not_know_it_is_not_believed():
    async def story(cluster: Cluster) -> None:
        deposed = cluster.nodes[0]
        shard_id = deposed.shard_id
        successor = ShardNode(cluster.shared, cluster.clock, 2, shard_id=shard_id)
        await successor.start(lead=False)
        key = await cluster.upload()
        cluster.shared.pause_reads(deposed.node_id)
        cluster.shared.set_leader(shard_id, 2, seen_by=[2])
        await successor.shard.until_leading()
        (result,) = await successor.commit(commit_of(key, batch()))
        assert result.error is ErrorCode.NONE
        assert deposed.shard.leading
        asked = asyncio.create_task(deposed.shard.describe_files([key]))
        await asyncio.sleep(HOUR_MS / 1000)
        assert not asked.done(), "it does not know of the commit"
        cluster.shared.resume_reads(deposed.node_id)
        with pytest.raises(CoordinatorError):
            await asked
        assert await successor.shard.describe_files([key]) == {key: True}
        await successor.stop()

    on_a_cluster(story)
