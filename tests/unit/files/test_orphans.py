"""The scan for orphans: what it deletes, and that it never takes an object which is, or may still be, committed."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.coordinator.commands import PartitionKey
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.files.orphans import OrphanScanner, OrphanServices, threshold_ms
from diskless_core.metrics import Metrics
from diskless_core.plugin.shard import ShardId, ShardKind
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from diskless_core.wal.format import object_key
from tests.support.shards import OTHER_TOPIC, TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

GRACE_MS = 60_000
HOUR_MS = 3_600_000
TOPICS = (TOPIC, OTHER_TOPIC)
HOMES = [PartitionKey(topic, 0) for topic in TOPICS]
"""Partition 0 of the first topic lives in shard 0, that of the second in shard 1."""


class Cluster:
    """Two shards, an object store, and brokers whose clocks differ."""

    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.objects = MemoryWalObjectStore(self.clock, page_objects=3)
        shared = SharedLog()
        self.nodes = [
            ShardNode(shared, self.clock, shard_id=ShardId(ShardKind.DISKLESS, index)) for index in range(len(TOPICS))
        ]

    async def start(self) -> None:
        for node, topic in zip(self.nodes, TOPICS, strict=True):
            await node.start()
            if node.shard.head(PartitionKey(topic, 0)) is None:
                await node.shard.create_partitions(uuid.UUID(bytes=topic), "t", [0])

    async def stop(self) -> None:
        for node in self.nodes:
            await node.stop()

    def scanner(self) -> OrphanScanner:
        services = OrphanServices(
            objects=self.objects,
            object_prefix="wal",
            shards={index: node.shard for index, node in enumerate(self.nodes)},
            grace_period_ms=GRACE_MS,
            clock=self.clock,
            metrics=Metrics(),
        )
        return OrphanScanner(services, HOUR_MS)

    async def scan(self, *, dry_run: bool = False):
        return await self.scanner().scan(dry_run=dry_run)

    async def upload(self, *, skew_ms: int = 0) -> str:
        key = object_key("wal", self.clock.now_ms() + skew_ms, self.clock.new_uuid())
        await self.objects.put(key, b"object")
        return key

    async def commit(self, key: str, shard: int = 0) -> ErrorCode:
        (result,) = await self.nodes[shard].commit(commit_of(key, batch(topic=TOPICS[shard])))
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
    assert threshold_ms(oldest, 100, 1_000) == expected


def test_what_nobody_committed_is_deleted_after_the_grace_period():
    async def story(cluster: Cluster) -> None:
        orphans = {await cluster.upload() for _ in range(7)}
        committed = [await cluster.upload() for _ in range(4)]
        for index, key in enumerate(committed):
            assert await cluster.commit(key, shard=index % 2) is ErrorCode.NONE
        report = await cluster.scan()
        assert (report.listed, report.orphans, report.deleted) == (11, [], 0), "they are too young"
        await asyncio.sleep(GRACE_MS / 1000 + 1)
        young = await cluster.upload()
        report = await cluster.scan()
        assert set(report.orphans) == orphans
        assert report.deleted == 7
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


def test_a_dry_run_changes_nothing():
    async def story(cluster: Cluster) -> None:
        key = await cluster.upload()
        await asyncio.sleep(GRACE_MS / 1000 + 1)
        report = await cluster.scan(dry_run=True)
        assert (report.orphans, report.deleted) == ([key], 0)
        assert await cluster.commit(key) is ErrorCode.NONE

    on_a_cluster(story)


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


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_object_goes_that_is_or_can_be_committed_whatever_clocks_say_and_whoever_crashes(seed):
    async def story(cluster: Cluster) -> None:
        random = Random(seed)
        work: set[asyncio.Task[None]] = set()
        acknowledged: set[str] = set()

        async def broker_writes() -> None:
            key = await cluster.upload(skew_ms=random.choice([0, 0, -2 * GRACE_MS, -GRACE_MS, GRACE_MS, 5 * GRACE_MS]))
            await asyncio.sleep(random.choice([0, 0.1, 1, GRACE_MS / 1000, 3 * GRACE_MS / 1000]))
            if random.random() < 0.3:
                return  # it crashes between upload and commit
            if await cluster.commit(key, random.randrange(2)) is ErrorCode.NONE:
                acknowledged.add(key)

        async def scan() -> None:
            with suppress(CoordinatorError, WalObjectStoreError):
                await cluster.scan(dry_run=random.random() < 0.1)

        for _ in range(random.randrange(5, 40)):
            match random.randrange(8):
                case 0 | 1 | 2:
                    work.add(asyncio.create_task(broker_writes()))
                case 3 | 4:
                    work.add(asyncio.create_task(scan()))
                case 5:
                    node = random.choice(cluster.nodes)
                    await node.kill()
                    await node.start()
                case 6:
                    cluster.objects.fail_next(random.choice([Operation.LIST, Operation.DELETE]), takes_effect=True)
                case 7:
                    await asyncio.sleep(random.choice([0.01, 1, GRACE_MS / 1000]))
        await asyncio.gather(*work)
        assert await cluster.readable() == acknowledged
        assert acknowledged <= set(cluster.objects.objects), "a committed object was deleted"
        for operation in (Operation.LIST, Operation.DELETE):
            cluster.objects._faults[operation].next.clear()
        await asyncio.sleep(7 * GRACE_MS / 1000)
        if acknowledged:
            # The oldest live object keeps younger orphans: it goes as retention would let it go.
            return
        await cluster.scan()
        assert set(cluster.objects.objects) == set(), "an orphan was left"

    on_a_cluster(story)
