"""`diskless cluster backup` and `diskless cluster restore`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from diskless_core import logs
from diskless_core.broker.errors import StartError
from diskless_core.cli import common
from diskless_core.cli.backends import Backends, run
from diskless_core.cli.backup import Backup, BackupRun, OffsetRange, require_unused
from diskless_core.cli.backup_places import BackupError, Place
from diskless_core.cli.backup_restore import restore as restore_backup
from diskless_core.cli.text import iso_time
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.new_log import MigrationRefusedError
from diskless_core.coordinator.shard_points import ShardPoints
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.plugin.coordinator_log import LogNotFoundError

_ERRORS = (BackupError, MigrationRefusedError, CoordinatorError, StartError)


def backup(
    target: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Configuration of the cluster that could be restored: its wal_object_store is where the backup goes.",
        ),
    ],
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Copy a cluster that runs to another bucket, and say what the copy lacks.

    Everything that was acknowledged before the command began is in it. The cluster is only read, and need not run. An
    earlier backup in the same place is brought up to date. `diskless cluster restore` begins a cluster with it.
    """
    _complain_only()
    try:
        made = run(_backup(config, override or (), target))
    except _ERRORS as error:
        common.fail(str(error))
    if as_json:
        common.echo_json(asdict(made))
    else:
        typer.echo("\n".join(_lines(made)))
    if made.lacking or made.vanished_segments:
        raise typer.Exit(1)


def restore(
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Begin a cluster with the backup in its wal_object_store. Brokers start on it afterwards, with empty folders.

    The configuration is the one that the backup was made for. The cluster that was backed up is not touched. When the
    command is interrupted, run it again.
    """
    _complain_only()
    try:
        made = run(_restore(config, override or ()))
    except _ERRORS as error:
        common.fail(str(error))
    if as_json:
        common.echo_json(asdict(made))
    else:
        typer.echo("\n".join([*_lines(made), "Start its brokers now, with empty log.dirs."]))


def _complain_only() -> None:
    """The output is the command's own: of what coordinators log, warnings go to standard error."""
    logs.configure("text", "WARNING", None, stream=sys.stderr)


async def _backup(config: Path | None, override: Sequence[str], target: Path) -> Backup:
    old, new = Backends.configured(config, override), Backends.configured(target, ())
    if old.config.diskless_wal_object_prefix != new.config.diskless_wal_object_prefix:
        raise BackupError("both configurations need the same diskless.wal.object.prefix: the log names objects by it")
    with tempfile.TemporaryDirectory(prefix="diskless-backup-") as folder:
        store = Backends.configured(config, [*override, f"log.dirs={folder}"]).store()
        async with (
            _place(old) as source,
            old.log() as log,
            _place(new, writes=True) as destination,
        ):
            kept = Snapshots.of(new.config, destination.objects, new.clock)
            points = ShardPoints(log, store, Snapshots.of(old.config, source.objects, old.clock), kept, old.clock)
            return await BackupRun(source, destination, points, kept, old.clock, partial(require_no_cluster, new)).run()


async def require_no_cluster(target: Backends) -> None:
    """Refuse a target that has a log. One that is not there yet is as good as an empty one.

    Raises:
        MigrationRefusedError, CoordinatorLogError: as `require_unused`.
    """
    with suppress(LogNotFoundError):
        async with target.log() as log:
            await require_unused(log)


async def _restore(config: Path | None, override: Sequence[str]) -> Backup:
    backends = Backends.configured(config, override)
    async with _place(backends, writes=True) as place, backends.log(writes=True) as log:
        snapshots = Snapshots.of(backends.config, place.objects, backends.clock)
        return await restore_backup(place, log, snapshots, backends.clock)


@asynccontextmanager
async def _place(backends: Backends, *, writes: bool = False) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        segments = backends.segments_as_objects()
        if segments is not None:
            stack.push_async_callback(segments.stop)
            await (segments.start() if writes else segments.start_reading())
        yield Place(
            config=backends.config,
            objects=await stack.enter_async_context(backends.objects(writes=writes)),
            segments=segments,
            shares_segments=backends.shares_segments,
            records_segments=backends.records_segments,
        )


def _lines(made: Backup) -> list[str]:
    size = f"{made.copied_objects} objects copied ({made.copied_bytes} bytes)"
    began, ended = iso_time(made.began_ms), iso_time(made.ended_ms)
    lines = [
        f"backup of cluster {made.cluster_id}: {len(made.shards)} coordinators, {size}",
        f"It has everything that was acknowledged before {began}, and nothing that was after {ended}.",
    ]
    lines += [f"The topic {name} came while the backup was made, and may lack records." for name in made.came]
    lines += [f"The topic {name} was deleted while the backup was made, and is not in it." for name in made.gone]
    lines += [f"It lacks {_range(one)}: their objects were gone when they were to be copied." for one in made.lacking]
    lines += [f"It lacks {_range(one)}: the cluster deleted these records meanwhile." for one in made.deleted]
    if made.vanished_segments:
        lines.append(f"It lacks {made.vanished_segments} objects of remote storage: deleted while they were copied.")
    if made.segments_mark is None:
        lines.append(
            "Segments of tiered storage are not in it: remote_storage.fsspec.url is not set in both configurations."
        )
    return lines


def _range(one: OffsetRange) -> str:
    return f"{one.topic}-{one.partition}, offsets {one.first} to {one.last}"
