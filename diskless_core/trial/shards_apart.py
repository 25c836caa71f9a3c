"""Logs and stores of shards as a trial sees them: with names of shards that no broker has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from diskless_core.plugin.coordinator_log import CoordinatorLog, LeadershipHint, LogBatch, LogBounds
from diskless_core.plugin.coordinator_store import CoordinatorStore, ShardStore, TableSpec
from diskless_core.plugin.forwarding import take_abilities
from diskless_core.plugin.shard import ShardId

_INTERNAL = "__"


def renamed(shard: ShardId, place: str) -> ShardId:
    """The shard of a trial that stands for `shard`."""
    return ShardId(f"{_INTERNAL}{place}_{shard.topic.removeprefix(_INTERNAL)}", shard.index)


class LogApart(CoordinatorLog):
    """Another log, with other names of shards.

    Args:
        place: what the names begin with.
        on_write: called with the shard, as the log behind knows it, before each append.
    """

    def __init__(self, behind: CoordinatorLog, place: str, on_write: Callable[[ShardId], None]) -> None:
        take_abilities(CoordinatorLog, behind, self)
        self._behind = behind
        self._place = place
        self._on_write = on_write

    async def start(self) -> None:
        await self._behind.start()
        take_abilities(CoordinatorLog, self._behind, self)

    async def start_reading(self) -> None:
        await self._behind.start_reading()

    async def stop(self) -> None:
        await self._behind.stop()

    async def append(self, shard: ShardId, batches: Sequence[bytes]) -> Sequence[int]:
        shard = renamed(shard, self._place)
        self._on_write(shard)
        return await self._behind.append(shard, batches)

    def read(self, shard: ShardId, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        return self._behind.read(renamed(shard, self._place), offset)

    async def bounds(self, shard: ShardId) -> LogBounds:
        return await self._behind.bounds(renamed(shard, self._place))

    def leadership(self, shard: ShardId, *, candidate: bool = True) -> AsyncIterator[LeadershipHint]:
        return self._behind.leadership(renamed(shard, self._place), candidate=candidate)

    def suspect(self, shard: ShardId, node_id: int) -> None:
        self._behind.suspect(renamed(shard, self._place), node_id)

    async def prune(self, shard: ShardId, before: int) -> None:
        await self._behind.prune(renamed(shard, self._place), before)


class StoreApart(CoordinatorStore):
    """Another store, with other names of shards."""

    def __init__(self, behind: CoordinatorStore, place: str) -> None:
        self._behind = behind
        self._place = place

    def open(self, shard: ShardId, tables: Sequence[TableSpec]) -> ShardStore:
        return self._behind.open(renamed(shard, self._place), tables)


def open_store_apart(source: Callable[[], CoordinatorStore], place: str) -> CoordinatorStore:
    """A store of a trial; with `functools.partial` it can be pickled where `source` can."""
    return StoreApart(source(), place)
