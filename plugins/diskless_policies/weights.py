"""Highest-random-weight hashing: how much a shard would like to have a broker, the same in every process."""

from __future__ import annotations

from hashlib import blake2b


def weight(shard: int, node_id: int) -> int:
    """A number of 64 bits that looks random, for a pair. Weights of other pairs do not depend on it."""
    return int.from_bytes(blake2b(b"%d/%d" % (shard, node_id), digest_size=8).digest(), "big")
