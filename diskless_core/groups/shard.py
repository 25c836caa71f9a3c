"""A groups shard on one node."""

from __future__ import annotations

from diskless_core.coordinator.shard import CoordinatorShard, ShardServices
from diskless_core.groups.records import GroupsRecord
from diskless_core.groups.state_machine import GroupsMachine
from diskless_core.plugin.shard import ShardId


class GroupsShard(CoordinatorShard[GroupsRecord]):
    """One partition of `__consumer_offsets`."""

    def __init__(self, shard_id: ShardId, services: ShardServices) -> None:
        super().__init__(shard_id, GroupsMachine(), services)
