"""What has to be true of a world that has come to rest: all agree, all can be read, nothing is left of what is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from diskless_core.cluster.state_machine import ClusterMachine
from diskless_core.cluster.tables import NOMINATIONS
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.tables import Table
from diskless_core.diskless import remote_segments
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.tables import (
    BATCHES,
    BLOCKS,
    DEAD_FILES,
    FILES,
    GONE_FILES,
    HORIZON,
    LIVE_FILES,
    PARTITIONS,
    PRODUCERS,
    RECEIVED_FILES,
    TIERED,
    TOPICS,
    TRIMS,
)
from diskless_core.groups.state_machine import GroupsMachine
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.errors import ErrorCode
from diskless_core.shards import CLUSTER, DISKLESS, GROUPS, ShardKind, kind_of, short_name
from tests.simulation.broker import Broker, Disk
from tests.simulation.checker import OBJECT_PREFIX
from tests.simulation.clients import ask
from tests.simulation.members import GROUP, found_in, offset_request
from tests.simulation.network import NetworkError
from tests.simulation.truth import OffsetPlace, name_of
from tests.support.produce_path import records_of

if TYPE_CHECKING:
    from tests.simulation.world import World

CLEAN_STEP_S = 15.0
FORGOTTEN_WITHIN_S = 100.0
LONGEST_COPY_MS = 60_000
QUIET_S = 5.0
READER = 99
"""The node id of the broker that is started when all is over, to read everything."""

COMPARED_TABLES: Mapping[ShardKind, Sequence[Table[Any]]] = {
    CLUSTER: ClusterMachine.tables,
    DISKLESS: (
        TOPICS,
        PARTITIONS,
        PRODUCERS,
        BATCHES,
        BLOCKS,
        LIVE_FILES,
        HORIZON,
        TIERED,
        *remote_segments.TABLES,
    ),
    GROUPS: GroupsMachine.tables,
}
PASSING_TABLES: Sequence[Table[Any]] = (
    BATCHES,
    BLOCKS,
    FILES,
    LIVE_FILES,
    DEAD_FILES,
    RECEIVED_FILES,
    GONE_FILES,
    TRIMS,
    *remote_segments.TABLES,
)


MOST_NOMINATIONS = 100
"""Of one shard in a history. Twenty are many, though brokers come and go and are paused all the time."""


class Settlement:
    """The last part of a history, when nothing fails any more."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def check(self) -> None:
        """From the last answer to the last row.

        Raises:
            Violation: a promise was broken.
        """
        await self._world.until(self._replicas_agree, lambda: "replicas do not come to agree")
        self._world.checker.log_starts()
        self._world.checker.live_objects_are_there()
        self._world.checker.segments_are_there()
        self._world.checker.order_and_uniqueness()
        self._world.checker.truth.clocks_are_known = not self._world.scenario.clock_behind_ms
        self._world.disks[READER] = Disk()
        self._world.start_broker(READER)
        await self._world.until(lambda: self._world.brokers[READER].started, lambda: "a fresh broker does not start")
        await self._world.until(self._replicas_agree, lambda: "a fresh broker does not come to agree")
        for key in self._world.partition_keys():
            if not self._world.is_deleted(key):
                await self._read_whole(key)
        self._world.checker.order_and_uniqueness()
        await self._take_producer_ids()
        await self._find_offsets()
        await self._world.until(
            lambda: not self._world.checker.dead_objects(),
            lambda: f"dead objects are left: {self._world.checker.dead_objects()}",
        )
        await self._compare_stores()
        await self._delete_everything()

    async def _take_producer_ids(self) -> None:
        """Every broker has ids for producers, and none that another has."""
        end_s = self._world.loop.time() + FORGOTTEN_WITHIN_S
        given: dict[int, int] = {}
        for node_id, broker in self._world.brokers.items():
            producer_id = None
            while producer_id is None:
                try:
                    producer_id = await ask(self._world, broker, lambda one: one.new_producer_id())
                except (NetworkError, CoordinatorError) as error:
                    if self._world.loop.time() > end_s:
                        self._world.history.violated(f"broker {node_id} has no ids for producers: {error}")
                        self._world.stop_at_violation()
                    await asyncio.sleep(1.0)
            if producer_id in given:
                self._world.history.violated(f"brokers {given[producer_id]} and {node_id} give the same id")
                self._world.stop_at_violation()
            given[producer_id] = node_id

    async def _find_offsets(self) -> None:
        """Groups are where their last commits have left them."""
        for place, key in self._places():
            end_s = self._world.loop.time() + FORGOTTEN_WITHIN_S
            while not await self._finds_offset(place, key):
                if self._world.loop.time() > end_s:
                    self._world.history.violated(f"nobody says where {place} is")
                    self._world.stop_at_violation()
                await asyncio.sleep(CLEAN_STEP_S)

    def _places(self) -> list[tuple[OffsetPlace, PartitionKey]]:
        keys = [key for key in self._world.partition_keys() if not self._world.is_deleted(key)]
        places = [(OffsetPlace(GROUP, self._world.topic_name(key), key.partition), key) for key in keys]
        return [(place, key) for place, key in places if self._world.checker.offsets_seen(place)]

    async def _finds_offset(self, place: OffsetPlace, key: PartitionKey) -> bool:
        seen = self._world.checker.offsets_seen(place)
        request = offset_request(key)
        for broker in self._world.brokers.values():
            try:
                found = found_in(await ask(self._world, broker, lambda one: one.committed_offset(request)))
            except NetworkError:
                continue
            if found is not None and found.error is ErrorCode.NONE:
                self._world.checker.offset_found(place, seen, found.mark, found.offset)
                return True
        return False

    async def _delete_everything(self) -> None:
        """With the last record the last object goes, and what nobody committed goes, too."""
        for key in self._world.partition_keys():
            if not self._world.is_deleted(key):
                self._world.checker.wants_start(key, self._world.checker.truth.partitions[key].high_watermark)
                deleted = await self._world.command(lambda broker, key=key: broker.delete_records(key, -1))
                if deleted.error is not ErrorCode.NONE:
                    self._world.checker.broken(f"records cannot be deleted: {deleted}")
        await self._world.until(
            self._bucket_is_empty, lambda: f"objects are left: {self._objects()}", step_s=CLEAN_STEP_S
        )
        await self._world.until(
            lambda: not self._left_of_segments(),
            lambda: f"segments are left: {self._left_of_segments()}",
            step_s=CLEAN_STEP_S,
        )
        end_s = self._world.loop.time() + 2 * FORGOTTEN_WITHIN_S
        while left := await self._kept():
            if self._world.loop.time() > end_s:
                self._world.history.violated(left)
                self._world.stop_at_violation()
            await asyncio.sleep(CLEAN_STEP_S)
            await self._scan(self._controller())  # its horizon lets go of what was never committed
        await self._world.until(self._replicas_agree, lambda: "replicas do not come to agree")

    async def _rows(self, broker: Broker, shard_id: ShardId, tables: Sequence[Table[Any]]) -> dict[str, list[Any]]:
        """What a broker's store has of a shard."""
        shard = broker.shard(shard_id)
        await shard.flush()
        return await shard.with_store(lambda store: {table.name: store.scan(table.name) for table in tables})

    def _nominations_are_few(self) -> None:
        """Each is a record, and asks brokers for something: a controller that is never content wears out the log."""
        state = self._world.brokers[READER].parts.coordinators.cluster.state
        for _, nomination in state.rows(NOMINATIONS):
            if nomination.generation > MOST_NOMINATIONS:
                self._world.checker.broken(f"{nomination.shard} was nominated for {nomination.generation} times")

    async def _compare_stores(self) -> None:
        """All replicas have the same rows, once nothing has happened for a while."""
        reader = self._world.brokers[READER]
        for shard in self._world.shard_ids:
            if not reader.follows(shard):
                reader.process.call_soon(reader.want, shard)
                await self._world.until(
                    lambda shard=shard: reader.shard(shard).is_followed, lambda: "nobody can follow anew"
                )
            compared = None
            while (present := (self._world.log.end(shard), self._followers(shard))) != compared:
                compared = present
                self._nominations_are_few()  # else the log goes on and on
                # A replica that reads the log by itself may lag by as long as it waits between two looks.
                await self._world.until(self._replicas_agree, lambda: "replicas do not come to agree")
                await asyncio.sleep(QUIET_S)  # rows of what is trimmed go by and by
                rows = await self._rows_of_followers(shard)
            expected = rows.get(reader.process.name, next(iter(rows.values())))  # it may have let go of it by now
            for name, found in rows.items():
                if found != expected:
                    self._world.history.violated(f"the store of {name} is not like that of a fresh broker")

    async def _rows_of_followers(self, shard: ShardId) -> dict[str, dict[str, list[Any]]]:
        """By the broker's name. One that lets go of its copy meanwhile is left out."""
        rows = {}
        for broker in self._followers(shard):
            try:
                rows[broker.process.name] = await self._rows(broker, shard, COMPARED_TABLES[kind_of(shard)])
            except CoordinatorStoreError:
                if broker.follows(shard):
                    raise
        return rows

    def _followers(self, shard: ShardId) -> Sequence[Broker]:
        """Who has a copy. One that has just come to have one has still to trim it."""
        return [broker for broker in self._world.brokers.values() if broker.follows(shard)]

    async def _kept(self) -> str | None:
        """What is left in a store of what came and went; None: nothing in any."""
        for broker in self._world.brokers.values():
            for shard in broker.shards.values():
                if not shard.is_followed:
                    continue
                found = await self._rows(broker, shard.id, (*PASSING_TABLES, PRODUCERS))
                for name, rows in found.items():
                    if name == PRODUCERS.name and not self._world.scenario.producers_expire:
                        rows = [row for row in rows if self._world.is_deleted(PartitionKey(*row[:2]))]
                    if rows:
                        return f"{broker.process.name} keeps {name} of {short_name(shard.id)}: {rows[:3]}"
        return None

    def _left_of_segments(self) -> list[str]:
        """A broker whose copy is given up too early does not hear of it, and may leave what it puts then."""
        is_too_early = self._world.scenario.copy_grace_ms < LONGEST_COPY_MS
        running = [] if is_too_early else [broker.process.name for broker in self._world.brokers.values()]
        return self._world.checker.left_of_segments(running)

    def _objects(self) -> list[str]:
        return sorted(self._world.bucket.keys(f"{OBJECT_PREFIX}/"))

    def _replicas_agree(self) -> bool:
        up = [broker for broker in self._world.brokers.values() if broker.started]
        if len(up) < len(self._world.brokers):
            return False
        for shard_id in self._world.shard_ids:
            end = self._world.log.end(shard_id)
            copies = [broker.shard(shard_id) for broker in up if broker.follows(shard_id)]
            if not copies or any(copy.next_offset != end for copy in copies):
                return False
        for index in up[0].shards:
            first, *others = (broker.shards[index] for broker in up if broker.shards[index].is_followed)
            if any(other.heads() != first.heads() for other in others):
                self._world.history.violated(f"replicas of {short_name(first.id)} differ at {first.next_offset}")
        return True

    def _bucket_is_empty(self) -> bool:
        if not self._objects():
            return True
        broker = self._controller()
        broker.process.start(self._scan(broker))
        return False

    def _controller(self) -> Broker:
        """Who scans for orphans: nobody else may. Any broker as long as nobody leads the cluster shard."""
        brokers = self._world.brokers
        leading = (one for one in brokers.values() if one.started and one.shard(CLUSTER.shard(0)).leading)
        return next(leading, brokers[1])

    async def _scan(self, broker: Broker) -> None:
        try:
            await broker.scan_for_orphans()
        except CoordinatorError as error:
            self._world.history.note("world", f"the scan for orphans failed: {error}")

    async def _read_whole(self, key: PartitionKey) -> None:
        """From the log start, which retention may still move, to the high watermark."""
        broker = self._world.brokers[READER]
        partition = self._world.checker.truth.partitions[key]
        offset = partition.log_start_offset
        end_s = self._world.loop.time() + FORGOTTEN_WITHIN_S  # what is in segments needs a copy of the coordinator
        while offset < partition.high_watermark:
            answer = await ask(self._world, broker, lambda one: one.fetch(key, offset, 10_000))  # noqa: B023
            records = records_of(answer)
            if offset < partition.log_start_offset:
                offset = partition.log_start_offset
            elif records:
                self._world.checker.fetched(key, offset, records)
                offset = records[-1][0] + 1
            elif answer.error is not ErrorCode.NONE or self._world.loop.time() > end_s:
                self._world.history.violated(f"{name_of(key)}@{offset} cannot be read in the end: {answer.error.name}")
                self._world.stop_at_violation()
