"""Segments are copied from one remote storage to another, whole and checked."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from diskless_core.log import leader_epochs, producer_snapshot
from diskless_core.plugin.remote_storage import IndexType, LogSegmentData
from diskless_core.protocol import record_batch
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage
from diskless_core.tiering.migration import segment_copy
from diskless_core.tiering.migration.segment_copy import SegmentCopy, SegmentDamagedError, copy_segment, ensure_copied
from tests.support.segments import random_segment

OURS = TopicIdPartition(uuid.UUID(int=7), "t", 0)
THEIRS = TopicIdPartition(uuid.UUID(int=8), "t", 0)


async def stored(storage, seed=1, **changed):
    """A segment in a storage, and its metadata."""
    segment = random_segment(seed)
    built = segment.indexer.finish()
    metadata = RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(OURS, uuid.UUID(int=5)),
        start_offset=segment.base_offset,
        end_offset=built.end_offset,
        max_timestamp_ms=built.max_timestamp,
        broker_id=1,
        event_timestamp_ms=2,
        segment_size_bytes=len(changed.get("data", segment.data)),
        segment_leader_epochs={0: segment.base_offset},
    )
    indexes = {
        IndexType.OFFSET: built.offset_index,
        IndexType.TIMESTAMP: built.time_index,
        IndexType.PRODUCER_SNAPSHOT: producer_snapshot.encode(segment.indexer.producers.values()),
        IndexType.LEADER_EPOCH: leader_epochs.encode({0: segment.base_offset}),
    }
    if not (metadata := replace(metadata, **changed.get("metadata", {}))).txn_index_empty:
        indexes[IndexType.TRANSACTION] = b"aborted"

    async def log():
        yield changed.get("data", segment.data)

    await storage.copy(metadata, LogSegmentData(log=log, indexes=lambda: indexes))
    return metadata


def exported(metadata, **changed):
    return replace(metadata, segment_id=RemoteLogSegmentId(THEIRS, metadata.segment_id.id), **changed)


@pytest.fixture
def source():
    return MemoryRemoteStorage()


@pytest.fixture
def target():
    return MemoryRemoteStorage()


@pytest.mark.parametrize("chunk_bytes", [1, 61, 100, 1 << 20])
async def test_log_and_indexes_arrive_unchanged_whatever_is_read_at_once(source, target, monkeypatch, chunk_bytes):
    monkeypatch.setattr(segment_copy, "CHUNK_BYTES", chunk_bytes)
    metadata = await stored(source)
    copied = exported(metadata)
    await copy_segment(SegmentCopy(source=metadata, target=copied), source, target)
    assert target.segments[copied.segment_id] == source.segments[metadata.segment_id]


async def test_the_custom_metadata_of_the_other_storage_is_told(source):
    metadata = await stored(source)
    target = MemoryRemoteStorage(custom_metadata=b"here")
    assert await copy_segment(SegmentCopy(source=metadata, target=exported(metadata)), source, target) == b"here"


async def test_a_transaction_index_goes_along(source, target):
    metadata = await stored(source, metadata={"txn_index_empty": False})
    copied = exported(metadata)
    await copy_segment(SegmentCopy(source=metadata, target=copied), source, target)
    assert target.segments[copied.segment_id].indexes[IndexType.TRANSACTION] == b"aborted"


async def test_another_leader_epoch_is_written_into_batches_and_checkpoint(source, target, monkeypatch):
    monkeypatch.setattr(segment_copy, "CHUNK_BYTES", 100)
    metadata = await stored(source)
    copied = exported(metadata, segment_leader_epochs={3: metadata.start_offset})
    await copy_segment(SegmentCopy(source=metadata, target=copied), source, target)
    there, here = target.segments[copied.segment_id], source.segments[metadata.segment_id]
    headers = [
        (position, header._replace(partition_leader_epoch=0)) for position, header in record_batch.walk(there.log)
    ]
    assert headers == list(record_batch.walk(here.log))
    assert {header.partition_leader_epoch for _, header in record_batch.walk(there.log)} == {3}
    assert leader_epochs.decode(there.indexes[IndexType.LEADER_EPOCH]) == {3: metadata.start_offset}


async def test_what_is_there_is_not_copied_again(source, target):
    metadata = await stored(source)
    copy = SegmentCopy(source=metadata, target=exported(metadata))
    await ensure_copied(copy, source, target)
    before = target.segments[copy.target.segment_id]
    await ensure_copied(copy, source, target)
    assert target.segments[copy.target.segment_id] is before


@pytest.mark.parametrize("part", ["log", "bit", "index"])
async def test_half_a_copy_is_replaced(source, target, part):
    metadata = await stored(source)
    copy = SegmentCopy(source=metadata, target=exported(metadata))
    await ensure_copied(copy, source, target)
    there = target.segments[copy.target.segment_id]
    if part == "log":
        there.log = there.log[:-1]
    elif part == "bit":
        there.log = bytes([*there.log[:100], there.log[100] ^ 1, *there.log[101:]])
    else:
        there.indexes[IndexType.TIMESTAMP] = b""
    await ensure_copied(copy, source, target)
    assert target.segments[copy.target.segment_id] == source.segments[metadata.segment_id]


class Damaging(MemoryRemoteStorage):
    """Damages a bit of every log that it is given."""

    async def copy(self, metadata, data):
        custom_metadata = await super().copy(metadata, data)
        stored = self.segments[metadata.segment_id]
        stored.log = stored.log[:-1] + bytes([stored.log[-1] ^ 1])
        return custom_metadata


@pytest.mark.parametrize("custom_metadata", [None, b"here"])
async def test_a_copy_that_differs_from_what_was_read_is_an_error(source, custom_metadata):
    metadata = await stored(source)
    copy = SegmentCopy(source=metadata, target=exported(metadata))
    with pytest.raises(SegmentDamagedError, match="is not what was written to remote storage"):
        await copy_segment(copy, source, Damaging(custom_metadata=custom_metadata))


def damaged(data):
    return {
        "bit": data[:-1] + bytes([data[-1] ^ 1]),
        "torn": data[:-5],
        "format": data[:16] + b"\x01" + data[17:],
        "order": data[record_batch.read_header(data).size :] + data[: record_batch.read_header(data).size],
    }


@pytest.mark.parametrize("how", ["bit", "torn", "format", "order"])
async def test_a_damaged_log_is_not_copied(source, target, how):
    metadata = await stored(source, data=damaged(random_segment(1).data)[how])
    copy = SegmentCopy(source=metadata, target=exported(metadata))
    with pytest.raises(SegmentDamagedError):
        await copy_segment(copy, source, target)
    assert not any(segment.is_complete for segment in target.segments.values())


async def test_a_log_that_is_too_short_is_not_copied(source, target):
    metadata = await stored(source)
    metadata = replace(metadata, segment_size_bytes=metadata.segment_size_bytes + 1)
    with pytest.raises(SegmentDamagedError, match="less than its metadata says"):
        await copy_segment(SegmentCopy(source=metadata, target=exported(metadata)), source, target)


async def test_offsets_that_are_not_the_segments_own_are_not_copied(source, target):
    metadata = await stored(source)
    wrong = replace(metadata, end_offset=metadata.end_offset - 1)
    with pytest.raises(SegmentDamagedError, match="comes next"):
        await copy_segment(SegmentCopy(source=wrong, target=exported(wrong)), source, target)
