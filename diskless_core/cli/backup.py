"""Copies a cluster that runs to another place.

What has to be copied is decided by the coordinators: a point of each, and the objects that these points speak of. The
order makes the points fit together. Those of groups are first: what a group has read is in the points that follow.
Then come the Diskless coordinators', and last the cluster's, see `backup_cluster`. Each is as long as its log was when
it was looked at, after all that comes before it in this order.

The objects are copied twice: first all that there are, so that little is left to be copied after the points were
decided. An object that a point needs and that was deleted meanwhile has been dead for `diskless.file.delete.delay.ms`:
then the Diskless coordinators are read further, up to where the object is dead. So each round has less to copy, and
less time to miss anything. Points are put into the target once nothing is missing.

See `backup_attempts` for what others may do in the target meanwhile.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, cast
from uuid import UUID

import structlog

from diskless_core.broker.coordinators import SHARD_ROOMS, count_existing, shard_counts, too_few
from diskless_core.broker.object_owner import ObjectOwner
from diskless_core.cli.backup_attempts import Attempt, BackupAttempts
from diskless_core.cli.backup_cluster import TopicsBetween, beginning_rows, topics_between
from diskless_core.cli.backup_places import (
    BackupError,
    Place,
    mark_segments,
    remove_marks,
    require_other_place,
    segments_mark,
    why_segments_are_lost,
)
from diskless_core.clock import Clock
from diskless_core.cluster import coordinator_counts
from diskless_core.cluster.tables import CLUSTER, CLUSTER_ID, PLACEMENTS
from diskless_core.cluster.tables import TOPICS as CLUSTER_TOPICS
from diskless_core.coordinator.new_log import MigrationRefusedError
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.coordinator.shard_points import ShardPoint, ShardPoints
from diskless_core.coordinator.snapshots import Snapshots, snapshot_prefix
from diskless_core.coordinator.state_machine import StateMachine
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.remote_segments import REMOTE_SEGMENTS
from diskless_core.diskless.tables import BATCHES, LIVE_FILES, PARTITIONS, RECEIVED_FILES, TIERED
from diskless_core.diskless.tables import TOPICS as SHARD_TOPICS
from diskless_core.diskless.trimming import trim_page
from diskless_core.files.object_copies import ObjectCopies
from diskless_core.groups.tables import GROUP_OFFSETS
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.coordinator_store import Key
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.shards import CLUSTER_SHARD, DISKLESS, GROUPS, ShardKind, kind_of, short_name
from diskless_core.snapshot.format import SnapshotError

ROUNDS = 10
"""How often the Diskless coordinators are read at most, before the backup says what it lacks."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets of a partition, from `first` to `last`, both inclusive."""

    topic: str
    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackedUpShard:
    """A coordinator in a backup, by its name. `offset` is where its log was: everything below is in the backup."""

    shard: str
    offset: int
    log_id: str
    moved_from: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """What a backup has. Times are in milliseconds since the epoch.

    Attributes:
        attempt: the name under which it was made.
        began_ms: by the clock of the machine that made it. What was acknowledged before is in it, but for what it says
            that it lacks.
        ended_ms: nothing that was acknowledged later is in it.
        lacking: offsets that the cluster has and that cannot be read in the backup: their WAL objects were gone.
        deleted: offsets that cannot be read because the cluster deleted them while they were to be copied. A restored
            cluster takes them for offsets that it has.
        came: topics that were created, or got partitions, while the points were decided.
        gone: topics that were deleted meanwhile.
        vanished_segments: objects of remote storage that were deleted while they were to be copied.
        segments_mark: tells the place where the segments were copied to from all others; None where they were not.
        knows_segments: whether the coordinators know of segments, be they in the backup or not.
    """

    attempt: str
    cluster_id: str
    began_ms: int
    ended_ms: int
    shards: Sequence[BackedUpShard]
    copied_objects: int
    copied_bytes: int
    segments_mark: str | None
    knows_segments: bool
    vanished_segments: int = 0
    lacking: Sequence[OffsetRange] = field(default=())
    deleted: Sequence[OffsetRange] = field(default=())
    came: Sequence[str] = field(default=())
    gone: Sequence[str] = field(default=())


@dataclass(slots=True)
class _Diskless:
    """What was read of the Diskless coordinators in one round.

    Attributes:
        missing: objects that they need and that are gone.
        not_received: keys of objects, by the index of a coordinator that was handed them and begins without them.
        names: of their topics, by ids.
        partitions: what they have of each topic.
    """

    shards: list[ShardId] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    not_received: dict[int, set[Key]] = field(default_factory=lambda: defaultdict(set))
    names: dict[bytes, str] = field(default_factory=dict)
    partitions: dict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))


class BackupRun:
    """One backup of a cluster.

    Args:
        points: takes the points of its coordinators, into the target.
        snapshots: those in the target.
        require_unused: looks whether the target has a log now, and raises MigrationRefusedError then.
    """

    def __init__(
        self,
        source: Place,
        target: Place,
        points: ShardPoints,
        snapshots: Snapshots,
        clock: Clock,
        require_unused: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = source.config
        self._source = source
        self._target = target
        self._points = points
        self._snapshots = snapshots
        self._clock = clock
        self._require_unused = require_unused
        self._attempts = BackupAttempts(target.config, target.objects)
        self._segments_are_lost = why_segments_are_lost(source, target)
        self._knows_segments = False

    async def run(self) -> Backup:
        """Copy everything, and describe it in the target. What was there of earlier backups is used or removed.

        Raises:
            BackupError: the target is where the source is; segments would be left behind, and be in danger; there is no
                cluster; or the target was restored or had another backup meanwhile, of which nothing was removed.
            MigrationRefusedError: a cluster began in the target before.
            StartError: the target has objects of another cluster, or of none.
            CoordinatorError, CoordinatorLogError, CoordinatorStoreError, WalObjectStoreError, SnapshotError: a backend
                failed.
        """
        began_ms = self._clock.now_ms()
        await self._require_unused()
        await require_other_place(self._source, self._target, self._clock)
        cluster = await self._read_up(CLUSTER_SHARD)
        cluster_id = cluster.state.get(CLUSTER, CLUSTER_ID)
        if cluster_id is None:
            raise BackupError("the log has no cluster: has a broker run with this configuration?")
        groups_shards = await self._groups_shards(cluster)
        prefix, beside = self._config.diskless_wal_object_prefix, snapshot_prefix(self._config)
        owner = ObjectOwner(self._target.objects, prefix=prefix, beside=beside)
        await self._diskless_shards()
        await self._require_segments_can_stay()
        await owner.require(cluster_id, has_topics=False)
        attempt = (await self._attempts.find()).next(began_ms, self._clock.new_uuid())
        await self._attempts.begin(attempt)
        try:
            made = await self._made(attempt, began_ms, cluster_id, groups_shards)
        except (WalObjectStoreError, SnapshotError):
            await self._require_no_interference(attempt)
            raise
        await self._finish(attempt, made)
        return made

    async def _made(self, attempt: Attempt, began_ms: int, cluster_id: str, groups_shards: Sequence[ShardId]) -> Backup:
        """Copy everything but the description."""
        objects = ObjectCopies(self._source.objects, self._target.objects, self._clock)
        segments, mark = self._segment_copies(), str(attempt)
        await objects.copy_listed(f"{self._config.diskless_wal_object_prefix}/")
        if segments is not None:
            await self._copy_segments(segments)
        for shard in groups_shards:
            await self._read_up(shard)
        diskless = await self._read_diskless_with_objects(objects, segments)
        cluster = await self._read_up(CLUSTER_SHARD)
        self._require_enough_coordinators(
            max((max(placed, default=-1) for _, placed in cluster.state.rows(PLACEMENTS)), default=-1) + 1
        )
        topics = topics_between(cluster.state, diskless.names, diskless.partitions)
        taken = await self._put_points(attempt, cluster, groups_shards, diskless, topics)
        if segments is not None:
            await mark_segments(self._target, mark)
        lacking, deleted = await self._lacking(taken, diskless.missing)
        return Backup(
            attempt=str(attempt),
            cluster_id=cluster_id,
            began_ms=began_ms,
            ended_ms=self._clock.now_ms(),
            shards=[_described(shard, point) for shard, point in taken.items()],
            copied_objects=objects.copied + (segments.copied if segments is not None else 0),
            copied_bytes=objects.copied_bytes + (segments.copied_bytes if segments is not None else 0),
            segments_mark=mark if segments is not None else None,
            knows_segments=self._knows_segments,
            vanished_segments=len(segments.vanished) if segments is not None else 0,
            lacking=lacking,
            deleted=deleted,
            came=list(topics.came),
            gone=list(topics.gone),
        )

    # --- the source --------------------------------------------------------------------------------------------------

    async def _require_segments_can_stay(self) -> None:
        """Refuse what the points would be refused for, before anything is copied."""
        if self._segments_are_lost is None:
            return
        if not self._source.records_segments and await self._may_have_segments():
            raise BackupError(self._segments_are_lost)
        for shard in await self._diskless_shards():
            self._look_for_segments(await self._read_up(shard))

    async def _may_have_segments(self) -> bool:
        """Whether remote storage has anything, or cannot be looked at."""
        if self._source.segments is None:
            return True
        async for page in self._source.segments.list(""):
            if page:
                return True
        return False

    def _look_for_segments(self, shard: CoordinatorShard[Any]) -> None:
        if not (shard.state.row_count(TIERED) or shard.state.row_count(REMOTE_SEGMENTS)):
            return
        if self._segments_are_lost is not None:
            raise BackupError(self._segments_are_lost)
        self._knows_segments = True

    def _segment_copies(self) -> ObjectCopies | None:
        if self._source.segments is None or self._target.segments is None:
            return None
        return ObjectCopies(self._source.segments, self._target.segments, self._clock)

    async def _copy_segments(self, segments: ObjectCopies) -> None:
        """All that there are now, but for the marks of the backup that the source may have been restored from."""
        segments.vanished.clear()  # the coordinators were read further since then, or are about to be
        await segments.copy_listed("", but=segments_mark(self._config, ""))

    async def _read_diskless_with_objects(self, objects: ObjectCopies, segments: ObjectCopies | None) -> _Diskless:
        for number in range(ROUNDS):
            if number:
                _log.info("objects were deleted while they were to be copied: the logs are read further", round=number)
            found = await self._read_diskless(objects)
            if segments is not None:
                await self._copy_segments(segments)
            if not found.missing and (segments is None or not segments.vanished):
                break
        return found

    async def _read_diskless(self, objects: ObjectCopies) -> _Diskless:
        """Read the Diskless coordinators as far as their logs go now, and copy the objects that they need then.

        An object that one of them needs may have been handed over to the next one before that is read. The next one
        would delete it: it begins as if it had not got the object yet, and gets it again when its time comes.
        """
        found = _Diskless()
        for shard in await self._diskless_shards():
            found.shards.append(shard)
            read = await self._read_up(shard)
            self._look_for_segments(read)
            for (topic_id,), topic in read.state.rows(SHARD_TOPICS):
                found.names[topic_id] = topic.name
                found.partitions[topic_id].update(topic.partitions)
            await self._trim(shard)
            async for rows in self._points.rows(shard, _machine(shard), LIVE_FILES):
                found.missing |= await objects.copy([cast("str", row[0]) for row in rows])
                for row in rows:
                    owners = LIVE_FILES.decode(row).owner_ids
                    for owner in owners[owners.index(shard.index) + 1 :]:
                        found.not_received[owner].add((row[0],))
        return found

    async def _trim(self, shard: ShardId) -> None:
        """Remove what is garbage, as brokers do beside replay. Objects that died of it may be gone."""
        async with self._points.stored(shard, _machine(shard)) as store:
            while (await store.read(partial(trim_page, now_ms=self._clock.now_ms()))).more:
                pass

    async def _groups_shards(self, cluster: CoordinatorShard[Any]) -> list[ShardId]:
        """All of them. What none of the cluster's brokers would ask is refused: it was another cluster's, or is."""
        recorded = coordinator_counts.recorded(dict(cluster.state.rows(CLUSTER)), GROUPS.topic)
        shards = await self._existing(GROUPS, recorded)
        if shards and shards[-1].index >= recorded:
            raise BackupError(
                f"the log has {shards[-1].index + 1} Groups coordinators, but by its cluster's record there are "
                f"{recorded}: a backup would lack groups. Is this the log that the brokers use?"
            )
        return shards

    async def _diskless_shards(self) -> list[ShardId]:
        """All of them. A number that is too small is refused: a backup without one of them would lack partitions."""
        shards = await self._existing(DISKLESS, shard_counts(self._config)[DISKLESS])
        self._require_enough_coordinators(shards[-1].index + 1 if shards else 0)
        return shards

    def _require_enough_coordinators(self, needed: int) -> None:
        for whose, config in (("of the cluster", self._config), ("to restore with", self._target.config)):
            configured = shard_counts(config)[DISKLESS]
            if configured < needed:
                raise BackupError(f"in the configuration {whose}, {too_few(DISKLESS, configured, needed)}")

    async def _existing(self, kind: ShardKind, expected: int) -> list[ShardId]:
        """Those that were ever written to, beyond the expected ones too."""
        count = await count_existing(self._points.log, kind, expected)
        return [shard for shard in map(kind.shard, range(count)) if await self._points.exists(shard)]

    async def _read_up(self, shard: ShardId) -> CoordinatorShard[Any]:
        return await self._points.read_up(shard, _machine(shard))

    # --- the target --------------------------------------------------------------------------------------------------

    async def _put_points(
        self,
        attempt: Attempt,
        cluster: CoordinatorShard[Any],
        groups_shards: Sequence[ShardId],
        diskless: _Diskless,
        topics: TopicsBetween,
    ) -> Mapping[ShardId, ShardPoint]:
        instead = beginning_rows(cluster.state, topics)
        taken = {CLUSTER_SHARD: await self._put(attempt, CLUSTER_SHARD, instead=instead)}
        present = {topic_id for (topic_id,), _ in cluster.state.rows(CLUSTER_TOPICS)}
        for shard in groups_shards:
            gone = await self._offsets_of_gone_topics(shard, present)
            taken[shard] = await self._put(attempt, shard, without={GROUP_OFFSETS.name: gone})
        for shard in diskless.shards:
            without = {RECEIVED_FILES.name: diskless.not_received[shard.index]}
            taken[shard] = await self._put(attempt, shard, without=without)
        return taken

    async def _put(self, attempt: Attempt, shard: ShardId, **changed: Any) -> ShardPoint:
        return await self._points.put(shard, _machine(shard), attempt.log_id(shard), **changed)

    async def _offsets_of_gone_topics(self, shard: ShardId, topics: Collection[bytes]) -> set[Key]:
        """Offsets of topics that were deleted since the groups were read. No deletion would remove them later."""
        gone = set[Key]()
        async for rows in self._points.rows(shard, _machine(shard), GROUP_OFFSETS):
            for key, offset in map(GROUP_OFFSETS.entity, rows):
                if offset.topic_id is not None and offset.topic_id.bytes not in topics:
                    gone.add(key)
        return gone

    async def _lacking(
        self, taken: Mapping[ShardId, ShardPoint], missing: Collection[str]
    ) -> tuple[list[OffsetRange], list[OffsetRange]]:
        """Which offsets are in objects that are missing: those that the cluster has now, and those that it deleted."""
        lacking, deleted = list[OffsetRange](), list[OffsetRange]()
        for shard in taken:
            if not missing or kind_of(shard) is not DISKLESS:
                continue
            offsets: dict[PartitionKey, list[tuple[int, int]]] = defaultdict(list)
            names = dict[bytes, str]()
            async for rows in self._points.rows(shard, _machine(shard), SHARD_TOPICS):
                names |= {cast("bytes", row[0]): SHARD_TOPICS.decode(row).name for row in rows}
            async for rows in self._points.rows(shard, _machine(shard), BATCHES):
                for key, run in map(BATCHES.entity, rows):
                    if run.object_key in missing:
                        offsets[PartitionKey(key[0], key[1])].append((run.base_offset, run.last_offset))
            if not offsets:
                continue
            now = (await self._read_up(shard)).state
            for partition, some in sorted(offsets.items()):
                head = now.committed(PARTITIONS, partition)
                topic = names.get(partition.topic_id, str(UUID(bytes=partition.topic_id)))
                for first, last in _joined(some):
                    start = head.log_start_offset if head is not None else last + 1
                    within = partial(OffsetRange, topic=topic, partition=partition.partition)
                    if first < start:
                        deleted.append(within(first=first, last=min(last, start - 1)))
                    if last >= start:
                        lacking.append(within(first=max(first, start), last=last))
        return lacking, deleted

    async def _finish(self, attempt: Attempt, made: Backup) -> None:
        """Describe the backup, which counts from then on, and remove those that began before it.

        Raises:
            BackupError: the target was restored or had a later backup meanwhile. Nothing of these was removed.
        """
        try:
            await self._require_unused()
        except MigrationRefusedError:
            # no restore can have chosen this attempt: it has no description, and gets none
            await self._attempts.remove_points({attempt}, self._snapshots)
            await remove_marks(self._target, {str(attempt)})
            await self._attempts.forget({attempt})
            raise BackupError(_RESTORED_MEANWHILE) from None
        await self._attempts.describe(attempt, json.dumps(asdict(made), indent=2))
        found = await self._attempts.find()
        if found.latest != attempt:
            # a later one was finished, whether or not it has superseded this one yet
            await self._remove({attempt})
            raise BackupError(_SUPERSEDED)
        await self._remove(found.before(attempt))

    async def _require_no_interference(self, attempt: Attempt) -> None:
        """Look whether another command has removed what this attempt had put, which may be why a store failed.

        Raises:
            BackupError: it has.
        """
        found = await self._attempts.find()
        if attempt not in found.begun or attempt in found.superseded:
            raise BackupError(_SUPERSEDED) from None
        try:
            await self._require_unused()
        except MigrationRefusedError:
            raise BackupError(_RESTORED_MEANWHILE) from None

    async def _remove(self, attempts: Collection[Attempt]) -> None:
        """Remove attempts, unless a restore may have chosen one of them."""
        await self._attempts.supersede(attempts)
        try:
            # after `supersede`, lest a restore that claims between the two chooses what is removed here
            await self._require_unused()
        except MigrationRefusedError:
            raise BackupError(_RESTORED_MEANWHILE) from None
        await self._attempts.remove_points(attempts, self._snapshots)
        await remove_marks(self._target, {str(attempt) for attempt in attempts})
        await self._attempts.forget(attempts)


_RESTORED_MEANWHILE = (
    "a cluster was restored in the place of the backup while the backup was made. Nothing that it needs was removed. "
    "It has what was acknowledged before the earlier backup that it began with. Choose another place for this backup"
)

_SUPERSEDED = (
    "another backup into the same place, which began later, was finished meanwhile. That one is whole and is restored; "
    "this one was given up. Let backups into one place run one after the other"
)


def _machine(shard: ShardId) -> StateMachine[Any]:
    return SHARD_ROOMS[kind_of(shard)].machine()


def _described(shard: ShardId, point: ShardPoint) -> BackedUpShard:
    return BackedUpShard(
        shard=short_name(shard),
        offset=point.offset,
        log_id=str(point.name.log_id),
        moved_from=str(point.name.moved_from),
    )


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges with inclusive ends, in order, neighbours as one."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return joined


async def require_unused(log: CoordinatorLog) -> None:
    """Refuse a target that has a log.

    Raises:
        MigrationRefusedError: a cluster began there.
        CoordinatorLogError: it cannot be read.
    """
    if (await log.bounds(CLUSTER_SHARD)).end > 0:
        raise MigrationRefusedError(
            "a cluster runs where the backup is to be, or was restored there: choose another place"
        )
