"""All coordinator shards of a node, on the configured log and store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diskless_core.cluster.machine import ClusterMachine
from diskless_core.cluster.records import ClusterRecord
from diskless_core.coordinator.client import DisklessShard
from diskless_core.coordinator.operations import CommitRules
from diskless_core.coordinator.runtime import Shard, ShardServices
from diskless_core.coordinator.state import DisklessMachine
from diskless_core.groups.machine import GroupsMachine, GroupsRecord
from diskless_core.plugin.shard import ShardId, ShardKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinators:
    """The cluster shard, the diskless shards by index, and the groups shard."""

    cluster: Shard[ClusterRecord]
    diskless: Mapping[int, DisklessShard]
    groups: Shard[GroupsRecord]

    @classmethod
    def build(cls, services: ShardServices, rules: CommitRules, diskless_shards: int) -> Coordinators:
        """Make them; nothing is started."""
        return cls(
            cluster=Shard(ShardId(ShardKind.CLUSTER, 0), ClusterMachine(), services),
            diskless={
                index: DisklessShard(Shard(ShardId(ShardKind.DISKLESS, index), DisklessMachine(), services), rules)
                for index in range(diskless_shards)
            },
            groups=Shard(ShardId(ShardKind.GROUPS, 0), GroupsMachine(), services),
        )

    def all(self) -> list[Shard[Any]]:
        return [self.cluster, *(shard.shard for shard in self.diskless.values()), self.groups]

    async def start(self) -> None:
        """Start all shards and wait until this node leads them."""
        await asyncio.gather(*(shard.start() for shard in self.all()))
        await asyncio.gather(*(shard.until_leading() for shard in self.all()))

    async def stop(self) -> None:
        await asyncio.gather(*(shard.stop() for shard in self.all()))
