"""An empty partition takes over segments that were made elsewhere, wherever that is broken off in between."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.commands import PartitionKey
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.remote_log_metadata import MemoryRemoteLogMetadata
from diskless_core.tiering.segment_admin import AdoptionError, adopt
from tests.support.shards import TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

PARTITION = TopicIdPartition(uuid.UUID(bytes=TOPIC), "t", 0)
KEY = PartitionKey(TOPIC, 0)


def segment(number: int, start: int, end: int) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(PARTITION, uuid.UUID(int=number)),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=5,
        broker_id=3,
        event_timestamp_ms=7,
        segment_size_bytes=400,
        segment_leader_epochs={0: start},
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
    )


SEGMENTS = (segment(1, 20, 29), segment(2, 30, 34))


class World:
    """A node with an empty partition, and what is known of its segments."""

    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.node = ShardNode(SharedLog(), self.clock)
        self.metadata = MemoryRemoteLogMetadata()

    async def adopt(self, *segments: RemoteLogSegmentMetadata, start: int = 22) -> None:
        await adopt(self.node.shard, self.metadata, self.clock, PARTITION, start, segments)

    async def states(self) -> set[RemoteLogSegmentState]:
        return {one.state for one in await self.metadata.list(PARTITION)}


def in_a_world(main: Callable[[World], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        world = World()
        await world.node.start()
        await world.node.shard.create_partitions(PARTITION.topic_id, "t", [0])
        await main(world)
        await world.node.stop()

    run(all_of_it)


def test_a_partition_begins_and_goes_on_where_its_segments_do() -> None:
    async def main(world: World) -> None:
        for _ in range(2):
            await world.adopt(*SEGMENTS)
            head = world.node.shard.head(KEY)
            assert head is not None
            assert (head.log_start_offset, head.local_start_offset, head.next_offset) == (22, 35, 35)
            assert await world.states() == {RemoteLogSegmentState.COPY_SEGMENT_FINISHED}

    in_a_world(main)


def test_no_segment_is_complete_before_the_coordinator_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a compaction would take it for what producers have written meanwhile."""

    async def main(world: World) -> None:
        async def no_answer(*_: object) -> None:
            raise CoordinatorError("no answer")

        with monkeypatch.context() as patched:
            patched.setattr(world.node.shard, "adopt", no_answer)
            with pytest.raises(CoordinatorError):
                await world.adopt(*SEGMENTS)
        assert await world.states() == {RemoteLogSegmentState.COPY_SEGMENT_STARTED}
        await world.adopt(*SEGMENTS)
        assert await world.states() == {RemoteLogSegmentState.COPY_SEGMENT_FINISHED}

    in_a_world(main)


def test_a_partition_with_records_of_its_own_adopts_nothing() -> None:
    async def main(world: World) -> None:
        await world.node.shard.commit_file(commit_of("o", batch()))
        with pytest.raises(AdoptionError, match="t-0 is not empty"):
            await world.adopt(*SEGMENTS)
        assert await world.states() == set()

    in_a_world(main)


def test_segments_that_make_no_log_are_refused() -> None:
    async def main(world: World) -> None:
        with pytest.raises(AdoptionError, match="begins at 19"):
            await world.adopt(*SEGMENTS, start=19)
        assert await world.states() == {RemoteLogSegmentState.COPY_SEGMENT_STARTED}

    in_a_world(main)
