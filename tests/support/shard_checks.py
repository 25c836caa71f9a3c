"""Compares what a replica of a shard says, and what its store has, with the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from diskless_core.coordinator.entries import ACCEPTANCE
from diskless_core.diskless import producer_state
from diskless_core.diskless.commands import FoundRuns, PartitionKey
from diskless_core.diskless.producer_state import ProducerWindow
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import (
    BATCHES,
    DEAD_FILES,
    FILES,
    GONE_FILES,
    HORIZON,
    LIVE_FILES,
    PRODUCERS,
    RECEIVED_FILES,
    THE_HORIZON,
    TRIMS,
)
from diskless_core.protocol.errors import ErrorCode
from diskless_core.wal.runs import Run
from tests.support.commit_model import CommitModel, PartitionModel, assert_reads_are, assert_runs_are
from tests.support.shard_cluster import ReplicaNode

Read = Mapping[PartitionKey, list[Run]]

PAGE_BYTES = 700


def assert_heads_are(shard: DisklessShard, model: CommitModel) -> None:
    """The replica has just the model's partitions, and they begin and end where they should."""
    assert {
        key: (head.log_start_offset, head.local_start_offset, head.next_offset) for key, head in shard.heads().items()
    } == {
        key: (partition.log_start, partition.local_start, partition.next_offset)
        for key, partition in model.partitions().items()
    }
    for key, partition in model.partitions().items():
        assert list(shard.tiered(key)) == partition.segments
    assert {topic_id.bytes for topic_id, _ in shard.topics()} == model.topics.keys()
    assert (shard.state.committed(HORIZON, THE_HORIZON) or 0) == model.horizon_ms


async def read_everything(node: ReplicaNode, model: CommitModel) -> Read:
    """All runs that the replica has, which are the model's batches that are in no segment."""
    read = {}
    for key, partition in model.partitions().items():
        read[key] = await node.read_all(key, PAGE_BYTES)
        assert_reads_are(read[key], partition, partition.local_start)
        head = node.shard.head(key)
        assert head is not None
        in_segments = sum(segment.size_bytes for segment in partition.segments)
        assert head.size_bytes == in_segments + sum(run.byte_size for run in read[key])
    return read


def assert_found(found: FoundRuns, partition: PartitionModel | None, offset: int, max_bytes: int) -> None:
    """An answer of FindBatches is what it has to be at any offset."""
    if partition is None:
        assert found == FoundRuns(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return
    assert (found.log_start_offset, found.high_watermark) == (partition.log_start, partition.next_offset)
    if not partition.log_start <= offset <= partition.next_offset:
        assert (found.error, list(found.runs)) == (ErrorCode.OFFSET_OUT_OF_RANGE, [])
        return
    assert found.error is ErrorCode.NONE
    assert found.local_start_offset == partition.local_start
    assert bool(found.runs) == (partition.local_start <= offset < partition.next_offset)
    if found.runs:
        assert found.runs[0].base_offset <= offset <= found.runs[0].last_offset
        reached = found.runs[-1].last_offset
        expected = [one for one in partition.since(found.runs[0].base_offset) if one.base_offset <= reached]
        assert_runs_are(found.runs, expected)
        assert len(found.runs) == 1 or sum(run.byte_size for run in found.runs[:-1]) < max_bytes


async def assert_found_by_time(node: ReplicaNode, partition: PartitionKey, runs: list[Run], timestamp: int) -> None:
    """A lookup by time leads to the run that a reader of them all would choose."""
    head = node.shard.head(partition)
    assert head is not None
    found = await node.shard.first_run_at_or_after(partition, timestamp, head.local_start_offset)
    expected = next((run for run in runs if run.max_timestamp >= timestamp), None)
    assert found == expected, (timestamp, head, runs)
    latest = await node.shard.latest_runs(partition)
    assert len(latest) <= 2
    if runs:
        greatest = max(run.max_timestamp for run in runs)
        assert greatest < 0 or greatest in [run.max_timestamp for run in latest]


async def rows_of(node: ReplicaNode) -> dict[str, list[Any]]:
    """All that a store has, once it was given everything and trimmed; less the times of death, which each one notes."""
    await node.trim()
    tables = [table for table in node.shard.state.tables if table is not ACCEPTANCE]
    found = await node.shard.with_store(lambda store: {table.name: store.scan(table.name) for table in tables})
    return found | {DEAD_FILES.name: [row[:1] + row[2:] for row in found[DEAD_FILES.name]]}


def assert_rows_are(rows: Mapping[str, list[Any]], model: CommitModel, read: Read) -> None:
    """A trimmed store has nothing but what can still be read, and knows each object as live or as dead."""
    runs = [run for one in read.values() for run in one]
    assert Counter(map(BATCHES.decode, rows[BATCHES.name])) == Counter(runs)
    assert rows[TRIMS.name] == []
    live = {row[0]: LIVE_FILES.decode(row).live_runs for row in rows[LIVE_FILES.name]}
    assert live == Counter(run.object_key for run in runs)
    assert live.keys() == model.live_files
    assert {row[0] for row in rows[FILES.name]} == model.known_files
    assert {row[0] for row in rows[DEAD_FILES.name]} == model.dead_files
    assert {row[0] for row in rows[RECEIVED_FILES.name]} == model.received
    assert {row[0] for row in rows[GONE_FILES.name]} == model.gone
    assert_producers_are(dict(map(PRODUCERS.entity, rows[PRODUCERS.name])), model)


def assert_producers_are(windows: Mapping[Any, ProducerWindow], model: CommitModel) -> None:
    """Just these producers are remembered, with their last batches and how much precedes these."""
    assert windows.keys() == model.producers.keys() | model.left_producers
    for key, expected in model.producers.items():
        assert producer_state.epoch_of(windows[key]) == expected[-1].batch.producer_epoch
        assert producer_state.batches_of(windows[key]) == tuple(
            (one.batch.base_sequence, one.batch.last_sequence, one.base_offset, one.append_time) for one in expected
        )
        assert producer_state.preceding_of(windows[key]) == model.preceding(key)
