"""The cluster shard on one node: whose cluster it is, and which Diskless shards it uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from diskless_core.cluster import coordinator_counts, feature_levels, operations
from diskless_core.cluster.operations import Refusal
from diskless_core.cluster.records import ClusterRecord
from diskless_core.cluster.state_machine import ClusterMachine
from diskless_core.cluster.tables import CLUSTER, CLUSTER_ID, LOADS, TOPICS
from diskless_core.coordinator.errors import CoordinatorError, NotControllerError, NotCoordinatorError
from diskless_core.coordinator.shard import CoordinatorShard, ShardServices, SlicedOperation
from diskless_core.coordinator.tables import Key, Table
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import ShardKind

R = TypeVar("R")

LOOK_S = 0.1
"""How often a node looks for what another one is about to write."""


class ClusterShard(CoordinatorShard[ClusterRecord]):
    """The one shard that has the topics. Its leader is the controller: other nodes refuse with NotControllerError.

    Attributes:
        supported_levels: the levels of `diskless.version` that this node's build supports.
    """

    def __init__(self, shard_id: ShardId, services: ShardServices) -> None:
        super().__init__(shard_id, ClusterMachine(), services)
        self.supported_levels = services.levels.supported
        self._node_id = services.node_id

    async def submit_in_slices(
        self, operation: SlicedOperation[ClusterRecord, R], prefetch: Sequence[tuple[Table[Any], Key]] = ()
    ) -> R:
        """As any shard's."""
        try:
            return await super().submit_in_slices(operation, prefetch)
        except NotCoordinatorError as error:
            raise NotControllerError(f"node {self._node_id} is not the controller") from error

    async def barrier(self) -> None:
        """As any shard's."""
        try:
            await super().barrier()
        except NotCoordinatorError as error:
            raise NotControllerError(f"node {self._node_id} is not the controller") from error

    @property
    def has_topics(self) -> bool:
        """Whether this node knows of any topic."""
        return self.state.row_count(TOPICS) > 0

    def recorded_count(self, kind: ShardKind) -> int:
        """How many shards there are of a kind whose number is recorded; 1 where no record says otherwise."""
        return coordinator_counts.recorded(dict(self.state.rows(CLUSTER)), kind.topic)

    async def cluster_id(
        self,
        wanted: str,
        check_new: Callable[[], Awaitable[None]],
        counts: Mapping[ShardKind, int] = MappingProxyType({}),
    ) -> str:
        """The cluster's id, once it has one. While this node leads the shard, that is `wanted` if need be.

        Args:
            counts: how many shards a new cluster has of the kinds whose number is recorded.
            check_new: called before a cluster gets its id, and so before anything is in its log. What it raises is
                passed on.

        Raises:
            CoordinatorError: the shard cannot be used on this node.
        """
        level, log_id = self.supported_levels.newest, self._services.clock.new_uuid()
        by_topic = {kind.topic: count for kind, count in counts.items()}
        while True:
            known = self.state.committed(CLUSTER, CLUSTER_ID)
            if known is not None:
                return known
            await self.until_serving()
            try:
                await self.barrier()  # a node that does not lead may only not have heard of the id yet
                if self.state.committed(CLUSTER, CLUSTER_ID) is None:
                    await check_new()
                return await self.submit(
                    lambda command: operations.name_cluster(
                        command, wanted, level=level, log_id=log_id, counts=by_topic
                    )
                )
            except CoordinatorError:
                await asyncio.sleep(LOOK_S)

    async def raise_level(self, wanted: int, *, validate_only: bool = False) -> Refusal | None:
        """Raise the cluster's level of `diskless.version`; see `feature_levels.raise_level`.

        Raises:
            CoordinatorError: no definite answer.
        """
        return await self.submit(
            lambda command: feature_levels.raise_level(
                command,
                wanted,
                build=self.supported_levels,
                brokers=feature_levels.registered_levels(command.tx),
                validate_only=validate_only,
            )
        )

    async def shards_in_use(self) -> set[int]:
        """Indexes of the Diskless shards that have partitions, strictly: no topic created before the call is missed.

        Raises:
            NotControllerError: another node leads the shard and has to be asked.
            CoordinatorError: no answer.
        """
        await self.barrier()
        return {shard for (shard,), _ in self.state.rows(LOADS)}
