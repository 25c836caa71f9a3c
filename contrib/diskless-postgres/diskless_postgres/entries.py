"""Entries as rows: what identifies one, the checksum over all of it, and how a damaged or a foreign row is told. Pure.

Each row names the nonce of its append and that of the row before it, so the rows of a shard are a chain. A tail that
was lost and written again by others has other nonces.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogBatch
from diskless_core.plugin.shard import ShardId

NO_NONCE = uuid.UUID(int=0)
"""Stands for the nonce of the row before the first one."""

_OFFSET = struct.Struct(">q")


class LostTailError(CoordinatorLogError):
    """Entries that were committed are not there any more. The shard is used no longer."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table of entries."""

    offset: int
    nonce: uuid.UUID
    previous: uuid.UUID
    checksum: int
    data: bytes


def checksum_of(shard: ShardId, offset: int, nonce: uuid.UUID, previous: uuid.UUID, data: bytes) -> int:
    """CRC-32 of a row."""
    head = str(shard).encode() + _OFFSET.pack(offset) + nonce.bytes + previous.bytes
    return zlib.crc32(data, zlib.crc32(head))


def checksums_of(
    shard: ShardId, offset: int, nonce: uuid.UUID, previous: uuid.UUID, batches: Sequence[bytes]
) -> list[int]:
    """The checksums of the rows of one append, which begins at `offset` behind a row with the nonce `previous`."""
    return [
        checksum_of(shard, offset + index, nonce, nonce if index else previous, data)
        for index, data in enumerate(batches)
    ]


def as_batches(
    shard: ShardId, expected_offset: int, previous: uuid.UUID | None, rows: Sequence[Row]
) -> tuple[list[LogBatch], uuid.UUID | None]:
    """Rows as entries, and the nonce of the last one. They have to begin at `expected_offset` and have no gaps.

    Args:
        previous: the nonce of the row that was read before; None if none was.

    Raises:
        LostTailError: the rows do not follow the one that was read before.
        CoordinatorLogError: a row is missing or damaged.
    """
    batches = []
    for row in rows:
        if row.offset != expected_offset:
            raise missing(shard, expected_offset)
        if row.checksum != checksum_of(shard, row.offset, row.nonce, row.previous, row.data):
            raise CoordinatorLogError(
                f"the entry {row.offset} of {shard} is damaged: its checksum is wrong. Restore the table 'entries'"
            )
        if previous is not None and row.previous != previous:
            raise lost(shard, f"the entry before {row.offset} is another one than this broker has read")
        previous = row.nonce
        expected_offset += 1
        batches.append(LogBatch(row.offset, row.offset + 1, row.data))
    return batches, previous


def missing(shard: ShardId, offset: int) -> CoordinatorLogError:
    """A row that has to be there is not."""
    return CoordinatorLogError(f"the entry {offset} of {shard} is missing in the table 'entries': restore it")


def lost(shard: ShardId, what: str) -> LostTailError:
    """A committed tail is gone."""
    return LostTailError(
        f"the log of {shard} went back: {what}. Committed entries are lost, as when a replica is promoted that had not "
        "got them. Nothing more is read or written; bring back the server that has them, or restore the cluster"
    )
