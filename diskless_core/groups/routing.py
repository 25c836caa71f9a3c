"""Which groups shard has a group: Apache Kafka's rule, so that tools that compute it are right. Pure."""

from __future__ import annotations

_INT_MIN = -(1 << 31)


def shard_index(group_id: str, count: int) -> int:
    """The index of the shard, of `count`, that has a group."""
    hashed = _java_hash(group_id)
    return (0 if hashed == _INT_MIN else abs(hashed)) % count


def _java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, a signed 32-bit number."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    hashed = 0
    for unit in units:
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed >> 31 else hashed
