"""Which batches become one row: adjacent ones of a partition in one object make a run. Pure.

(KIP-1164, "Local state machine".)
"""

from __future__ import annotations

from collections.abc import Sequence

from diskless_core.diskless.commands import Run
from diskless_core.protocol.file_committed import CommittedBatch

MAX_RUN_BYTES = 1 << 20
"""Adjacent batches become one row up to this size; a reader of a run walks at most this much."""

_NO_RUN = -1

_run = tuple.__new__
"""Makes named tuples without the call of a Python function that their constructor is."""


def coalesce(object_key: str, batches: Sequence[CommittedBatch], bytes_before: int = 0) -> list[Run]:
    """The runs that one partition's batches of an object make: adjacent in bytes and offsets, of one kind of time.

    Args:
        bytes_before: what was appended to the partition before them.
    """
    runs: list[Run] = []
    next_byte = next_offset = kind = _NO_RUN
    first_byte = first_offset = size = time = latest = 0
    for _, byte_offset, byte_size, base_offset, last_offset, append_time, max_timestamp, timestamp_type, *_ in batches:
        if (
            byte_offset == next_byte
            and base_offset == next_offset
            and timestamp_type == kind
            and size + byte_size <= MAX_RUN_BYTES
        ):
            size += byte_size
            if max_timestamp > latest:
                latest = max_timestamp
        else:
            if kind != _NO_RUN:
                last = next_offset - 1
                runs.append(
                    _run(Run, (first_offset, last, object_key, first_byte, size, time, latest, kind, bytes_before))
                )
                bytes_before += size
            first_byte, first_offset, size, kind = byte_offset, base_offset, byte_size, timestamp_type
            time, latest = append_time, max_timestamp
        next_byte, next_offset = byte_offset + byte_size, last_offset + 1
    if kind != _NO_RUN:
        place = (first_offset, next_offset - 1, object_key, first_byte, size)
        runs.append(_run(Run, (*place, time, latest, kind, bytes_before)))
    return runs
