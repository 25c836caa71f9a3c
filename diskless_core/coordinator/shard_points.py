"""Takes the state of a shard out of a log that others lead and write to, for a cluster elsewhere to begin with.

Nothing is written to the log or beside it: the shard is followed here, as by a broker that is never nominated, and
stopped where the log ended. What it has then stays as it is until it is followed again, so what a point is to have can
be decided by the states of several shards.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from diskless_core.clock import Clock
from diskless_core.coordinator import entries
from diskless_core.coordinator.log_identity import LogName, stored_name
from diskless_core.coordinator.regrouping import Rows
from diskless_core.coordinator.shard import CoordinatorShard, ShardServices
from diskless_core.coordinator.shard_store import StoreThread
from diskless_core.coordinator.snapshots import Beginning, Snapshots
from diskless_core.coordinator.state_machine import StateMachine
from diskless_core.coordinator.tables import Table
from diskless_core.plugin.context import TOOL_NODE_ID
from diskless_core.plugin.coordinator_log import CoordinatorLog, LeadershipHint
from diskless_core.plugin.coordinator_store import CoordinatorStore, Key, Row
from diskless_core.plugin.shard import ShardId
from diskless_core.snapshot import format as snapshot_format
from diskless_core.snapshot.format import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPoint:
    """A shard at one point of its log, as a snapshot with which it begins on another one.

    Attributes:
        offset: of the log that it was taken from: everything below is in it.
        name: of the log that begins with it.
    """

    offset: int
    name: LogName
    manifest: Manifest


class _Nobody:
    """Nominates nobody, ever."""

    async def leadership(self, shard: ShardId, *, candidate: bool = True) -> AsyncIterator[LeadershipHint]:
        del shard, candidate
        yield LeadershipHint(None, 0)
        await asyncio.Event().wait()


class ShardPoints:
    """Takes points of the shards of one cluster.

    Attributes:
        log: the cluster's.

    Args:
        log: open for reading.
        store: of the caller alone. It keeps what was read, so that to follow a shard again is quick.
        snapshots: the cluster's, for shards whose logs no longer begin at the beginning.
        target: where points are put.
    """

    def __init__(
        self, log: CoordinatorLog, store: CoordinatorStore, snapshots: Snapshots, target: Snapshots, clock: Clock
    ) -> None:
        self.log = log
        self._target = target
        self._clock = clock
        self._services = ShardServices(
            node_id=TOOL_NODE_ID,
            clock=clock,
            log=log,
            store=store,
            snapshots=snapshots,
            may_lead=lambda _: False,
            may_write=False,
            nominator=_Nobody(),
        )

    async def exists(self, shard: ShardId) -> bool:
        """Whether the log of a shard was ever written to."""
        return (await self.log.bounds(shard)).end > 0

    async def read_up(self, shard_id: ShardId, machine: StateMachine[Any]) -> CoordinatorShard[Any]:
        """Follow a shard until it has all that was in its log when this was called, and stop it.

        The store has the same as the shard's resident tables then, and its other tables.

        Raises:
            CoordinatorError, CoordinatorLogError, CoordinatorStoreError: a backend failed, or its content is gone.
        """
        shard = CoordinatorShard(shard_id, machine, self._services)
        try:
            await shard.start()
            await shard.until_caught_up()
        finally:
            await shard.stop()
        return shard

    @asynccontextmanager
    async def stored(self, shard_id: ShardId, machine: StateMachine[Any]) -> AsyncIterator[StoreThread]:
        """What `read_up` has left in the store.

        Raises:
            CoordinatorStoreError: it cannot be opened.
        """
        store = StoreThread(self._services.store, shard_id)
        try:
            await store.open(entries.tables_of(machine))
            yield store
        finally:
            await store.close()

    async def rows(self, shard_id: ShardId, machine: StateMachine[Any], table: Table[Any]) -> AsyncIterator[list[Row]]:
        """All rows of a table that `read_up` has left in the store, a page at a time. Errors as `stored`."""
        async with self.stored(shard_id, machine) as store:
            pages = await store.read(lambda stored: snapshot_format.pages(stored, table.spec))
            while (page := await store.read(lambda _: next(pages, None))) is not None:
                yield page

    async def put(
        self,
        shard_id: ShardId,
        machine: StateMachine[Any],
        log_id: uuid.UUID,
        *,
        instead: Rows = MappingProxyType({}),
        without: Mapping[str, Collection[Key]] = MappingProxyType({}),
    ) -> ShardPoint:
        """Put what `read_up` has left of a shard into the target, and read it back.

        Args:
            log_id: of the log that begins with it.
            instead: small tables that have these rows where the shard goes on.
            without: keys by tables' names whose rows it does not have there.

        Raises:
            CoordinatorStoreError, WalObjectStoreError, SnapshotError: as `Snapshots.take`.
        """
        async with self.stored(shard_id, machine) as store:
            offset = await store.read(lambda stored: stored.applied_offset())
            known = await store.read(stored_name)
            name = LogName(log_id, known.log_id if known is not None else self._clock.new_uuid())
            specs = [table.spec for table in entries.tables_of(machine)]
            manifest = await self._target.take(shard_id, specs, store, Beginning(name, instead, without))
        return ShardPoint(offset=offset, name=name, manifest=manifest)
