"""Takes the state of a shard out of a log that others lead and write to, for a cluster elsewhere to begin with.

Nothing is written to the log or beside it: the shard is followed here, as by a broker that is never nominated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from diskless_core.clock import Clock
from diskless_core.coordinator.log_identity import LogName, log_name_of
from diskless_core.coordinator.regrouping import Rows
from diskless_core.coordinator.shard import CoordinatorShard, ShardServices
from diskless_core.coordinator.snapshots import Beginning, Snapshots
from diskless_core.coordinator.state_machine import StateMachine
from diskless_core.plugin.context import TOOL_NODE_ID
from diskless_core.plugin.coordinator_log import CoordinatorLog, LeadershipHint
from diskless_core.plugin.coordinator_store import CoordinatorStore, Key
from diskless_core.plugin.shard import ShardId
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
        store: of the caller alone. It keeps what was read, so that a later point of a shard is quick.
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

    @asynccontextmanager
    async def caught_up(self, shard_id: ShardId, machine: StateMachine[Any]) -> AsyncIterator[CoordinatorShard[Any]]:
        """The shard with all that was in its log when this was called.

        Raises:
            CoordinatorError, CoordinatorLogError, CoordinatorStoreError: a backend failed, or its content is gone.
        """
        shard = CoordinatorShard(shard_id, machine, self._services)
        try:
            await shard.start()
            await shard.until_caught_up()
            yield shard
        finally:
            await shard.stop()

    async def put(
        self,
        shard: CoordinatorShard[Any],
        *,
        instead: Rows = MappingProxyType({}),
        without: Mapping[str, Collection[Key]] = MappingProxyType({}),
    ) -> ShardPoint:
        """Put a shard's state into the target, and read it back.

        Args:
            instead: small tables that have these rows where the shard goes on.
            without: keys by tables' names whose rows it does not have there.

        Raises:
            CoordinatorStoreError, WalObjectStoreError, SnapshotError: as `Snapshots.take`.
        """
        await shard.flush()
        offset = shard.next_offset
        known = log_name_of(shard.state)
        former = known.log_id if known is not None else self._clock.new_uuid()
        name = LogName(self._clock.new_uuid(), former)
        manifest = await shard.take_snapshot(self._target, Beginning(name, instead, without))
        return ShardPoint(offset=offset, name=name, manifest=manifest)
