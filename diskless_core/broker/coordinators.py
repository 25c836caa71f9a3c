"""All coordinator shards of a node, on the configured log and store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diskless_core.cluster.machine import ClusterMachine
from diskless_core.cluster.records import ClusterRecord
from diskless_core.coordinator.client import DisklessShard
from diskless_core.coordinator.machine import StateMachine
from diskless_core.coordinator.operations import CommitRules
from diskless_core.coordinator.runtime import Shard, ShardServices
from diskless_core.coordinator.state import DisklessMachine
from diskless_core.coordinator.status import ShardStatus, shard_status
from diskless_core.groups.machine import GroupsMachine, GroupsRecord
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.shard import ShardId, ShardKind

CLUSTER_SHARD = ShardId(ShardKind.CLUSTER, 0)
GROUPS_SHARD = ShardId(ShardKind.GROUPS, 0)


def shard_machines(diskless_shards: int) -> Mapping[ShardId, StateMachine[Any]]:
    """All shards of a node, of which so many are diskless ones, and what each of them is."""
    return {
        CLUSTER_SHARD: ClusterMachine(),
        **{ShardId(ShardKind.DISKLESS, index): DisklessMachine() for index in range(diskless_shards)},
        GROUPS_SHARD: GroupsMachine(),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinators:
    """The cluster shard, the diskless shards by index, and the groups shard."""

    cluster: Shard[ClusterRecord]
    diskless: Mapping[int, DisklessShard]
    groups: Shard[GroupsRecord]
    log: CoordinatorLog

    @classmethod
    def build(cls, services: ShardServices, rules: CommitRules, diskless_shards: int) -> Coordinators:
        """Make them; nothing is started."""
        shards = {
            shard_id: Shard(shard_id, machine, services)
            for shard_id, machine in shard_machines(diskless_shards).items()
        }
        return cls(
            cluster=shards[CLUSTER_SHARD],
            diskless={
                shard_id.index: DisklessShard(shard, rules)
                for shard_id, shard in shards.items()
                if shard_id.kind is ShardKind.DISKLESS
            },
            groups=shards[GROUPS_SHARD],
            log=services.log,
        )

    def all(self) -> list[Shard[Any]]:
        return [self.cluster, *(shard.shard for shard in self.diskless.values()), self.groups]

    async def status(self, *, count: bool) -> Sequence[ShardStatus]:
        """How all shards are doing. Arguments and errors as `shard_status`."""
        return [await shard_status(shard, self.log, count=count) for shard in self.all()]

    async def start(self) -> None:
        """Start all shards and wait until this node leads them."""
        await asyncio.gather(*(shard.start() for shard in self.all()))
        await asyncio.gather(*(shard.until_leading() for shard in self.all()))

    async def stop(self) -> None:
        await asyncio.gather(*(shard.stop() for shard in self.all()))
