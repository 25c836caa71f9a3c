"""Copies a cluster that runs to another place, and begins a cluster from such a copy.

What has to be copied is decided by the coordinators: a point of each, and the objects that these points speak of. The
objects are copied twice: first all that there are, so that little is left to be copied after the points were taken. An
object that the points need and that was deleted meanwhile has been dead for `diskless.file.delete.delay.ms`: then the
points are taken anew, with what is dead by then. So each round has less to copy, and less time to miss anything.

A copy is whole when its description is written, which is done last.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, cast
from uuid import UUID

import structlog

from diskless_core.broker.coordinators import SHARD_ROOMS, count_existing, shard_counts, too_few
from diskless_core.broker.object_owner import ObjectOwner
from diskless_core.cli.backup_places import (
    BackupError,
    Place,
    backups_prefix,
    mark_segments,
    remove_other_marks,
    require_marked,
    require_other_place,
    why_segments_are_lost,
)
from diskless_core.clock import Clock
from diskless_core.cluster import coordinator_counts
from diskless_core.cluster.membership.tables import BROKERS, NODE_IDS
from diskless_core.cluster.tables import CLUSTER, CLUSTER_ID, NOMINATIONS, TOPICS
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.log_identity import LogName
from diskless_core.coordinator.new_log import MigrationRefusedError, NewLog
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.coordinator.shard_points import ShardPoint, ShardPoints
from diskless_core.coordinator.snapshots import Snapshots, snapshot_prefix
from diskless_core.diskless.remote_segments import REMOTE_SEGMENTS
from diskless_core.diskless.tables import BATCHES, LIVE_FILES, RECEIVED_FILES, TIERED
from diskless_core.diskless.tables import TOPICS as SHARD_TOPICS
from diskless_core.files.object_copies import ObjectCopies
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.coordinator_store import Key, Row
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStore
from diskless_core.shards import CLUSTER_SHARD, DISKLESS, GROUPS, ShardKind, kind_of, parse_shard, short_name
from diskless_core.snapshot import format as snapshot_format
from diskless_core.snapshot import reading
from diskless_core.snapshot.format import Manifest

ROUNDS = 5
"""How often points are taken at most, before the backup is given up or says what it lacks."""

_LIMIT_BYTES = 64 << 20

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """Offsets of a partition that cannot be read, from `first` to `last`, both inclusive."""

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
        began_ms: what was acknowledged before is in it, but for what it says that it lacks.
        ended_ms: nothing that was acknowledged later is in it.
        lacking: offsets whose WAL objects were deleted while they were to be copied.
        vanished_segments: objects of remote storage that were deleted while they were to be copied.
        segments_mark: tells the place where the segments were copied to from all others; None where they were not.
        knows_segments: whether the coordinators know of segments, be they in the backup or not.
    """

    cluster_id: str
    began_ms: int
    ended_ms: int
    shards: Sequence[BackedUpShard]
    copied_objects: int
    copied_bytes: int
    segments_mark: str | None
    knows_segments: bool
    vanished_segments: int = 0
    lacking: Sequence[Lacking] = field(default=())


# --- backup ------------------------------------------------------------------------------------------------------


class BackupRun:
    """One backup of a cluster.

    Args:
        points: takes the points of its coordinators, into the target.
        snapshots: those in the target.
    """

    def __init__(
        self,
        source: Place,
        target: Place,
        points: ShardPoints,
        snapshots: Snapshots,
        clock: Clock,
    ) -> None:
        self._config = source.config
        self._source = source
        self._target = target
        self._points = points
        self._snapshots = snapshots
        self._clock = clock
        self._segments_are_lost = why_segments_are_lost(source, target)
        self._knows_segments = False

    async def run(self) -> Backup:
        """Copy everything, and describe it in the target. What was there of an earlier backup is used or removed.

        Raises:
            BackupError: the target is where the source is; segments would be left behind, and be in danger; topics came
                or went at each try; or there is no cluster.
            StartError: the target has objects of another cluster, or of none.
            CoordinatorError, CoordinatorLogError, CoordinatorStoreError, WalObjectStoreError, SnapshotError: a backend
                failed.
        """
        began_ms = self._clock.now_ms()
        await require_other_place(self._source, self._target, self._clock)
        async with self._caught_up(CLUSTER_SHARD) as cluster:
            cluster_id = cluster.state.get(CLUSTER, CLUSTER_ID)
            await self._groups_shards(cluster)
        if cluster_id is None:
            raise BackupError("the log has no cluster: has a broker run with this configuration?")
        prefix, beside = self._config.diskless_wal_object_prefix, snapshot_prefix(self._config)
        owner = ObjectOwner(self._target.objects, prefix=prefix, beside=beside)
        await self._diskless_shards()
        await self._require_segments_can_stay()
        await owner.require(cluster_id, has_topics=False)
        objects = ObjectCopies(self._source.objects, self._target.objects, self._clock)
        segments, mark = self._segment_copies(), str(self._clock.new_uuid())
        await objects.copy_listed(f"{prefix}/")
        if segments is not None:
            await segments.copy_listed("")
            segments.vanished.clear()  # they were gone before the points are taken
        taken, missing = await self._taken_with_objects(objects)
        if segments is not None:
            await segments.copy_listed("")
            await mark_segments(self._target, mark)
        made = Backup(
            cluster_id=cluster_id,
            began_ms=began_ms,
            ended_ms=self._clock.now_ms(),
            shards=[_described(shard, point) for shard, point in taken.items()],
            copied_objects=objects.copied + (segments.copied if segments is not None else 0),
            copied_bytes=objects.copied_bytes + (segments.copied_bytes if segments is not None else 0),
            segments_mark=mark if segments is not None else None,
            knows_segments=self._knows_segments,
            vanished_segments=len(segments.vanished) if segments is not None else 0,
            lacking=await self._lacking(taken, missing),
        )
        text = json.dumps(asdict(made), indent=2)
        await self._target.objects.put(f"{backups_prefix(self._config)}/description", text.encode())
        await _keep_only(self._snapshots, {shard: point.name.log_id for shard, point in taken.items()})
        await remove_other_marks(self._target, mark)
        return made

    async def _require_segments_can_stay(self) -> None:
        """Refuse what the points would be refused for, before anything is copied."""
        if self._segments_are_lost is None:
            return
        if not self._source.records_segments and await self._may_have_segments():
            raise BackupError(self._segments_are_lost)
        for shard in await self._diskless_shards():
            async with self._caught_up(shard) as follower:
                self._look_for_segments(follower)

    async def _may_have_segments(self) -> bool:
        """Whether remote storage has anything, or cannot be looked at."""
        if self._source.segments is None:
            return True
        async for page in self._source.segments.list(""):
            if page:
                return True
        return False

    def _look_for_segments(self, follower: CoordinatorShard[Any]) -> None:
        if not (follower.state.row_count(TIERED) or follower.state.row_count(REMOTE_SEGMENTS)):
            return
        if self._segments_are_lost is not None:
            raise BackupError(self._segments_are_lost)
        self._knows_segments = True

    def _segment_copies(self) -> ObjectCopies | None:
        if self._source.segments is None or self._target.segments is None:
            return None
        return ObjectCopies(self._source.segments, self._target.segments, self._clock)

    async def _taken_with_objects(self, objects: ObjectCopies) -> tuple[Mapping[ShardId, ShardPoint], set[str]]:
        for is_last in (False,) * (ROUNDS - 1) + (True,):
            taken, missing = await self._take(objects)
            if not missing or is_last:
                break
            _log.info("objects were deleted while they were to be copied: the points are taken anew", n=len(missing))
        return taken, missing

    async def _take(self, objects: ObjectCopies) -> tuple[Mapping[ShardId, ShardPoint], set[str]]:
        """A point of each coordinator, between which no topic came or went, and the objects of these that are gone.

        Offsets of groups are taken before the records that they count.
        """
        for _ in range(ROUNDS):
            async with self._caught_up(CLUSTER_SHARD) as cluster:
                groups_shards = await self._groups_shards(cluster)
                topics = dict(cluster.state.rows(TOPICS))
                gone: dict[str, list[Row]] = {BROKERS.name: [], NODE_IDS.name: [], NOMINATIONS.name: []}
                taken = {CLUSTER_SHARD: await self._points.put(cluster, instead=gone)}
            for shard in groups_shards:
                async with self._caught_up(shard) as follower:
                    taken[shard] = await self._points.put(follower)
            missing = await self._take_diskless(taken, objects)
            async with self._caught_up(CLUSTER_SHARD) as cluster:
                if dict(cluster.state.rows(TOPICS)) == topics:
                    return taken, missing
        raise BackupError("topics were created or deleted at each of several tries: do neither during a backup")

    async def _take_diskless(self, taken: dict[ShardId, ShardPoint], objects: ObjectCopies) -> set[str]:
        """Add the points of the Diskless coordinators, copy the objects that they need, and return those that are gone.

        An object that one of them needs may have been handed over to the next one between their points. The next one
        would delete it: it is taken as if it had not got the object yet, and gets it again when its time comes.
        """
        missing = set[str]()
        still_owned: dict[int, set[Key]] = defaultdict(set)
        for shard in await self._diskless_shards():
            async with self._caught_up(shard) as follower:
                self._look_for_segments(follower)
                without = {RECEIVED_FILES.name: still_owned[shard.index]}
                taken[shard] = point = await self._points.put(follower, without=without)
            async for _, rows in self._rows(point.manifest, (LIVE_FILES.name,)):
                missing |= await objects.copy([cast("str", row[0]) for row in rows])
                for row in rows:
                    owners = LIVE_FILES.decode(row).owner_ids
                    for owner in owners[owners.index(shard.index) + 1 :]:
                        still_owned[owner].add((row[0],))
        return missing

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
        needed = shards[-1].index + 1 if shards else 0
        for whose, config in (("of the cluster", self._config), ("to restore with", self._target.config)):
            configured = shard_counts(config)[DISKLESS]
            if configured < needed:
                raise BackupError(f"in the configuration {whose}, {too_few(DISKLESS, configured, needed)}")
        return shards

    async def _existing(self, kind: ShardKind, expected: int) -> list[ShardId]:
        """Those that were ever written to, beyond the expected ones too."""
        count = await count_existing(self._points.log, kind, expected)
        return [shard for shard in map(kind.shard, range(count)) if await self._points.exists(shard)]

    def _caught_up(self, shard: ShardId) -> AbstractAsyncContextManager[CoordinatorShard[Any]]:
        return self._points.caught_up(shard, SHARD_ROOMS[kind_of(shard)].machine())

    async def _lacking(self, taken: Mapping[ShardId, ShardPoint], missing: Collection[str]) -> list[Lacking]:
        """Which offsets are in objects that are missing."""
        names, lacking = dict[bytes, str](), list[Lacking]()
        offsets: dict[tuple[bytes, int], list[tuple[int, int]]] = defaultdict(list)
        for shard, point in taken.items():
            if not missing or kind_of(shard) is not DISKLESS:
                continue
            async for table, rows in self._rows(point.manifest, (SHARD_TOPICS.name, BATCHES.name)):
                if table == SHARD_TOPICS.name:
                    names |= {cast("bytes", row[0]): SHARD_TOPICS.decode(row).name for row in rows}
                    continue
                for row in rows:
                    run = BATCHES.decode(row)
                    if run.object_key in missing:
                        offsets[cast("bytes", row[0]), cast("int", row[1])].append((run.base_offset, run.last_offset))
        for (topic_id, partition), some in sorted(offsets.items()):
            topic = names.get(topic_id, str(UUID(bytes=topic_id)))
            lacking += [Lacking(topic=topic, partition=partition, first=a, last=b) for a, b in _joined(some)]
        return lacking

    async def _rows(self, manifest: Manifest, tables: Sequence[str]) -> AsyncIterator[tuple[str, list[Any]]]:
        for part in manifest.parts:
            data = await reading.read_part(self._target.objects, part)
            for found in snapshot_format.decode_part(part, data, tables):
                yield found


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


async def _keep_only(snapshots: Snapshots, kept: Mapping[ShardId, UUID]) -> None:
    for shard, log_id in kept.items():
        await snapshots.remove_of(shard, lambda manifest, log_id=log_id: manifest.log_id != log_id)  # type: ignore[misc]


# --- restore -----------------------------------------------------------------------------------------------------


async def description_of(config: BrokerConfig, objects: WalObjectStore) -> Backup:
    """What the backup in a place has.

    Raises:
        BackupError: there is none, or it is of another version of Diskless.
        WalObjectStoreError: the place cannot be read.
    """
    key = f"{backups_prefix(config)}/description"
    try:
        data = await objects.get(key, 0, _LIMIT_BYTES)
    except ObjectNotFoundError:
        raise BackupError(f"there is no {key}: this is no backup, or one that was not finished") from None
    try:
        said: dict[str, Any] = json.loads(bytes(data))
        shards = [BackedUpShard(**one) for one in said.pop("shards")]
        lacking = [Lacking(**one) for one in said.pop("lacking")]
        return Backup(shards=shards, lacking=lacking, **said)
    except (ValueError, TypeError, KeyError) as error:
        raise BackupError(f"{key} is not what this version of Diskless writes: {error}") from error


async def restore(backup: Backup, place: Place, log: CoordinatorLog, snapshots: Snapshots, clock: Clock) -> None:
    """Begin the log of a cluster with a backup. When it was interrupted, it can be done again.

    Raises:
        BackupError: the segments that the backup knows of are not where it has them.
        MigrationRefusedError: the log is in use.
        CoordinatorLogError, WalObjectStoreError: a backend failed.
    """
    if backup.knows_segments:
        await require_marked(place, backup.segments_mark)
    new_log = NewLog(log, clock)
    names = {parse_shard(one.shard): LogName(UUID(one.log_id), UUID(one.moved_from)) for one in backup.shards}
    terms = {shard: await new_log.claim(shard, name.moved_from) for shard, name in names.items()}
    # Only now is it certain that nobody uses these logs. A shard that has its name may have snapshots of its own since.
    unnamed = {shard: name.log_id for shard, name in names.items() if terms[shard] is not None}
    await _keep_only(snapshots, unnamed)
    for shard, name in names.items():
        await new_log.name(shard, name, terms[shard])


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
