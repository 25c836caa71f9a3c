"""The coordinators' place for events of remote segments: checked, durable, found again, outliving the topic."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace

import pytest

from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.ledger import CoordinatorLedger
from diskless_core.plugin.remote_log_metadata import IllegalTransitionError, RemoteLogMetadataError
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from diskless_core.testing.fakes.log import SharedLog
from tests.support.shards import TOPIC, ShardNode
from tests.support.virtual_time import VirtualClock, run

TOPIC_ID = uuid.UUID(bytes=TOPIC)
PARTITION = TopicIdPartition(TOPIC_ID, "t", 0)
ELSEWHERE = TopicIdPartition(TOPIC_ID, "t", 1)
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def copy(number: int, start: int = 0) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(PARTITION, uuid.UUID(int=number)),
        start_offset=start,
        end_offset=start + 9,
        max_timestamp_ms=5,
        broker_id=1,
        event_timestamp_ms=7,
        segment_size_bytes=400,
        segment_leader_epochs={0: start},
    )


def update(number: int, state: RemoteLogSegmentState) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(
        segment_id=copy(number).segment_id, event_timestamp_ms=9, state=state, broker_id=1
    )


def shard_of(partition: PartitionKey) -> int | None:
    return 0 if partition == PartitionKey(TOPIC, 0) else None


async def ledger_of(node: ShardNode) -> CoordinatorLedger:
    if node.shard.leading:
        await node.shard.create_partitions(TOPIC_ID, "t", [0])
    return CoordinatorLedger({0: node.shard}, shard_of)


def states(ledger: CoordinatorLedger) -> list[RemoteLogSegmentState]:
    return [metadata.state for metadata in ledger.log(PARTITION).segments()]


def test_events_are_found_by_this_node_the_next_leader_and_after_a_restart() -> None:
    async def main() -> None:
        shared, clock = SharedLog(), VirtualClock(asyncio.get_running_loop())
        first, second = ShardNode(shared, clock), ShardNode(shared, clock, node_id=2, candidate=False)
        await first.start()
        await second.start(lead=False)
        here, there = await ledger_of(first), await ledger_of(second)
        await here.append(copy(1))
        await here.append(copy(2, start=10))
        await here.append(update(1, FINISHED))
        assert states(here) == [FINISHED, STARTED]
        found = here.log(PARTITION).find(0, 3)
        assert found == replace(copy(1), state=FINISHED, event_timestamp_ms=9)
        await asyncio.sleep(1)
        assert states(there) == [FINISHED, STARTED]
        await first.stop()
        await first.start()
        assert states(await ledger_of(first)) == [FINISHED, STARTED]
        for node in (first, second):
            await node.stop()

    run(main)


def test_what_does_not_follow_is_refused_and_what_is_deleted_forgotten() -> None:
    async def main() -> None:
        node = ShardNode(SharedLog(), VirtualClock(asyncio.get_running_loop()))
        await node.start()
        ledger = await ledger_of(node)
        with pytest.raises(IllegalTransitionError, match="not known"):
            await ledger.append(update(1, FINISHED))
        with pytest.raises(RemoteLogMetadataError, match="no coordinator has the partition") as refused:
            await ledger.append(replace(copy(1), segment_id=RemoteLogSegmentId(ELSEWHERE, uuid.UUID(int=1))))
        assert not refused.value.retriable
        await ledger.append(copy(1))
        for state in (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED):
            await ledger.append(update(1, state))
        assert states(ledger) == []
        await node.stop()

    run(main)


def test_a_partition_that_no_coordinator_is_known_for_any_more_can_still_be_removed() -> None:
    async def main() -> None:
        node = ShardNode(SharedLog(), VirtualClock(asyncio.get_running_loop()))
        await node.start()
        await (await ledger_of(node)).append(copy(1))
        ledger = CoordinatorLedger({0: node.shard}, lambda _: None)
        marked = RemotePartitionDeleteMetadata(
            topic_id_partition=PARTITION,
            state=RemotePartitionDeleteState.DELETE_PARTITION_MARKED,
            event_timestamp_ms=1,
            broker_id=1,
        )
        await ledger.append(marked)
        assert ledger.delete_states() == [marked]
        await node.stop()

    run(main)


def test_without_a_leader_an_event_can_be_added_again_later() -> None:
    async def main() -> None:
        node = ShardNode(SharedLog(), VirtualClock(asyncio.get_running_loop()))
        await node.start()
        ledger = await ledger_of(node)
        node.shared.set_leader(node.shard_id, None)
        await asyncio.sleep(1)
        with pytest.raises(RemoteLogMetadataError) as failure:
            await ledger.append(copy(1))
        assert failure.value.retriable
        await node.stop()

    run(main)


def test_somebody_sees_to_a_deleted_partition_that_no_coordinator_knows() -> None:
    """Where the events are kept elsewhere, nothing is left here of a topic that is gone."""

    async def main() -> None:
        shared, clock = SharedLog(), VirtualClock(asyncio.get_running_loop())
        leader, follower = ShardNode(shared, clock), ShardNode(shared, clock, node_id=2)
        await leader.start()
        await follower.start(lead=False)
        seen = [CoordinatorLedger({0: node.shard}, lambda _: None).leads(PARTITION) for node in (leader, follower)]
        assert seen == [True, False]
        for node in (leader, follower):
            await node.stop()

    run(main)
