"""A topic's Diskless shards as a column of the cluster shard's table `placements`. Pure."""

from __future__ import annotations

import struct

_SHARD_BYTES = 4


def pack(shards: tuple[int, ...]) -> bytes:
    """Shard indexes, by partition, as the column has them: four bytes each, the most significant one first."""
    return struct.pack(f">{len(shards)}i", *shards)


def unpack(column: bytes) -> tuple[int, ...]:
    """The shard indexes back."""
    return struct.unpack(f">{len(column) // _SHARD_BYTES}i", column)
