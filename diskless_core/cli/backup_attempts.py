"""The attempts to make a backup in one place, and which of them counts.

Several commands can work in a place at once, each can stand still for hours and go on, and the object store has no
locks. So everything that an attempt writes carries its name, and three objects say what became of it:

- `attempt-<name>` is put when it begins,
- `description-<name>` is put last, when everything that it describes is there,
- `superseded-<name>` is put by a command that is about to remove it.

An attempt counts if the first two are there and the third is not. A restore begins a cluster with the latest one that
counts. Attempts can come from machines whose clocks differ, so an attempt takes its place in the order from the
attempts that are there when it begins. Everything that removes something of an attempt follows from four rules:

1. A backup supersedes only attempts that began before it, so two of them never supersede each other.
2. A backup first puts `superseded-`, then sees that the place has no log, and only then removes. A restore first claims
   the logs and then looks which attempt counts. So either the backup sees the log and removes nothing, or the restore
   sees that the attempt is superseded.
3. A backup that has put its description looks whether it is the latest one that counts. If a later one was finished or
   has removed what it had put, it is not, and the command fails.
4. Once the cluster's log has its name, that name says which attempt the cluster began with, whatever else is there.
   Only then does a restore remove the others.

(`superseded-` goes last, so an attempt that was removed in part does not count either. That of an attempt without a
description stays: its command may go on and put more points, which the next backup or restore removes.)
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Set
from dataclasses import dataclass
from typing import Self

from diskless_core.cli.backup_places import BackupError, backups_prefix
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.snapshots import Snapshots, snapshot_prefix
from diskless_core.plugin.shard import ShardId, parse_shard_id
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStore
from diskless_core.snapshot import reading

_BEGUN, _DESCRIBED, _SUPERSEDED = "attempt-", "description-", "superseded-"
_LIMIT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, order=True)
class Attempt:
    """An attempt to make a backup, in the order in which they began.

    Attributes:
        position: later attempts have larger ones, whatever the clocks of their machines say: see `FoundAttempts.next`.
    """

    position: int
    attempt_id: uuid.UUID

    @classmethod
    def parsed(cls, name: str) -> Self | None:
        """The attempt of this name; None for anything else."""
        position, _, attempt_id = name.partition("-")
        try:
            attempt = cls(int(position), uuid.UUID(attempt_id))
        except ValueError:
            return None
        return attempt if str(attempt) == name else None

    def log_id(self, shard: ShardId) -> uuid.UUID:
        """The id of the log that a shard gets where this attempt is restored. Its point has it."""
        return uuid.uuid5(self.attempt_id, str(shard))

    def __str__(self) -> str:
        return f"{self.position:020d}-{self.attempt_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAttempts:
    """What a place says of attempts."""

    begun: Set[Attempt]
    described: Set[Attempt]
    superseded: Set[Attempt]

    @property
    def known(self) -> Set[Attempt]:
        """All of which there is anything."""
        return self.begun | self.described | self.superseded

    @property
    def latest(self) -> Attempt | None:
        """The latest one that counts."""
        return max((self.begun & self.described) - self.superseded, default=None)

    def before(self, attempt: Attempt) -> Set[Attempt]:
        """Those that began earlier."""
        return {one for one in self.known if one < attempt}

    def next(self, now_ms: int, attempt_id: uuid.UUID) -> Attempt:
        """An attempt that begins now and is later than all known ones.

        Its position is the time, unless an earlier attempt was made on a machine whose clock is ahead of this one's.

        Args:
            now_ms: milliseconds since the epoch.
        """
        return Attempt(max(now_ms, max((one.position + 1 for one in self.known), default=0)), attempt_id)

    def with_log(self, shard: ShardId, log_id: uuid.UUID) -> Attempt | None:
        """The one that gives a shard's log this id."""
        return next((one for one in self.known if one.log_id(shard) == log_id), None)


class BackupAttempts:
    """Those in one place. Errors: WalObjectStoreError, the place cannot be read or written."""

    def __init__(self, config: BrokerConfig, objects: WalObjectStore) -> None:
        self._prefix = f"{backups_prefix(config)}/"
        self._snapshots = snapshot_prefix(config)
        self._objects = objects

    async def find(self) -> FoundAttempts:
        """What is there now."""
        found: dict[str, set[Attempt]] = {_BEGUN: set(), _DESCRIBED: set(), _SUPERSEDED: set()}
        async for page in self._objects.list(self._prefix):
            for one in page:
                kind, dash, name = one.key.removeprefix(self._prefix).partition("-")
                attempt = Attempt.parsed(name)
                if attempt is not None and kind + dash in found:
                    found[kind + dash].add(attempt)
        return FoundAttempts(begun=found[_BEGUN], described=found[_DESCRIBED], superseded=found[_SUPERSEDED])

    async def begin(self, attempt: Attempt) -> None:
        """Say that an attempt begins."""
        await self._objects.put(self._key(_BEGUN, attempt), b"")

    async def describe(self, attempt: Attempt, text: str) -> None:
        """Say what an attempt has. All of that is there."""
        await self._objects.put(self._key(_DESCRIBED, attempt), text.encode())

    async def description(self, attempt: Attempt) -> str:
        """What was said of an attempt.

        Raises:
            BackupError: nothing, or it was removed.
        """
        key = self._key(_DESCRIBED, attempt)
        try:
            return bytes(await self._objects.get(key, 0, _LIMIT_BYTES)).decode("utf-8", "replace")
        except ObjectNotFoundError:
            raise BackupError(f"{key} was removed meanwhile: run the command again") from None

    async def supersede(self, attempts: Collection[Attempt]) -> None:
        """From now on none of these counts."""
        for attempt in attempts:
            await self._objects.put(self._key(_SUPERSEDED, attempt), b"")

    async def remove_points(self, attempts: Collection[Attempt], snapshots: Snapshots) -> None:
        """Remove the points of attempts that no restore has chosen or will choose.

        Args:
            snapshots: those of the place.
        """
        if not attempts:
            return
        for shard, log_id in await self._logs_with_snapshots():
            if any(attempt.log_id(shard) == log_id for attempt in attempts):
                await snapshots.remove_log(shard, log_id)

    async def forget(self, attempts: Collection[Attempt]) -> None:
        """Remove what says something of attempts whose points are gone. None of them counts at any time meanwhile."""
        if not attempts:
            return
        put_all = (await self.find()).described & set(attempts)
        await self._objects.delete([self._key(kind, one) for one in attempts for kind in (_DESCRIBED, _BEGUN)])
        if put_all:
            await self._objects.delete([self._key(_SUPERSEDED, one) for one in put_all])

    async def _logs_with_snapshots(self) -> list[tuple[ShardId, uuid.UUID]]:
        """The logs of which there are snapshots, with their shards."""
        found: set[tuple[ShardId, uuid.UUID]] = set()
        async for page in self._objects.list(f"{self._snapshots}/"):
            for one in page:
                shard = parse_shard_id(one.key.removeprefix(f"{self._snapshots}/").partition("/")[0])
                of_log = reading.folder_name_of(self._snapshots, shard, one.key) if shard is not None else None
                if shard is not None and of_log is not None:
                    found.add((shard, of_log.log_id))
        return sorted(found)

    def _key(self, kind: str, attempt: Attempt) -> str:
        return f"{self._prefix}{kind}{attempt}"
