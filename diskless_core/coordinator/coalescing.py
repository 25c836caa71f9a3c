"""Which batches become one row: adjacent ones of a partition in one object make a run. Pure.

(KIP-1164, "Local state machine".)
"""

from __future__ import annotations

from collections.abc import Sequence

from diskless_core.coordinator.commands import Run
from diskless_core.protocol.file_committed import CommittedBatch

MAX_RUN_BYTES = 1 << 20
"""Adjacent batches become one row up to this size; a reader of a run walks at most this much."""


def coalesce(object_key: str, batches: Sequence[CommittedBatch], bytes_before: int = 0) -> list[Run]:
    """The runs that one partition's batches of an object make: adjacent in bytes and offsets, of one kind of time.

    Args:
        bytes_before: what was appended to the partition before them.
    """
    runs: list[Run] = []
    next_byte = next_offset = kind = -1
    for batch in batches:
        _, byte_offset, byte_size, base_offset, last_offset, append_time, max_timestamp, timestamp_type, *_ = batch
        if byte_offset == next_byte and base_offset == next_offset and timestamp_type == kind:
            run = runs[-1]
            if run.byte_size + byte_size <= MAX_RUN_BYTES:
                runs[-1] = run._replace(
                    last_offset=last_offset,
                    byte_size=run.byte_size + byte_size,
                    max_timestamp=max(run.max_timestamp, max_timestamp),
                )
                next_byte, next_offset = byte_offset + byte_size, last_offset + 1
                bytes_before += byte_size
                continue
        runs.append(
            Run(
                base_offset,
                last_offset,
                object_key,
                byte_offset,
                byte_size,
                append_time,
                max_timestamp,
                timestamp_type,
                bytes_before,
            )
        )
        next_byte, next_offset, kind = byte_offset + byte_size, last_offset + 1, timestamp_type
        bytes_before += byte_size
    return runs
