"""What a client may do. Without an authorizer everything is allowed, and so it is shown."""

from __future__ import annotations

ALL_CLUSTER_OPERATIONS = frozenset({5, 7, 8, 9, 10, 11, 12})
"""Kafka's AclOperation codes for a cluster: CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, the configs', IDEMPOTENT_WRITE."""

ALL_TOPIC_OPERATIONS = frozenset({3, 4, 5, 6, 7, 8, 10, 11})
"""For a topic: READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, and the configs'."""


def as_bits(operations: frozenset[int]) -> int:
    """The operations as a message has them whose schema gives them no type of their own."""
    return sum(1 << operation for operation in operations)
