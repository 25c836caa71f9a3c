"""The topics of the cluster: looked up on the hot path, created and deleted across the cluster's and Diskless shards.

The cluster shard is the truth; the Diskless shards follow it, at once or when they can; see `topic_settling`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from diskless_core.background import end
from diskless_core.clock import Clock
from diskless_core.cluster import operations, tiering_configs, topic_configs
from diskless_core.cluster.configs import Configs, warn_of_no_effect
from diskless_core.cluster.operations import Growth, NewTopic, Refusal
from diskless_core.cluster.records import ClusterRecord, ResourceType
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.tables import CONFIGS, PLACEMENTS, TOPIC_IDS, TOPICS, UNSETTLED
from diskless_core.cluster.topic_settling import DeletionListener, Having, TopicSettling, as_they_are
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.state_machine import Command
from diskless_core.coordinator.tables import Writes
from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.plugin.shard import ShardId
from diskless_core.produce.validation import TopicRules
from diskless_core.tiering.planning import TopicTiering

COPIES_AT_ONCE = 4
"""Shards that clients' requests have copies of at the same time."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic as clients see it.

    Attributes:
        configs: its own settings.
        effective_configs: all settings by name, with the broker's where it has none of its own.
        rules: what follows from them for the batches that are produced to it.
    """

    name: str
    topic_id: uuid.UUID
    partition_count: int
    configs: Mapping[str, str]
    effective_configs: Mapping[str, str]
    rules: TopicRules

    def key(self, partition: int) -> PartitionKey | None:
        """The partition's key; None when the topic has no such partition."""
        return PartitionKey(self.topic_id.bytes, partition) if 0 <= partition < self.partition_count else None


class Topics:
    """All topics. Lookups answer from what this node knows now."""

    def __init__(
        self,
        cluster: ClusterShard,
        replicas: Mapping[int, DisklessShard],
        coordinators: Mapping[int, DisklessCoordinator],
        configs: Configs,
        clock: Clock,
        having: Having = as_they_are,
    ) -> None:
        self._having = having
        self._copies_for_clients = asyncio.Semaphore(COPIES_AT_ONCE)
        self._cluster = cluster
        self._replicas = replicas
        self._coordinators = coordinators
        self._configs = configs
        self._clock = clock
        self._by_id: dict[bytes, TopicInfo] = {}
        self._by_name: dict[str, TopicInfo] = {}
        self._deletion_listeners: list[DeletionListener] = []
        self._telling: set[asyncio.Task[None]] = set()
        self._settling = TopicSettling(cluster, replicas, coordinators, self._tell_listeners, clock, having)
        cluster.on_commit(self._forget_changed)

    def on_deletion(self, listener: DeletionListener) -> None:
        """Await `listener` with the ids and names of deleted topics, on every node.

        Where this node leads the cluster shard, it is part of the deletion, and of the completion of one that was
        interrupted. Another node hears of what is committed, and a failure there is only logged. A listener may be
        told of one topic more than once.
        """
        self._deletion_listeners.append(listener)

    # --- lookup --------------------------------------------------------------------------------------------------

    def by_name(self, name: str) -> TopicInfo | None:
        info = self._by_name.get(name)
        if info is not None:
            return info
        topic_id = self._cluster.state.committed(TOPIC_IDS, (name,))
        return self._load(topic_id) if topic_id is not None else None

    def by_id(self, topic_id: uuid.UUID) -> TopicInfo | None:
        return self._by_id.get(topic_id.bytes) or self._load(topic_id.bytes)

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        info = self.by_id(topic_id)
        return info.name if info is not None else None

    def id_of(self, name: str) -> uuid.UUID | None:
        info = self.by_name(name)
        return info.topic_id if info is not None else None

    def partition_count(self, name: str) -> int | None:
        info = self.by_name(name)
        return info.partition_count if info is not None else None

    def all(self) -> Iterator[TopicInfo]:
        """Every topic, by name."""
        for (name,), _ in sorted(self._cluster.state.rows(TOPIC_IDS)):
            info = self.by_name(name)
            if info is not None:
                yield info

    def shards_of(self, topic_id: uuid.UUID) -> Sequence[int]:
        """Which Diskless shard each partition of a topic belongs to, as far as that is known."""
        return self._cluster.state.committed(PLACEMENTS, (topic_id.bytes,)) or ()

    def shard_of(self, partition: PartitionKey) -> int | None:
        """Which diskless shard a partition belongs to."""
        placements = self._cluster.state.committed(PLACEMENTS, (partition.topic_id,))
        if placements is None or not 0 <= partition.partition < len(placements):
            return None
        return placements[partition.partition]

    def replica_of(self, partition: PartitionKey) -> DisklessShard | None:
        """What this node knows of a partition: its shard, led here or not, for reads that may be stale."""
        shard = self.shard_of(partition)
        return self._replicas.get(shard) if shard is not None else None

    def by_shard(self, partitions: Iterable[PartitionKey]) -> list[tuple[DisklessShard, list[PartitionKey]]]:
        """Partitions by what this node knows of them; without those that are nowhere."""
        found: dict[ShardId, tuple[DisklessShard, list[PartitionKey]]] = {}
        for key in partitions:
            shard = self.replica_of(key)
            if shard is not None:
                found.setdefault(shard.id, (shard, []))[1].append(key)
        return list(found.values())

    @asynccontextmanager
    async def having_copy(self, shard: DisklessShard) -> AsyncIterator[None]:
        """Have a copy of a shard that has caught up, as long as it lasts, for a client; errors as `Having`.

        There are `COPIES_AT_ONCE` of those.
        """
        async with self._copies_for_clients, self._having([shard]):
            yield

    def is_awaited(self, partition: PartitionKey) -> bool:
        """Whether a partition is created, and its Diskless coordinator does not have it yet, as this node knows.

        Without a copy of the coordinator it is known when the cluster knows it: a moment later.
        """
        replica = self.replica_of(partition)
        if replica is None:
            return False
        if replica.is_readable:
            return replica.head(partition) is None
        first = self._cluster.state.committed(UNSETTLED, (partition.topic_id,))
        return first is not None and partition.partition >= first

    def coordinator_of(self, partition: PartitionKey) -> DisklessCoordinator | None:
        """Who decides about a partition, for changes and strict reads."""
        shard = self.shard_of(partition)
        return self._coordinators.get(shard) if shard is not None else None

    def tiering_of(self, partition: PartitionKey) -> TopicTiering | None:
        """What a partition's topic says of its segments; None when there is no such topic."""
        info = self.by_id(uuid.UUID(bytes=partition.topic_id))
        return tiering_configs.topic_tiering(info.name, info.effective_configs) if info is not None else None

    def _load(self, topic_id: bytes) -> TopicInfo | None:
        state = self._cluster.state
        topic = state.committed(TOPICS, (topic_id,))
        if topic is None:
            return None
        configs = state.committed(CONFIGS, (int(ResourceType.TOPIC), topic.name)) or {}
        info = self._info(topic_id, topic.name, topic.partition_count, configs)
        self._by_id[topic_id] = self._by_name[topic.name] = info
        return info

    def _forget_changed(self, writes: Writes) -> None:
        self._notice_deletions(writes)
        for (topic_id,) in writes.get(TOPICS, ()):
            info = self._by_id.pop(topic_id, None)
            if info is not None:
                self._by_name.pop(info.name, None)
        for resource_type, name in writes.get(CONFIGS, ()):
            if resource_type == ResourceType.BROKER:  # every topic may follow it
                self._by_id.clear()
                self._by_name.clear()
                return
            info = self._by_name.pop(name, None)
            if info is not None:
                self._by_id.pop(info.topic_id.bytes, None)

    def _notice_deletions(self, writes: Writes) -> None:
        """Where this node leads, it deletes topics itself."""
        gone = [uuid.UUID(bytes=topic_id) for (topic_id,), topic in writes.get(TOPICS, {}).items() if topic is None]
        if gone and self._deletion_listeners and not self._cluster.leading:
            names = [name for (name,), topic_id in writes.get(TOPIC_IDS, {}).items() if topic_id is None]
            telling = asyncio.create_task(self._tell_of_deletions(gone, names), name="deleted topics")
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    async def _tell_of_deletions(self, topic_ids: Collection[uuid.UUID], names: Collection[str]) -> None:
        try:
            await self._tell_listeners(topic_ids, names)
        except CoordinatorError as error:
            _log.info("what belongs to deleted topics is left to expire", topics=names, reason=str(error))

    async def _tell_listeners(self, topic_ids: Collection[uuid.UUID], names: Collection[str]) -> None:
        await asyncio.gather(*(listener(topic_ids, names) for listener in self._deletion_listeners))

    # --- changes -------------------------------------------------------------------------------------------------

    async def create(
        self, name: str, partition_count: int, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> TopicInfo | Refusal:
        """Create a topic and wait until it can be written to. `configs` have passed `topic_configs.check`.

        Raises:
            CoordinatorError: no definite answer.
        """
        new = NewTopic(
            topic_id=self._clock.new_uuid().bytes,
            name=name,
            partition_count=partition_count,
            shard_count=len(self._replicas),
            configs=configs,
        )
        if validate_only:
            refusal = await self._cluster.submit(lambda command: operations.check_new_topic(command, name))
            return refusal or self._described(new)
        refusal = await self._cluster.submit_in_slices(lambda command: operations.create_topic(command, new))
        if refusal is not None:
            return refusal
        info = self._described(new)
        await self._settling.settled(info.topic_id)
        _log.info("topic created", topic=name, topic_id=str(info.topic_id), partitions=partition_count)
        warn_of_no_effect(ResourceType.TOPIC, name, configs)
        return info

    async def add_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        node_ids: Collection[int],
        *,
        validate_only: bool = False,
    ) -> Refusal | None:
        """Let a topic have `count` partitions, and wait until the new ones can be written to.

        Args:
            assignments: the brokers that the client wants for each new partition; None leaves that to the cluster.
            node_ids: the brokers that may be among them.

        Raises:
            CoordinatorError: no definite answer.
        """
        growth = Growth(
            name=name, count=count, assignments=assignments, node_ids=node_ids, shard_count=len(self._replicas)
        )
        refusal = await self._cluster.submit_in_slices(
            lambda command: operations.add_partitions(command, growth, validate_only=validate_only)
        )
        info = self.by_name(name)
        if refusal is not None or validate_only or info is None:
            return refusal
        await self._settling.settled(info.topic_id)
        _log.info("partitions added", topic=name, partitions=count)
        return None

    async def delete(self, info: TopicInfo) -> bool:
        """Delete a topic by its id; False when it is gone already.

        Raises:
            CoordinatorError: no definite answer.
        """
        topic_id = info.topic_id.bytes

        def remove(command: Command[ClusterRecord]) -> str | None:
            return operations.remove_topic(command, topic_id)

        if await self._cluster.submit(remove) is None:
            return False
        await self._settling.settled(info.topic_id)
        _log.info("topic deleted", topic=info.name, topic_id=str(info.topic_id))
        return True

    async def start(self) -> None:
        """Finish what was left in the middle of a change; see `TopicSettling.start`."""
        await self._settling.start()

    async def stop(self) -> None:
        """End what goes on in the background."""
        await self._settling.stop()
        await end(self._telling)

    def _described(self, new: NewTopic) -> TopicInfo:
        return self._info(new.topic_id, new.name, new.partition_count, new.configs)

    def _info(self, topic_id: bytes, name: str, partition_count: int, configs: Mapping[str, str]) -> TopicInfo:
        effective = {**self._configs.topic_defaults(), **configs}
        return TopicInfo(
            name=name,
            topic_id=uuid.UUID(bytes=topic_id),
            partition_count=partition_count,
            configs=configs,
            effective_configs=effective,
            rules=topic_configs.rules(effective),
        )
