"""Reads what a consumer far behind will ask for next, while it is busy with what it has.

Only those that were just served from the object store are read for: consumers at the tail find everything in the
cache. What is read lands in the cache; a Fetch that comes before it is complete joins the read.
"""

from __future__ import annotations

import asyncio

import structlog

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.fetch.object_reader import ObjectReader
from diskless_core.plugin.coordinator_store import CoordinatorStoreError

_log = structlog.get_logger(__name__)


class ReadAhead:
    """All reads ahead of a broker, together at most `max_bytes` at a time; what is beyond that is not read ahead."""

    def __init__(self, reader: ObjectReader, max_bytes: int) -> None:
        self._reader = reader
        self._max_bytes = max_bytes
        self._bytes = 0
        self._under_way: dict[tuple[PartitionKey, int], asyncio.Task[None]] = {}

    def begin(self, shard: DisklessShard, partition: PartitionKey, offset: int, size_bytes: int) -> None:
        """Read about `size_bytes` of a partition from `offset` on in the background."""
        place = (partition, offset)
        if place in self._under_way or self._bytes + size_bytes > self._max_bytes:
            return
        self._bytes += size_bytes
        task = asyncio.create_task(self._read(shard, partition, offset, size_bytes), name="read ahead")
        self._under_way[place] = task

        def end(_: asyncio.Task[None]) -> None:
            self._bytes -= size_bytes
            del self._under_way[place]

        task.add_done_callback(end)

    async def _read(self, shard: DisklessShard, partition: PartitionKey, offset: int, size_bytes: int) -> None:
        try:
            found = await shard.find(partition, offset, size_bytes)
        except (CoordinatorError, CoordinatorStoreError) as error:
            _log.debug("not read ahead", error=str(error))  # whoever wants it will be told
            return
        await self._reader.load(found.runs)

    async def stop(self) -> None:
        """End what is under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
