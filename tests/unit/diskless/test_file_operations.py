"""Taking over, leaving and forgetting objects: what a shard writes into its log, and what it does not write twice."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from diskless_core.coordinator import entries
from diskless_core.diskless.commands import HandOver, PartitionKey
from diskless_core.diskless.records import DisklessRecord, FileForgotten, FileHandedOver, FileReceived
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.diskless.trimming import trim_page
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import SharedLog
from tests.support.shards import SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import START_MS, VirtualClock, run

FILE = HandOver("a", (1, 0, 2), 5, 9)


class Node(ShardNode):
    """A shard with one partition, and what it has written."""

    async def start_with_a_partition(self) -> None:
        await self.start()
        await self.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])

    def written(self) -> list[DisklessRecord]:
        """Records of all entries so far, but the first one's, which created the partition."""
        machine = DisklessMachine()
        found = [entries.decode(one.data) for one in self.shared.content(SHARD_ID)]
        return [machine.decode(data) for entry in found if isinstance(entry, entries.Entry) for data in entry.records][
            1:
        ]

    async def commit_one(self) -> ErrorCode:
        [result] = await self.commit(commit_of("a", batch(), owner_ids=FILE.owner_ids))
        return result.error

    async def let_die(self) -> None:
        await self.shard.delete_records(PartitionKey(TOPIC, 0), -1)
        await self.shard.flush()
        while (await self.shard.with_store(lambda store: trim_page(store, START_MS))).more:
            pass


@pytest.fixture
def scene():
    def play(scenario) -> None:
        async def main() -> None:
            node = Node(SharedLog(), VirtualClock(asyncio.get_running_loop()))
            await node.start_with_a_partition()
            await scenario(node)
            await node.stop()

        run(main)

    return play


@pytest.mark.parametrize("known", [True, False])
def test_a_hand_over_is_written_once_however_often_it_comes(scene, known: bool) -> None:
    async def scenario(node: Node) -> None:
        if known:
            await node.commit_one()
        before = len(node.written())
        for _ in range(3):
            await node.shard.hand_over([FILE, FILE])
        [received] = node.written()[before:]
        assert isinstance(received, FileReceived)
        assert received == FileReceived(
            object_key="a",
            owner_ids=FILE.owner_ids,
            committed_at=5,
            dead_at=9 if known else received.dead_at,
            was_unknown=not known,
        )

    scene(scenario)


@pytest.mark.parametrize("known", [True, False])
def test_a_hand_over_from_a_clock_that_is_ahead_keeps_no_object_for_longer(scene, known: bool) -> None:
    async def scenario(node: Node) -> None:
        if known:
            await node.commit_one()
        await node.shard.hand_over([FILE._replace(committed_at=2**62, dead_at=2**62)])
        received = node.written()[-1]
        assert isinstance(received, FileReceived)
        assert received.committed_at <= node.clock.now_ms()
        assert received.dead_at <= node.clock.now_ms()

    scene(scenario)


def test_the_grace_period_of_an_object_that_is_not_known_begins_when_it_is_handed_over(scene) -> None:
    async def scenario(node: Node) -> None:
        await node.shard.hand_over([FILE._replace(committed_at=0, dead_at=0)])
        received = node.written()[-1]
        assert isinstance(received, FileReceived)
        assert received.dead_at >= START_MS

    scene(scenario)


def test_the_first_owner_has_had_the_object_from_the_beginning(scene) -> None:
    async def scenario(node: Node) -> None:
        await node.commit(commit_of("a", batch(), owner_ids=(0, 1)))
        before = len(node.written())
        await node.shard.hand_over([FILE._replace(owner_ids=(0, 1))])
        assert node.written()[before:] == []

    scene(scenario)


def test_an_object_that_was_handed_over_before_its_commit_is_known_and_refused(scene) -> None:
    async def scenario(node: Node) -> None:
        await node.shard.hand_over([FILE])
        assert await node.commit_one() is ErrorCode.KAFKA_STORAGE_ERROR
        assert await node.shard.describe_files(["a", "b"]) == {"a": False}

    scene(scenario)


def test_what_is_live_or_unknown_can_neither_be_left_nor_forgotten(scene) -> None:
    async def scenario(node: Node) -> None:
        await node.commit_one()
        before = len(node.written())
        await node.shard.files_handed_over(["a", "b"], 2)
        await node.shard.files_deleted(["a", "b"])
        await node.shard.forget_files(["a", "b"])
        assert node.written()[before:] == []

    scene(scenario)


def test_an_object_is_left_once_and_then_forgotten(scene) -> None:
    async def scenario(node: Node) -> None:
        await node.commit_one()
        await node.let_die()
        before = len(node.written())
        await node.shard.forget_files(["a"])
        for _ in range(2):
            await node.shard.files_handed_over(["a"], 2)
            await node.shard.files_deleted(["a"])
        for _ in range(2):
            await node.shard.forget_files(["a"])
            await node.shard.files_handed_over(["a"], 2)
        assert node.written()[before:] == [FileHandedOver(object_key="a", next_owner=2), FileForgotten(object_key="a")]

    scene(scenario)
