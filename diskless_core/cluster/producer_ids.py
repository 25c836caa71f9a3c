"""Producer ids that no broker ever hands out twice: taken in blocks from the cluster shard."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from diskless_core.cluster import operations
from diskless_core.cluster.shard import ClusterShard


class ProducerIds:
    """One broker's supply. What is left of a block at a restart is never used."""

    def __init__(self, cluster: ClusterShard, node_id: int) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._block: Iterator[int] = iter(())
        self._refill = asyncio.Lock()

    async def next(self) -> int:
        """A fresh producer id.

        Raises:
            CoordinatorError: a new block was needed and could not be had.
        """
        async with self._refill:
            producer_id = next(self._block, None)
            if producer_id is None:
                block = await self._cluster.submit(lambda command: operations.take_producer_ids(command, self._node_id))
                self._block = iter(block)
                producer_id = next(self._block)
            return producer_id
