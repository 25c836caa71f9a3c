"""All coordinator shards of a node, on the configured log and store (KIP-1164, "Leadership and deployment").

Where other nodes can have the same log, this one may lead some of the shards, or none, and follows the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from diskless_core.broker.errors import StartError
from diskless_core.cluster import operations
from diskless_core.cluster.records import ClusterRecord
from diskless_core.cluster.state_machine import CLUSTER, CLUSTER_ID, ClusterMachine
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.shard import CoordinatorShard, ShardServices
from diskless_core.coordinator.state_machine import StateMachine
from diskless_core.coordinator.status import ShardStatus, shard_status
from diskless_core.diskless.operations import CommitRules
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.groups.state_machine import GroupsMachine, GroupsRecord
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import CLUSTER_SHARD, DISKLESS, GROUPS_SHARD, short_name

PATIENCE_S = 10.0
"""How long a start waits before it says what for, each time anew."""

LOOK_S = 0.1
"""How often a node looks for what another one is about to write."""


def shard_machines(diskless_shards: int) -> Mapping[ShardId, StateMachine[Any]]:
    """All shards of a node, of which so many are diskless ones, and what each of them is."""
    return {
        CLUSTER_SHARD: ClusterMachine(),
        **{DISKLESS.shard(index): DisklessMachine() for index in range(diskless_shards)},
        GROUPS_SHARD: GroupsMachine(),
    }


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinators:
    """The cluster shard, the diskless shards by index, and the groups shard."""

    cluster: CoordinatorShard[ClusterRecord]
    diskless: Mapping[int, DisklessShard]
    groups: CoordinatorShard[GroupsRecord]
    log: CoordinatorLog

    @classmethod
    def build(cls, services: ShardServices, rules: CommitRules, diskless_shards: int) -> Coordinators:
        """Make them; nothing is started.

        Raises:
            StartError: a shard may be led by other nodes only, and there are none.
        """
        machines = shard_machines(diskless_shards)
        _require_candidate(services, machines)
        shards = {shard_id: CoordinatorShard(shard_id, machine, services) for shard_id, machine in machines.items()}
        return cls(
            cluster=shards[CLUSTER_SHARD],
            diskless={
                shard_id.index: DisklessShard(shard, rules)
                for shard_id, shard in shards.items()
                if shard_id.topic == DISKLESS.topic
            },
            groups=shards[GROUPS_SHARD],
            log=services.log,
        )

    def all(self) -> list[CoordinatorShard[Any]]:
        return [self.cluster, *(shard.shard for shard in self.diskless.values()), self.groups]

    async def status(self, *, count: bool) -> Sequence[ShardStatus]:
        """How all shards are doing. Arguments and errors as `shard_status`."""
        return [await shard_status(shard, self.log, count=count) for shard in self.all()]

    async def start(self) -> None:
        """Start all shards, and wait until this node leads each of them or follows whoever does: see `CoordinatorShard.obstacle`.

        Raises:
            StartError: there are more diskless shards than are configured; nothing was started.
            CoordinatorError, CoordinatorLogError, CoordinatorStoreError: a shard cannot be started.
        """
        await self._require_all_shards()
        await asyncio.gather(*(shard.start() for shard in self.all()))
        serving = asyncio.gather(*(shard.until_serving() for shard in self.all()))
        try:
            while not (await asyncio.wait([serving], timeout=PATIENCE_S))[0]:
                obstacles = [shard.obstacle for shard in self.all() if shard.obstacle is not None]
                _log.warning("the broker cannot start yet", waiting_for=obstacles)
            await serving
        finally:
            serving.cancel()

    async def _require_all_shards(self) -> None:
        """Partitions keep the shard that they were created in, and a shard its objects."""
        configured = existing = len(self.diskless)
        while (await self.log.bounds(DISKLESS.shard(existing))).end > 0:
            existing += 1
        if existing > configured:
            raise StartError(
                f"diskless.metadata.topic.num.partitions is {configured}, but the log has {existing} Diskless "
                f"coordinators, and partitions stay with theirs. Set it to {existing} or more"
            )

    async def cluster_id(self, wanted: str, check_new: Callable[[], Awaitable[None]]) -> str:
        """The cluster's id, once it has one. While this node leads the cluster shard, that is `wanted` if need be.

        Args:
            check_new: called before a cluster gets its id, and so before anything is in its log. What it raises is
                passed on.

        Raises:
            CoordinatorError: the cluster shard cannot be used on this node.
        """
        while True:
            known = self.cluster.state.committed(CLUSTER, CLUSTER_ID)
            if known is not None:
                return known
            await self.cluster.until_serving()
            try:
                await self.cluster.barrier()  # whoever does not lead may only not have heard of the id yet
                if self.cluster.state.committed(CLUSTER, CLUSTER_ID) is None:
                    await check_new()
                return await self.cluster.submit(lambda command: operations.name_cluster(command, wanted))
            except CoordinatorError:
                await asyncio.sleep(LOOK_S)

    async def stop(self) -> None:
        await asyncio.gather(*(shard.stop() for shard in self.all()))


def _require_candidate(services: ShardServices, shards: Iterable[ShardId]) -> None:
    barred = [short_name(shard) for shard in shards if not services.may_lead(shard)]
    if barred and not services.log.is_shared:
        raise StartError(
            f"diskless.coordinator.placement does not let broker {services.node_id} lead {', '.join(barred)}, and "
            f"nobody else can: the coordinator log is of this broker alone. Add the broker there, or choose a "
            f"coordinator_log that brokers share"
        )
