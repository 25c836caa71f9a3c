"""Begins a cluster with the backup that is in a place. See `backup_attempts` for what others may do there meanwhile."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from diskless_core.cli.backup import BackedUpShard, Backup, OffsetRange
from diskless_core.cli.backup_attempts import Attempt, BackupAttempts
from diskless_core.cli.backup_places import BackupError, Place, backups_prefix, require_marked
from diskless_core.clock import Clock
from diskless_core.coordinator import which_log
from diskless_core.coordinator.log_identity import LogName
from diskless_core.coordinator.new_log import MigrationRefusedError, NewLog
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import CLUSTER_SHARD, parse_shard


async def restore(place: Place, log: CoordinatorLog, snapshots: Snapshots, clock: Clock) -> Backup:
    """Begin the log of a cluster with a backup. When it was interrupted, it can be done again.

    Raises:
        BackupError: there is no backup; or the segments that it knows of are not where it has them.
        MigrationRefusedError: the log is in use.
        CoordinatorLogError, WalObjectStoreError: a backend failed.
    """
    attempts, new_log = BackupAttempts(place.config, place.objects), NewLog(log, clock)
    terms: dict[ShardId, int | None] = {}
    attempt, is_certain = await _choose(attempts, log, place), False
    while not is_certain:
        made = _parsed(await attempts.description(attempt))
        if made.knows_segments:
            await require_marked(place, made.segments_mark)
        names = {parse_shard(one.shard): LogName(UUID(one.log_id), UUID(one.moved_from)) for one in made.shards}
        for shard, name in names.items():
            terms[shard] = await new_log.claim(shard, name.moved_from)
        # A backup that saw no log before the claims may be removing the chosen attempt. Then another one counts now.
        claimed_for, attempt = attempt, await _choose(attempts, log, place)
        is_certain = attempt == claimed_for
    # The cluster's shard is first. Its name is the choice: of two restores at once only the one that claimed last gives
    # it one, and whatever was interrupted goes on with it. Before that nothing is removed. From then on the points of
    # other attempts are of no use to anybody, however late they are removed; other snapshots may be the new cluster's.
    await new_log.name(CLUSTER_SHARD, names.pop(CLUSTER_SHARD), terms[CLUSTER_SHARD])
    await attempts.remove_points((await attempts.find()).known - {attempt}, snapshots)
    for shard, name in names.items():
        await new_log.name(shard, name, terms[shard])
    return made


async def _choose(attempts: BackupAttempts, log: CoordinatorLog, place: Place) -> Attempt:
    """The attempt that the log began with, or the latest one that counts."""
    found = await attempts.find()
    named = await which_log.name_of(log, CLUSTER_SHARD, await log.bounds(CLUSTER_SHARD))
    if named is not None:
        attempt = found.with_log(CLUSTER_SHARD, named.log_id)
        if attempt is None:
            raise MigrationRefusedError(
                "the log is in use: it is not one that was begun with a backup from this place. Restore with a "
                "coordinator_log that is empty"
            )
        return attempt
    if found.latest is None:
        raise BackupError(
            f"below {backups_prefix(place.config)}/ there is no backup that was finished"
            + (", only attempts that were not: run `diskless cluster backup` again" if found.known else "")
        )
    return found.latest


def _parsed(text: str) -> Backup:
    try:
        said: dict[str, Any] = json.loads(text)
        shards = [BackedUpShard(**one) for one in said.pop("shards")]
        lacking, deleted = ([OffsetRange(**one) for one in said.pop(name)] for name in ("lacking", "deleted"))
        return Backup(shards=shards, lacking=lacking, deleted=deleted, **said)
    except (ValueError, TypeError, KeyError) as error:
        raise BackupError(f"the backup is not described as this version of Diskless does: {error}") from error
