"""What an operator is told of a shard."""

from __future__ import annotations

import uuid

import pytest

from diskless_core.clock import SystemClock
from diskless_core.coordinator.meter import SnapshotMark
from diskless_core.coordinator.status import COUNT_PAGE_ROWS, count_rows, shard_status
from diskless_core.diskless.commands import PartitionKey
from diskless_core.plugin.coordinator_store import Column, ColumnType, TableChanges, TableSpec
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.shards import BATCH_BYTES, SHARD_ID, TOPIC, ShardNode, batch, commit_of

SPEC = TableSpec(
    name="pairs",
    key=(Column("a", ColumnType.INTEGER), Column("b", ColumnType.TEXT)),
    values=(Column("value", ColumnType.INTEGER),),
)


@pytest.fixture
async def node():
    one = ShardNode(SharedLog(), SystemClock())
    await one.start()
    await one.shard.create_partitions(uuid.UUID(bytes=TOPIC), "topic", [0, 1])
    yield one
    await one.stop()


async def test_a_leading_shard_shows_its_term_its_log_and_the_rows_in_memory(node):
    shard = node.shard

    status = await shard_status(shard, node.log, count=False)

    assert (status.shard, status.leader, status.leading, status.term) == (str(SHARD_ID), 1, True, shard.term)
    assert status.log_start_offset == 0
    assert status.high_watermark == status.applied_offset > 0
    assert 0 <= status.stored_offset <= status.applied_offset
    assert (status.pending_commands, status.failure, status.objects) == (0, None, None)
    assert (status.snapshot_offset, status.snapshot_taken_at, status.data_bytes) == (None, None, 0)
    assert status.bytes_since_snapshot == shard.applied_bytes > 0
    assert (status.rows["topics"], status.rows["partitions"]) == (1, 2)
    assert "batches" not in status.rows


async def test_counting_includes_what_was_committed_a_moment_ago_and_objects_by_life_stage(node):
    await node.commit(commit_of("first", batch(0)))
    await node.commit(commit_of("second", batch(0), batch(1)))
    await node.commit(commit_of("refused", batch(5)))

    status = await shard_status(node.shard, node.log, count=True)

    assert (status.rows["files"], status.rows["batches"], status.rows["trims"]) == (3, 3, 0)
    assert status.objects == {"live": 2, "waiting": 0, "to_hand_over": 0, "to_delete": 1, "gone": 0}
    assert status.stored_offset == status.applied_offset
    assert status.data_bytes == 3 * BATCH_BYTES
    assert node.shard.head(PartitionKey(TOPIC, 0)).next_offset == 2


async def test_the_newest_snapshot_is_shown(node):
    shard = node.shard
    shard.note_snapshot(
        SnapshotMark(applied_offset=2, taken_at=1_700_000_000_000, applied_bytes=shard.applied_bytes, size_bytes=9)
    )
    await node.commit(commit_of("later", batch(0)))

    status = await shard_status(shard, node.log, count=False)

    assert (status.snapshot_offset, status.snapshot_taken_at) == (2, 1_700_000_000_000)
    assert status.bytes_since_snapshot == shard.applied_bytes - shard.snapshot.applied_bytes > 0


@pytest.mark.parametrize("rows", [0, 1, COUNT_PAGE_ROWS - 1, COUNT_PAGE_ROWS, COUNT_PAGE_ROWS + 1, 2 * COUNT_PAGE_ROWS])
def test_rows_are_counted_over_pages(rows):
    store = MemoryCoordinatorStore().open(SHARD_ID, [SPEC])
    store.write({"pairs": TableChanges(put=[(number // 7, str(number), 0) for number in range(rows)])}, 1)

    assert count_rows(store, SPEC) == rows
