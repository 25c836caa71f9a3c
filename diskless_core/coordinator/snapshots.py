"""Snapshots of a node's shards in the object store, where every broker can fetch them.

The manifest is put last and names every part, so a snapshot is whole or absent. One that was read back whole is what
allows the log to be pruned below it; older ones go then. (KIP-1164, "Metadata log size management".)

Keys carry the id of the log and of the attempt. So two nodes that both take themselves for the leader do each other no
harm, however long one of them stood still: no two attempts have a key in common, `remove_older` stays within the log of
the snapshot that it keeps and below its offset, and the other removals name the logs that they remove.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import ExitStack, aclosing
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Protocol

import structlog
from crc32c import crc32c

from diskless_core.clock import Clock
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.entries import ACCEPTANCE, Acceptance, stored_acceptance
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.feature_level import stored_level
from diskless_core.coordinator.log_identity import LOG_NAME_KEY, LOG_NAMES, LogName, OtherLogError, stored_name
from diskless_core.coordinator.shard_store import StoreThread
from diskless_core.plugin.coordinator_store import Key, Row, ShardStore, StoreView, TableChanges, TableSpec
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import WalObjectStore, WalObjectStoreError
from diskless_core.protocol.feature_levels import BUILD_LEVELS, FeatureLevels
from diskless_core.side_by_side import in_thread
from diskless_core.snapshot import format as snapshot_format
from diskless_core.snapshot import reading
from diskless_core.snapshot.format import Accepted, Manifest, Part, SnapshotError, SnapshotTooNewError
from diskless_core.snapshot.reading import MANIFEST_SUFFIX, FolderName

_log = structlog.get_logger(__name__)


def snapshot_prefix(config: BrokerConfig) -> str:
    """What the keys of a cluster's snapshots begin with, without the '/' after it."""
    return reading.prefix_beside(config.diskless_wal_object_prefix)


class Reach(NamedTuple):
    """How far a snapshot reaches, and what log its log took the place of.

    At offset 0 it is one with which a shard begins on a log that took the place of another one.

    Attributes:
        acceptance: whose entries count from there on.
    """

    applied_offset: int
    moved_from: uuid.UUID | None
    acceptance: Acceptance


class Beginning(NamedTuple):
    """A shard's state as the one with which it begins on another log.

    Attributes:
        name: of that log.
        instead: small tables by name whose rows are these from then on.
        without: keys by tables' names whose rows are left out.
    """

    name: LogName
    instead: Mapping[str, Sequence[Row]] = MappingProxyType({})
    without: Mapping[str, Collection[Key]] = MappingProxyType({})


class SnapshotSource(Protocol):
    """Where a shard gets its state from when its log no longer begins at the beginning."""

    async def restore(
        self, shard: ShardId, tables: Sequence[TableSpec], store: StoreThread, name: LogName | None
    ) -> int:
        """Fill the store from the newest snapshot, and return the log offset that it reaches.

        Args:
            name: the log that the shard is on, if that is known. Only snapshots of this log count then.

        Raises:
            CoordinatorError: there is none that can be used, or only those of logs that have nothing to do with this
                one.
        """
        ...

    async def reached(self, shard: ShardId, name: LogName | None) -> Reach | None:
        """How far the newest snapshot reaches; None without one. Arguments and errors as `restore`."""
        ...


class NoSnapshots:
    """For shards whose log is never pruned."""

    async def restore(
        self, shard: ShardId, tables: Sequence[TableSpec], store: StoreThread, name: LogName | None
    ) -> int:
        del tables, store, name
        raise CoordinatorError(f"the log of {shard} was pruned, and there is no place for snapshots")

    async def reached(self, shard: ShardId, name: LogName | None) -> Reach | None:
        del shard, name
        return None


class Snapshots:
    """Takes, lists, restores and removes snapshots.

    Args:
        objects: where they are put.
        prefix: what their keys begin with; one cluster has it for itself.
        levels: of the build that takes and reads them.
    """

    def __init__(
        self, objects: WalObjectStore, prefix: str, clock: Clock, levels: FeatureLevels = BUILD_LEVELS
    ) -> None:
        self._objects = objects
        self._prefix = prefix
        self._clock = clock
        self._levels = levels

    @classmethod
    def of(
        cls, config: BrokerConfig, objects: WalObjectStore, clock: Clock, levels: FeatureLevels = BUILD_LEVELS
    ) -> Snapshots:
        """Those of the cluster that a broker belongs to."""
        return cls(objects, snapshot_prefix(config), clock, levels)

    async def take(
        self, shard: ShardId, tables: Sequence[TableSpec], store: StoreThread, beginning: Beginning | None = None
    ) -> Manifest:
        """Put a snapshot of the store as it is now, at the level that its content is written at, and read it back.

        Writes to the store go on meanwhile. What a failed attempt leaves goes when `remove_older` keeps a later one.

        Args:
            beginning: how the shard goes on from this state on another log. None: it goes on on its own log.

        Raises:
            CoordinatorStoreError, WalObjectStoreError: it could not be read or written.
            SnapshotError: what was read back is not what was written, or the log has no id yet.
        """
        with ExitStack() as stack:
            taken_at = self._clock.now_ms()
            stored = stack.enter_context(await store.read(lambda opened: opened.snapshot()))
            view = BeginningView(stored, beginning) if beginning is not None else stored
            return await self.put(shard, tables, view, taken_at)

    async def put(self, shard: ShardId, tables: Sequence[TableSpec], view: StoreView, taken_at: int) -> Manifest:
        """Put a snapshot of what a view has, which is read on threads. Errors as `take`.

        Args:
            taken_at: a time at which the shard had this, in milliseconds since the epoch.
        """
        offset = await in_thread(view.applied_offset)
        level = await in_thread(partial(stored_level, view))
        name = await in_thread(partial(stored_name, view))
        if name is None:
            raise SnapshotError(f"the log of {shard} has no id yet, so no snapshot of it can be told from others")
        acceptance = await in_thread(partial(stored_acceptance, view))
        tables = snapshot_format.tables_at(level, tables)
        of_log = FolderName(name.log_id, name.moved_from)
        stem = reading.stem(self._prefix, shard, of_log, offset, self._clock.new_uuid())
        parts: list[Part] = []
        encoded = snapshot_format.encode_parts(view, tables)
        while (data := await in_thread(partial(next, encoded, None))) is not None:
            key = f"{stem}/{len(parts):05d}"
            await self._objects.put(key, data)
            parts.append(Part(key=key, size=len(data), crc=crc32c(data)))
        manifest = Manifest(
            applied_offset=offset,
            taken_at=taken_at,
            tables=snapshot_format.declared(tables),
            parts=parts,
            level=level,
            log_id=name.log_id,
            moved_from=name.moved_from,
            accepted=Accepted(*ACCEPTANCE.encode(acceptance)),
        )
        key = stem + MANIFEST_SUFFIX
        await self._objects.put(key, snapshot_format.encode_manifest(manifest))
        try:
            await self._verify(key, manifest)
        except reading.UNUSABLE:
            await self._objects.delete([key])  # the key has this attempt's own id
            raise
        return manifest

    async def newest(self, shard: ShardId, log_id: uuid.UUID | None = None) -> Manifest | None:
        """The manifest of the newest snapshot of a shard. One that is damaged does not count.

        Args:
            log_id: the log that it has to be of. None: see `reading.newest_first`.

        Raises:
            SnapshotTooNewError: it is of a later version of Diskless.
            WalObjectStoreError: the object store cannot be read.
        """
        return await reading.newest(self._objects, self._prefix, shard, log_id)

    async def rows_of_log(self, shard: ShardId, log_id: uuid.UUID) -> Mapping[str, Sequence[Row]] | None:
        """All rows of the newest snapshot of one log, by table; None where there is none.

        Raises:
            WalObjectStoreError, SnapshotError: it cannot be read.
        """
        manifest = await self.newest(shard, log_id)
        return await self.rows_of(manifest) if manifest is not None else None

    async def rows_of(self, manifest: Manifest) -> Mapping[str, Sequence[Row]]:
        """All rows of a snapshot, by table.

        Raises:
            WalObjectStoreError, SnapshotError: it cannot be read.
        """
        rows: dict[str, list[Row]] = {table: [] for table in manifest.tables}
        for part in manifest.parts:
            data = await reading.read_part(self._objects, part)
            for table, found in snapshot_format.decode_part(part, data):
                rows[table] += found
        return rows

    async def require_whole(self, shard: ShardId, kept: Manifest) -> None:
        """Require that all objects of a snapshot are there now, before anything goes that it takes the place of.

        Raises:
            SnapshotError: some are gone.
            WalObjectStoreError: the object store cannot be read.
        """
        _require_whole(kept, await reading.keys_of(self._objects, self._prefix, shard, kept.log_id))

    async def remove_older(self, shard: ShardId, kept: Manifest) -> None:
        """Remove the snapshots of a log, and what is left of attempts, that do not reach as far, manifests first.

        Why it may: the kept snapshot is of the same log, reaches further, and all of it is there in the same listing. A
        caller that was away since it took it removes what its successor has removed or will: never the newest one.

        Raises:
            SnapshotError: the kept snapshot is no longer there, and nothing was removed.
            WalObjectStoreError: some are left.
        """
        of_log = FolderName(kept.log_id, kept.moved_from)
        before = f"{reading.log_folder(self._prefix, shard, of_log)}{kept.applied_offset:020d}"
        keys = await reading.keys_of(self._objects, self._prefix, shard, kept.log_id)
        _require_whole(kept, keys)
        await self._remove([key for key in keys if key < before])

    async def remove_log(self, shard: ShardId, log_id: uuid.UUID) -> None:
        """Remove all that there is of the snapshots of one log. The caller has proved that it is over.

        Raises:
            WalObjectStoreError: some are left.
        """
        await self._remove(await reading.keys_of(self._objects, self._prefix, shard, log_id))

    async def remove_attempts(self, shard: ShardId, former: uuid.UUID, kept: Collection[uuid.UUID]) -> None:
        """Remove what is left of attempts to go on elsewhere from the log `former`.

        Args:
            kept: the logs that go on from it, as its end and their beginnings say. The caller has read these: before
                that nobody knows which attempt is the one that counts.

        Raises:
            WalObjectStoreError: some are left.
        """
        dead = list[str]()
        for key in await reading.keys_of(self._objects, self._prefix, shard):
            of_log = reading.folder_name_of(self._prefix, shard, key)
            if of_log is not None and of_log.moved_from == former and of_log.log_id not in kept:
                dead.append(key)
        await self._remove(dead)

    async def _remove(self, keys: list[str]) -> None:
        """Manifests first, so that what a removal leaves when it is cut off is no snapshot."""
        if keys:
            await self._objects.delete(sorted(keys, key=lambda key: not key.endswith(MANIFEST_SUFFIX)))

    async def restore(
        self, shard: ShardId, tables: Sequence[TableSpec], store: StoreThread, name: LogName | None
    ) -> int:
        """See `SnapshotSource.restore`: the newest one that is not damaged. A store filled in part counts as empty."""
        try:
            async with aclosing(self._of(shard, name)) as manifests:
                async for manifest in manifests:
                    try:
                        return await self._load(shard, manifest, tables, store)
                    except SnapshotTooNewError:
                        raise
                    except reading.UNUSABLE as error:
                        _log.warning("a snapshot is passed over", shard=str(shard), error=str(error))
        except (SnapshotTooNewError, WalObjectStoreError) as error:
            raise CoordinatorError(f"the snapshot of {shard} cannot be loaded: {error}") from error
        raise CoordinatorError(
            f"the log of {shard} was pruned, and no snapshot is in {self._folder(shard)} that can be loaded"
        )

    async def reached(self, shard: ShardId, name: LogName | None) -> Reach | None:
        """See `SnapshotSource.reached`."""
        try:
            async with aclosing(self._of(shard, name)) as manifests:
                async for manifest in manifests:
                    return Reach(manifest.applied_offset, manifest.moved_from, Acceptance(*manifest.accepted))
        except (SnapshotTooNewError, WalObjectStoreError) as error:
            raise CoordinatorError(f"the snapshots of {shard} cannot be looked for: {error}") from error
        return None

    async def _of(self, shard: ShardId, name: LogName | None) -> AsyncGenerator[Manifest, None]:
        """Those of a log, newest first. Where there are none at all, those of others tell whether it is the right one.

        Raises:
            CoordinatorError: there are only snapshots of logs that have nothing to do with this one.
            SnapshotTooNewError, WalObjectStoreError: as `reading.newest_first`.
        """
        log_id, is_any = name.log_id if name is not None else None, False
        async with aclosing(reading.newest_first(self._objects, self._prefix, shard, log_id)) as manifests:
            async for manifest in manifests:
                is_any = True
                yield manifest
        if name is None or is_any:
            return
        async with aclosing(reading.newest_first(self._objects, self._prefix, shard)) as manifests:
            async for manifest in manifests:
                _require_akin(manifest, name, shard)

    async def _load(self, shard: ShardId, manifest: Manifest, tables: Sequence[TableSpec], store: StoreThread) -> int:
        snapshot_format.require_supported(manifest.level, self._levels.supported)
        if dict(manifest.tables) != snapshot_format.declared(snapshot_format.tables_at(manifest.level, tables)):
            raise CoordinatorError(f"the snapshot of {shard} has other tables than this version of Diskless")
        await store.read(lambda opened: opened.clear())
        for part in manifest.parts:
            data = await reading.read_part(self._objects, part)
            await store.read(partial(_fill, part, data))
        await store.read(lambda opened: opened.write({}, manifest.applied_offset))
        _log.info("a shard was restored from its snapshot", shard=str(shard), applied_offset=manifest.applied_offset)
        return manifest.applied_offset

    async def _verify(self, key: str, manifest: Manifest) -> None:
        if await reading.read_manifest(self._objects, key) != manifest:
            raise SnapshotError(f"{key} is not what was written")
        for part in manifest.parts:
            if not snapshot_format.is_intact(part, await self._objects.get(part.key, 0, part.size)):
                raise SnapshotError(f"{part.key} is not what was written")

    def _folder(self, shard: ShardId) -> str:
        return reading.folder(self._prefix, shard)


class BeginningView(StoreView):
    """A store's rows as those with which a shard begins on another log: nothing of that is applied or accepted."""

    def __init__(self, view: StoreView, beginning: Beginning) -> None:
        self._view = view
        self._without = beginning.without
        self._instead: dict[str, list[Row]] = {
            **{table: list(rows) for table, rows in beginning.instead.items()},
            ACCEPTANCE.name: [],
            LOG_NAMES.name: [(*LOG_NAME_KEY, *LOG_NAMES.encode(beginning.name))],
        }

    def applied_offset(self) -> int:
        return 0

    def get(self, table: str, key: Key) -> Row | None:
        if table in self._instead:
            return next((row for row in self._instead[table] if row[: len(key)] == key), None)
        return None if key in self._without.get(table, ()) else self._view.get(table, key)

    def scan(
        self,
        table: str,
        start: Key = (),
        end: Key | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        if table in self._instead:
            return self._instead[table] if not start else []
        left_out = self._without.get(table)
        if not left_out:
            return self._view.scan(table, start, end, limit=limit, reverse=reverse)
        width = len(next(iter(left_out)))
        asked = None if limit is None else limit + len(left_out)  # enough, though all of these are among them
        found = self._view.scan(table, start, end, limit=asked, reverse=reverse)
        return [row for row in found if row[:width] not in left_out][:limit]


def _require_akin(manifest: Manifest, name: LogName, shard: ShardId) -> None:
    """Require that a snapshot is of the log before this one, or of the one after it.

    Raises:
        CoordinatorError: it is of neither.
    """
    if manifest.log_id in (name.log_id, name.moved_from) or manifest.moved_from == name.log_id:
        return
    error = OtherLogError.between("the log", name.log_id, "a snapshot in the object store", manifest.log_id)
    raise CoordinatorError(f"{shard} cannot be opened: {error}")


def _require_whole(kept: Manifest, keys: Collection[str]) -> None:
    manifests = {part.key.rpartition("/")[0] + MANIFEST_SUFFIX for part in kept.parts}
    lost = manifests.union(part.key for part in kept.parts).difference(keys)
    if lost:
        raise SnapshotError(
            f"the snapshot at offset {kept.applied_offset} of the log {kept.log_id} is no longer whole, so nothing "
            f"that it takes the place of is removed: {min(lost)} is gone"
        )


def _fill(part: Part, data: bytes, store: ShardStore) -> None:
    for table, rows in snapshot_format.decode_part(part, data):
        store.write({table: TableChanges(put=rows)}, 0)
