"""Which batches become one row: adjacent ones of a partition in one object make a run. Pure.

A run is bounded in bytes and in offsets: it goes into a segment whole, and a segment's indexes have offsets of 32 bits.

(KIP-1164, "Local state machine".)
"""

from __future__ import annotations

from collections.abc import Sequence

from diskless_core.log.segment_indexer import MAX_OFFSETS
from diskless_core.protocol.file_committed import CommittedBatch
from diskless_core.wal.runs import Run, make_run

MAX_RUN_BYTES = 1 << 20
"""Adjacent batches become one row up to this size; a reader of a run walks at most this much."""


def coalesce(object_key: str, batches: Sequence[CommittedBatch], bytes_before: int = 0) -> list[Run]:
    """The runs that one partition's batches of an object make: adjacent in bytes and offsets, of one kind of time.

    Args:
        bytes_before: what was appended to the partition before them.
    """
    runs: list[Run] = []
    first: CommittedBatch | None = None
    next_byte = next_offset = size = latest = 0
    for batch in batches:
        byte_offset, byte_size, max_timestamp = batch.byte_offset, batch.byte_size, batch.batch_max_timestamp
        if (
            first is not None
            and byte_offset == next_byte
            and batch.base_offset == next_offset
            and batch.timestamp_type == first.timestamp_type
            and size + byte_size <= MAX_RUN_BYTES
            and batch.last_offset - first.base_offset <= MAX_OFFSETS
        ):
            size += byte_size
            if max_timestamp > latest:
                latest = max_timestamp
        else:
            if first is not None:
                runs.append(_run(first, next_offset - 1, object_key, size, latest, bytes_before))
                bytes_before += size
            first, size, latest = batch, byte_size, max_timestamp
        next_byte, next_offset = byte_offset + byte_size, batch.last_offset + 1
    if first is not None:
        runs.append(_run(first, next_offset - 1, object_key, size, latest, bytes_before))
    return runs


def _run(
    first: CommittedBatch, last_offset: int, object_key: str, byte_size: int, max_timestamp: int, bytes_before: int
) -> Run:
    return make_run(
        base_offset=first.base_offset,
        last_offset=last_offset,
        object_key=object_key,
        byte_offset=first.byte_offset,
        byte_size=byte_size,
        append_time=first.log_append_timestamp,
        max_timestamp=max_timestamp,
        timestamp_type=first.timestamp_type,
        bytes_before=bytes_before,
    )
