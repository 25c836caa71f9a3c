"""How a topic's partitions are marked for deletion; what becomes of them then is in `test_removal`."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_core.remote_log.metadata import RemotePartitionDeleteMetadata, TopicIdPartition
from diskless_core.testing.fakes.remote_log_metadata import MemoryRemoteLogMetadata
from diskless_core.testing.remote_log_metadata_tools import PARTITION, segment
from diskless_core.tiering.removal import PARALLEL_MARKS, DeletionMarks
from tests.support.produce_path import ProducePath
from tests.support.virtual_time import run

ROUND_TRIP_S = 1.0
COUNT = 10 * PARALLEL_MARKS


class Distant(MemoryRemoteLogMetadata):
    """Each mark takes a round trip. `refused` is the partition whose mark fails, if any."""

    def __init__(self, refused: int | None = None) -> None:
        super().__init__()
        self.refused = refused
        self.marking = 0
        self.most = 0

    async def update_partition(self, update: RemotePartitionDeleteMetadata) -> None:
        self.marking += 1
        self.most = max(self.most, self.marking)
        await asyncio.sleep(ROUND_TRIP_S)
        self.marking -= 1
        if update.topic_id_partition.partition == self.refused:
            raise RemoteLogMetadataError("injected")
        await super().update_partition(update)

    def marked(self) -> set[int]:
        return {known.topic_id_partition.partition for known in self.ledger.delete_states()}


def place(partition: int) -> TopicIdPartition:
    return PARTITION._replace(partition=partition)


async def add_topic(path: ProducePath, metadata: Distant, with_segments: range) -> None:
    """A topic of many partitions, some of which have a segment."""
    await path.node.shard.create_partitions(PARTITION.topic_id, PARTITION.topic, range(COUNT))
    for partition in with_segments:
        await metadata.add(segment(partition, 0, 9, partition=place(partition)))


async def mark(path: ProducePath, metadata: Distant) -> None:
    await DeletionMarks(metadata, 1, path.clock).mark(path.node.shard, PARTITION.topic_id)


def test_many_partitions_are_marked_at_once_but_not_all_and_none_without_segments() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            metadata = Distant()
            await add_topic(path, metadata, range(COUNT // 2))
            begun = asyncio.get_running_loop().time()
            await mark(path, metadata)
            assert metadata.marked() == set(range(COUNT // 2))
            assert metadata.most == PARALLEL_MARKS
            assert asyncio.get_running_loop().time() - begun == pytest.approx(COUNT / 2 / PARALLEL_MARKS * ROUND_TRIP_S)

    run(main)


def test_where_one_is_not_marked_all_is_to_be_done_again() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            metadata = Distant(refused=3)
            await add_topic(path, metadata, range(COUNT))
            with pytest.raises(CoordinatorError, match=f"segments of {PARTITION.topic}-3 are not marked: injected"):
                await mark(path, metadata)
            assert 3 not in metadata.marked()
            metadata.refused = None
            await mark(path, metadata)
            assert metadata.marked() == set(range(COUNT))

    run(main)
