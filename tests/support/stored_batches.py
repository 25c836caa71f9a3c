"""Batches in a log that Produce would refuse, as an earlier release took them: they are committed past its checks."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from diskless_core.diskless.commands import BatchResult, CommitBatch
from diskless_core.protocol.record_batch import read_header
from diskless_core.wal import format as wal_format
from diskless_core.wal.format import IndexEntry
from tests.support.produce_path import ProducePath
from tests.support.shards import TOPIC, commit_of


async def store_batches(path: ProducePath, *batches: bytes, partition: int = 0) -> Sequence[BatchResult]:
    """Write one object with these batches of a partition, and commit them with what their headers say."""
    data = wal_format.HEADER + b"".join(batches)
    commits = [_commit(batch, partition) for batch in batches]
    records = sum(commit.record_count for commit in commits)
    entry = IndexEntry(
        TOPIC, partition, wal_format.HEADER_BYTES, len(data) - len(wal_format.HEADER), len(batches), records
    )
    key = wal_format.object_key("wal", path.clock.now_ms(), uuid.uuid4())
    await path.objects.put(key, data + wal_format.encode_footer([entry], len(data)))
    return await path.node.commit(commit_of(key, *commits))


def _commit(batch: bytes, partition: int) -> CommitBatch:
    header = read_header(batch)
    return CommitBatch(
        topic_id=TOPIC,
        partition=partition,
        byte_offset=0,
        size=len(batch),
        record_count=header.last_offset_delta + 1,
        max_timestamp=header.max_timestamp,
        timestamp_type=0,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_sequence=-1,
    )
