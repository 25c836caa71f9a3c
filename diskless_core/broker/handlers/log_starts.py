"""Where a partition begins, which Produce's answer tells even of a batch that was refused before it was submitted.

A broker with a copy of the partition's coordinator looks it up. One without asks the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from diskless_core.cluster.topics import Topics
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.commands import NO_OFFSET, PartitionKey, SpecialTimestamp
from diskless_core.side_by_side import side_by_side

ANSWER_S = 1.0
"""How long leaders are waited for. Producers do without the log start, so their answer does not wait for long."""


def known(topics: Topics, partition: PartitionKey) -> int | None:
    """By this node's copy; -1 where it has no such partition. None where it has no copy that has caught up."""
    shard = topics.replica_of(partition)
    if shard is not None and not shard.is_readable:
        return None
    head = shard.head(partition) if shard is not None else None
    return head.log_start_offset if head is not None else NO_OFFSET


async def asked(topics: Topics, partitions: Collection[PartitionKey]) -> dict[PartitionKey, int]:
    """By the leaders of the partitions' coordinators. Those that do not tell in time are missing."""
    found: dict[PartitionKey, int] = {}

    async def ask(partition: PartitionKey) -> None:
        coordinator = topics.coordinator_of(partition)
        if coordinator is None:
            return
        try:
            found[partition] = (await coordinator.list_offsets(partition, SpecialTimestamp.EARLIEST)).offset
        except CoordinatorError:
            return

    try:
        async with asyncio.timeout(ANSWER_S):
            await side_by_side(ask, partitions)
    except TimeoutError:
        pass
    return found
