"""Where records lie by the snapshots in the object store."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest

from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.diskless import remote_segments
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.trimming import trim_page
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from diskless_core.remote_log.tiered import TieredSegment
from diskless_core.shards import DISKLESS
from diskless_core.snapshot import format as snapshot_format
from diskless_core.snapshot import reading
from diskless_core.snapshot.format import SnapshotError
from diskless_core.snapshot.layouts import LayoutSnapshot, read_layouts
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from tests.support.shards import OTHER_TOPIC, TOPIC, ShardNode, batch, commit_of
from tests.support.snapshots import put_cluster_snapshot
from tests.support.virtual_time import VirtualClock, run

PREFIX = "snapshots"
TOPIC_ID = uuid.UUID(bytes=TOPIC)
OTHER_ID = uuid.UUID(bytes=OTHER_TOPIC)
P0, P1 = TopicIdPartition(TOPIC_ID, "t", 0), TopicIdPartition(TOPIC_ID, "t", 1)
OTHER = TopicIdPartition(OTHER_ID, "other", 0)
SHARDS = {P0: 0, P1: 1, OTHER: 0}
STARTED, FINISHED = RemoteLogSegmentState.COPY_SEGMENT_STARTED, RemoteLogSegmentState.COPY_SEGMENT_FINISHED


class Place:
    """Two shards with partitions of two topics, and where their snapshots go."""

    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.objects = MemoryWalObjectStore(self.clock)
        self.snapshots = Snapshots(self.objects, PREFIX, self.clock)
        self.nodes = [
            ShardNode(SharedLog(), self.clock, shard_id=DISKLESS.shard(index), snapshots=self.snapshots)
            for index in (0, 1)
        ]
        self.committed = 0

    async def start(self) -> None:
        for partition, index in SHARDS.items():
            node = self.nodes[index]
            if not hasattr(node, "shard"):
                await node.start()
            await node.shard.create_partitions(partition.topic_id, partition.topic, [partition.partition])

    def node(self, partition: TopicIdPartition) -> ShardNode:
        return self.nodes[SHARDS[partition]]

    async def commit(self, partition: TopicIdPartition, count: int = 1) -> None:
        for _ in range(count):
            self.committed += 1
            content = batch(partition.partition, topic=partition.topic_id.bytes, count=10)
            owner_ids = (SHARDS[partition],)
            await self.node(partition).commit(commit_of(f"wal/{self.committed}", content, owner_ids=owner_ids))

    async def tier(self, partition: TopicIdPartition, start: int, end: int, *, noted: bool = True) -> uuid.UUID:
        """Let a segment have the records from `start` to `end`, both inclusive."""
        segment_id = self.clock.new_uuid()
        shard = self.node(partition).shard
        started = RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(partition, segment_id),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=1,
            broker_id=1,
            event_timestamp_ms=1,
            segment_size_bytes=7,
            segment_leader_epochs={0: start},
        )
        finished = RemoteLogSegmentMetadataUpdate(
            segment_id=started.segment_id,
            event_timestamp_ms=2,
            state=FINISHED,
            broker_id=1,
            custom_metadata=b"custom",
        )
        if noted:
            for event in (started, finished):
                await shard.submit(lambda command, event=event: remote_segments.append(command, event))
        segment = TieredSegment(segment_id.bytes, start, end, 7)
        assert await shard.tier(PartitionKey(partition.topic_id.bytes, partition.partition), segment, expected=start)
        return segment_id

    async def take(self, *indexes: int) -> None:
        for index in indexes or (0, 1):
            shard = self.nodes[index].shard
            await shard.flush()
            await shard.take_snapshot(self.snapshots)

    async def take_all(self) -> None:
        await self.take()
        await self.take_clusters()

    async def take_clusters(self) -> None:
        topics = {(TOPIC_ID, "t"): [0, 1], (OTHER_ID, "other"): [0]}
        await put_cluster_snapshot(self.objects, PREFIX, topics, taken_at_ms=self.clock.now_ms())

    async def read(self, *topics: str) -> LayoutSnapshot:
        return await read_layouts(self.objects, PREFIX, lambda name: not topics or name in topics)


def on_a_place(story: Callable[[Place], Awaitable[None]]) -> None:
    async def main() -> None:
        place = Place()
        await place.start()
        await story(place)
        for node in place.nodes:
            await node.stop()

    run(main)


@pytest.mark.parametrize("part_bytes", [0, 1 << 20])
def test_segments_come_first_and_ranges_behind_them(part_bytes, monkeypatch):
    monkeypatch.setattr(snapshot_format, "PART_BYTES", part_bytes)

    async def story(place: Place) -> None:
        for partition in SHARDS:
            await place.commit(partition, 4)
        ids = [await place.tier(P0, 0, 9), await place.tier(P0, 10, 19)]
        await place.node(P0).shard.delete_records(PartitionKey(TOPIC, 0), 15)
        await place.node(P1).shard.delete_records(PartitionKey(TOPIC, 1), 20)
        taken_at_ms = place.clock.now_ms()
        await place.take_all()
        await place.commit(P0)

        found = await place.read()
        assert found.taken_at_ms == taken_at_ms
        assert [layout.partition for layout in found.layouts] == [OTHER, P0, P1]
        other, first, second = found.layouts
        assert (first.start_offset, first.end_offset) == (15, 40)
        (segment,) = first.segments
        assert (segment.segment_id.id, segment.state, segment.custom_metadata) == (ids[1], FINISHED, b"custom")
        assert [one.base_offset for one in first.ranges] == [20, 30]
        assert (second.start_offset, second.end_offset, second.segments) == (20, 40, ())
        assert [one.base_offset for one in second.ranges] == [20, 30]
        assert [one.object_key for one in other.ranges] == ["wal/9", "wal/10", "wal/11", "wal/12"]
        (run_there,) = await place.node(OTHER).shard.runs_from(PartitionKey(OTHER_TOPIC, 0), 39)
        last = other.ranges[-1]
        assert (last.base_offset, last.last_offset, last.byte_offset, last.byte_size) == (30, 39, 16, 100)
        assert last.append_time == run_there.append_time
        assert [layout.partition for layout in (await place.read("other")).layouts] == [OTHER]
        assert (await place.read("none")).layouts == []

    on_a_place(story)


def test_it_is_the_same_when_what_was_tiered_has_been_trimmed():
    async def story(place: Place) -> None:
        await place.commit(P0, 4)
        await place.tier(P0, 0, 19)
        await place.take_all()
        before = (await place.read()).layouts
        shard = place.node(P0).shard
        while (await shard.with_store(lambda store: trim_page(store, place.clock.now_ms()))).more:
            pass
        await place.take()
        assert len([key for key in place.objects.objects if "__diskless_metadata-0/" in key]) == 4, "both are there"
        assert (await place.read()).layouts == before

    on_a_place(story)


def test_a_segment_whose_metadata_is_elsewhere_is_an_error():
    async def story(place: Place) -> None:
        await place.commit(P0, 2)
        segment_id = await place.tier(P0, 0, 9, noted=False)
        await place.take_all()
        with pytest.raises(SnapshotError, match=f"where the segment {segment_id} of t-0 is.*remote_log_metadata"):
            await place.read()
        assert len((await place.read("other")).layouts) == 1

    on_a_place(story)


def test_a_shard_without_a_snapshot_is_an_error_for_those_who_want_its_partitions():
    async def story(place: Place) -> None:
        with pytest.raises(SnapshotError, match="no snapshot of __cluster_metadata-0 can be read: there is none"):
            await place.read()
        await place.take_clusters()
        await place.take(0)
        assert len((await place.read("other")).layouts) == 1
        with pytest.raises(SnapshotError, match="no snapshot of __diskless_metadata-1 can be read: there is none"):
            await place.read("t")

    on_a_place(story)


def test_a_damaged_snapshot_is_passed_over_for_the_one_before():
    async def story(place: Place) -> None:
        await place.commit(P0)
        await place.take_all()
        before = set(place.objects.objects)
        await place.commit(P0)
        await place.take(0)
        for key in set(place.objects.objects) - before:
            if not key.endswith(".checkpoint"):
                place.objects.objects[key] = b"?" * len(place.objects.objects[key])
        assert [layout.end_offset for layout in (await place.read("t")).layouts] == [10, 0]

    on_a_place(story)


def test_a_topic_that_was_deleted_between_the_snapshots_is_left_out():
    async def story(place: Place) -> None:
        await place.take_all()
        await place.nodes[1].shard.delete_topic(TOPIC_ID)
        await asyncio.sleep(60.002)
        await place.take(1)
        assert [layout.partition for layout in (await place.read()).layouts] == [OTHER]

    on_a_place(story)


def test_a_topic_that_may_have_been_created_between_the_snapshots_is_an_error():
    async def story(place: Place) -> None:
        await place.nodes[1].shard.delete_topic(TOPIC_ID)
        await place.take_clusters()
        await asyncio.sleep(60)
        await place.take()
        with pytest.raises(SnapshotError, match="t-1 is not in the newest snapshot of __diskless_metadata-1"):
            await place.read()

    on_a_place(story)


def test_a_topic_that_was_created_while_a_snapshot_was_put_is_an_error():
    """A snapshot is of the moment when it was begun, however long it takes to be put."""

    async def story(place: Place) -> None:
        shard = place.nodes[1].shard
        await shard.delete_topic(TOPIC_ID)
        put, begun_at_ms = place.objects.put, place.clock.now_ms()

        async def slow_put(key, data):
            await asyncio.sleep(180)
            await put(key, data)

        place.objects.put = slow_put
        taking = asyncio.create_task(place.take(1))
        await asyncio.sleep(1)
        place.objects.put = put
        await shard.create_partitions(TOPIC_ID, "t", [1])
        await place.commit(P1)
        await place.take_clusters()
        await place.take(0)
        await taking
        with pytest.raises(SnapshotError, match="t-1 is not in the newest snapshot of __diskless_metadata-1"):
            await place.read()
        newest = await reading.newest(place.objects, PREFIX, DISKLESS.shard(1))
        assert newest is not None
        assert newest.taken_at == begun_at_ms

    on_a_place(story)


def test_a_partition_that_its_shard_has_not_while_it_has_others_of_the_topic_is_an_error():
    """A topic is deleted from a shard all at once, so it was not deleted, and its other records would be missed."""

    async def story(place: Place) -> None:
        await place.commit(P0)
        await put_cluster_snapshot(place.objects, PREFIX, {(TOPIC_ID, "t"): [0, 0]}, taken_at_ms=place.clock.now_ms())
        await asyncio.sleep(3_600)
        await place.take()
        with pytest.raises(SnapshotError, match="t-1 is not in the newest snapshot of __diskless_metadata-0"):
            await place.read()

    on_a_place(story)
