"""All coordinator shards of a node, on the configured log and store (KIP-1164, "Leadership and deployment").

Where other nodes can have the same log, this one may lead some of the shards, or none, and follows the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import structlog

from diskless_core.broker.errors import StartError
from diskless_core.broker.followed_shards import FollowedShards
from diskless_core.cluster.nominated_leaders import NominatedLeaders
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.state_machine import ClusterMachine
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.leader import Hold
from diskless_core.coordinator.shard import CoordinatorShard, ShardServices
from diskless_core.coordinator.state_machine import StateMachine
from diskless_core.coordinator.status import ShardStatus, shard_status
from diskless_core.diskless.operations import CommitRules
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.groups.shard import GroupsShard
from diskless_core.groups.state_machine import GroupsMachine
from diskless_core.plugin.config import property_name
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import CLUSTER, DISKLESS, GROUPS, SHARD_KINDS, ShardKind, kind_of, short_name

PATIENCE_S = 10.0
"""How long a start waits before it says what for, each time anew."""

_FOLLOWED_BY_NOMINATION = frozenset({DISKLESS.topic, GROUPS.topic})
"""The kinds of shards, by the topics of their logs, that a node follows only if it is nominated for them."""

ShardT = TypeVar("ShardT", bound=CoordinatorShard[Any])

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSettings:
    """What shards are told.

    Attributes:
        counts: how many shards there are of the kinds of which there can be several. Those of a kind that is missing
            are added later.
        kept_s: how long a copy is kept up of a shard that the node is not nominated for any more.
    """

    counts: Mapping[ShardKind, int]
    commit_rules: CommitRules
    kept_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRoom:
    """What a kind of shard is made of.

    Attributes:
        machine: its state machine, for tools that need its tables and records alone.
        build: makes a shard of it.
    """

    machine: type[StateMachine[Any]]
    build: Callable[[ShardId, ShardServices, ShardSettings], CoordinatorShard[Any]]


SHARD_ROOMS: Mapping[ShardKind, ShardRoom] = {
    CLUSTER: ShardRoom(machine=ClusterMachine, build=lambda shard_id, services, _: ClusterShard(shard_id, services)),
    DISKLESS: ShardRoom(
        machine=DisklessMachine,
        build=lambda shard_id, services, settings: DisklessShard(shard_id, services, settings.commit_rules),
    ),
    GROUPS: ShardRoom(machine=GroupsMachine, build=lambda shard_id, services, _: GroupsShard(shard_id, services)),
}
"""The room of each of `SHARD_KINDS`."""


def shard_counts(config: BrokerConfig) -> Mapping[ShardKind, int]:
    """How many shards there are of the kinds whose number a broker's settings say."""
    return {
        kind: getattr(config, kind.count_setting)
        for kind in SHARD_KINDS
        if kind.count_setting is not None and not kind.count_is_recorded
    }


def new_counts(config: BrokerConfig, log: CoordinatorLog) -> Mapping[ShardKind, int]:
    """How many shards a new cluster gets of the kinds whose number is recorded."""
    return {GROUPS: config.offsets_topic_num_partitions or log.group_coordinators}


def shard_ids(counts: Mapping[ShardKind, int]) -> list[ShardId]:
    """All shards of a node, but for those of kinds of which there can be several and that are not in `counts`."""
    return [
        kind.shard(index)
        for kind in SHARD_KINDS
        for index in range(counts.get(kind, 1 if kind.count_setting is None else 0))
    ]


async def count_existing(log: CoordinatorLog, kind: ShardKind, expected: int) -> int:
    """How many shards of a kind a log has, or `expected` if that is more.

    Raises:
        CoordinatorLogError: it cannot be found out.
    """
    count = expected
    while (await log.bounds(kind.shard(count))).end > 0:
        count += 1
    return count


def too_few(kind: ShardKind, configured: int, existing: int) -> str:
    """What to tell an operator whose settings have fewer shards of a kind than there are."""
    setting = property_name(cast("str", kind.count_setting))
    return (
        f"{setting} is {configured}, but the log has {existing} {kind.name.capitalize()} coordinators, and what they "
        f"have stays with them. Set it to {existing} or more"
    )


class Coordinators:
    """All shards of a node. Nothing is started when it is made.

    Attributes:
        cluster: the cluster shard.
        diskless: the Diskless shards by index.
        nominated: what the controller has nominated; None where the log says who should lead.
        follows: has shards followed as they are nominated; None where all are followed.
        log_failure: why the log did not answer when it was asked last; None when it did.

    Raises:
        StartError: a shard may be led by other nodes only, and there are none.
    """

    def __init__(self, services: ShardServices, settings: ShardSettings) -> None:
        ids = shard_ids(settings.counts)
        _require_candidate(services, ids)
        self._settings = settings
        self.log: CoordinatorLog = services.log
        self.log_failure: str | None = None
        self.cluster = ClusterShard(CLUSTER.shard(0), services)
        self.nominated: NominatedLeaders | None = None
        self.follows: FollowedShards | None = None
        if services.log.is_shared and not services.log.nominates_all_shards:
            self.nominated = NominatedLeaders(self.cluster)
            self.nominated.require_membership(services.node_id, lambda: False)
            self.follows = FollowedShards(services.node_id, self.nominated, services.clock, kept_s=settings.kept_s)
            services = replace(services, nominator=self.nominated)
        self._services = services
        self._shards: dict[ShardId, CoordinatorShard[Any]] = {self.cluster.id: self.cluster}
        for shard_id in ids:
            if shard_id != self.cluster.id:
                self._make(shard_id)
        self.diskless: Mapping[int, DisklessShard] = {shard.id.index: shard for shard in self.of(DisklessShard)}

    def _make(self, shard_id: ShardId) -> CoordinatorShard[Any]:
        shard = SHARD_ROOMS[kind_of(shard_id)].build(shard_id, self._services, self._settings)
        self._shards[shard_id] = shard
        return shard

    async def add(self, kind: ShardKind, count: int) -> None:
        """Make the shards of a kind of which there are none yet, and start them.

        Raises:
            StartError: one may be led by other nodes only, and there are none; nothing was made.
            CoordinatorError, CoordinatorLogError, CoordinatorStoreError: a shard cannot be started.
        """
        ids = [kind.shard(index) for index in range(count)]
        _require_candidate(self._services, ids)
        await asyncio.gather(*(self._start(self._make(shard_id)) for shard_id in ids))

    async def _start(self, shard: CoordinatorShard[Any]) -> None:
        if self.follows is not None and _is_followed_by_nomination(shard.id):
            await self.follows.start(shard)
        else:
            await shard.start()

    def want(self, shard: CoordinatorShard[Any]) -> None:
        """Follow a shard for a while, if this node does not: somebody asks for what only a copy has."""
        if self.follows is not None:
            self.follows.want(shard)

    @asynccontextmanager
    async def having(self, shards: Collection[CoordinatorShard[Any]]) -> AsyncIterator[None]:
        """Have copies of these shards that have caught up, as long as it lasts. Errors as `FollowedShards.having`."""
        if self.follows is None:
            yield
            return
        async with self.follows.having(shards):
            yield

    def having_all(self) -> AbstractAsyncContextManager[None]:
        """The same with all Diskless shards."""
        return self.having(self.diskless.values())

    def followed_by_nomination(self) -> list[CoordinatorShard[Any]]:
        """Those that this node follows, or does not, as it is nominated for them."""
        return [shard for shard in self.all() if self.follows is not None and _is_followed_by_nomination(shard.id)]

    def is_to_follow(self, shard_id: ShardId, node_id: int) -> bool:
        """Whether a node should have a copy of a shard, as far as this one has read."""
        if self.nominated is None or not _is_followed_by_nomination(shard_id):
            return True
        return self.nominated.names(shard_id, node_id)

    @property
    def groups(self) -> Sequence[GroupsShard]:
        """The groups shards by index."""
        return self.of(GroupsShard)

    def of(self, kind: type[ShardT]) -> list[ShardT]:
        """All shards of a kind, by their class, in the order of their indexes."""
        return [shard for shard in self._shards.values() if isinstance(shard, kind)]

    def all(self) -> list[CoordinatorShard[Any]]:
        return list(self._shards.values())

    def followed(self) -> list[CoordinatorShard[Any]]:
        """Those of which this node has a copy, or is about to."""
        return [shard for shard in self._shards.values() if shard.is_followed]

    async def status(self, *, count: bool) -> Sequence[ShardStatus]:
        """How the shards are doing that this node follows. Arguments and errors as `shard_status`."""
        return [await shard_status(shard, self.log, count=count) for shard in self.followed()]

    async def start(self) -> None:
        """Start all shards and wait until this node leads each of them or follows its leader.

        See `CoordinatorShard.obstacle`.

        Raises:
            StartError: there are more shards of a kind than are configured; nothing was started.
            CoordinatorError, CoordinatorLogError, CoordinatorStoreError: a shard cannot be started.
        """
        await self.start_following()
        await self.until_serving(self.all())

    async def start_following(self) -> None:
        """Start all shards; those that a nomination may name this node for, once all nominations are known.

        Errors as `start`.
        """
        await self._require_all_shards()
        later = self.followed_by_nomination()
        with self._led_after_all_are_opened():
            await asyncio.gather(*(shard.start() for shard in self.all() if shard not in later))
        if later:
            await self.cluster.until_caught_up()
            await asyncio.gather(*map(self._start, later))

    @contextmanager
    def _led_after_all_are_opened(self) -> Iterator[None]:
        """Claim no shard before all are opened: one whose log was lost ends the start, and nothing may be changed then.

        A shard that has no snapshot yet, beside one that has, would take its lost log for a new one, and its store
        would not fit the log that is brought back. Where others share the log, they may write to it anyway.
        """
        if self.log.is_shared:
            yield
            return
        for shard in self.all():
            shard.stand_back(Hold.OPENING, "the broker starts")
        yield
        for shard in self.all():
            shard.stand(Hold.OPENING)

    async def until_serving(self, shards: Sequence[CoordinatorShard[Any]]) -> None:
        """Wait until this node leads each of these shards or follows its leader.

        Raises:
            CoordinatorError: it never will: the log or the store of one cannot be used.
        """
        serving = asyncio.gather(*(shard.until_serving() for shard in shards))
        try:
            while not (await asyncio.wait([serving], timeout=PATIENCE_S))[0]:
                obstacles = [shard.obstacle for shard in shards if shard.obstacle is not None]
                _log.warning("the broker cannot start yet", waiting_for=obstacles)
            await serving
        finally:
            serving.cancel()

    async def _require_all_shards(self) -> None:
        """What a shard has stays with it: partitions their coordinator, and coordinators their objects."""
        for kind in SHARD_KINDS:
            if kind.count_setting is None or kind.count_is_recorded:
                continue
            configured = sum(shard_id.topic == kind.topic for shard_id in self._shards)
            existing = await count_existing(self.log, kind, configured)
            if existing > configured:
                raise StartError(too_few(kind, configured, existing))

    async def stop(self) -> None:
        await asyncio.gather(*(shard.stop() for shard in self.all()))


def _is_followed_by_nomination(shard_id: ShardId) -> bool:
    return shard_id.topic in _FOLLOWED_BY_NOMINATION


def _require_candidate(services: ShardServices, shards: Iterable[ShardId]) -> None:
    barred = [short_name(shard) for shard in shards if not services.may_lead(shard)]
    if barred and not services.log.is_shared:
        raise StartError(
            f"diskless.coordinator.placement does not let broker {services.node_id} lead {', '.join(barred)}, and "
            f"nobody else can: the coordinator log is of this broker alone. Add the broker there, or choose a "
            f"coordinator_log that brokers share"
        )
