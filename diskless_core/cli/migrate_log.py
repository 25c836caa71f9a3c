"""`diskless migrate-log`: moves a stopped cluster from one coordinator log to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from diskless_core.broker.coordinators import SHARD_ROOMS, shard_counts, shard_ids
from diskless_core.cli import common
from diskless_core.cli.backends import Backends, run
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.log_migration import LogMigration, MigrationRefusedError, MovedShard
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.plugin.folders import FolderLock
from diskless_core.shards import kind_of

app = typer.Typer(add_completion=False)


@app.command(name="migrate-log")
def migrate_log(
    source: Annotated[str, typer.Option("--from", metavar="LOG", help="The coordinator_log that the cluster is on.")],
    target: Annotated[str, typer.Option("--to", metavar="LOG", help="The coordinator_log that it is to be on.")],
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Move a stopped cluster to another coordinator log, where it goes on as it was. Run it on one node, as its broker.

    The configuration has the settings of both logs. The old log is ended, and refuses every later start. When the
    command is interrupted, run it again.
    """
    if source == target:
        common.fail(f"the cluster cannot be moved from {source} to {target}: these are the same coordinator_log")
    old, new = (
        Backends.configured(config, [*(override or ()), f"coordinator_log={name}"]) for name in (source, target)
    )
    try:
        moved = run(_migrate(old, new, target))
    except (MigrationRefusedError, CoordinatorError) as error:
        common.fail(str(error))
    if as_json:
        common.echo_json(
            [
                {
                    "shard": str(one.shard),
                    "log_id": str(one.name.log_id),
                    "moved_from": str(one.name.moved_from),
                    "was_moved_before": one.was_moved_before,
                }
                for one in moved
            ]
        )
        return
    for one in moved:
        how = "was moved before" if one.was_moved_before else "was moved"
        typer.echo(f"{one.shard} {how}: its log in {target} has the id {one.name.log_id}")
    typer.echo(f"Set coordinator_log={target} on every broker before you start it.")


async def _migrate(old: Backends, new: Backends, destination: str) -> Sequence[MovedShard]:
    folder = old.config.data_dir.absolute()
    if not folder.is_dir():
        raise MigrationRefusedError(f"there is no folder {folder}: no broker has run with this log.dirs")
    lock = FolderLock(folder)
    lock.acquire()
    try:
        async with (
            old.objects(writes=True) as objects,
            old.log(writes=True) as source,
            new.log(writes=True) as target,
        ):
            migration = LogMigration(
                source=source,
                target=target,
                destination=destination,
                store=old.store(),
                snapshots=Snapshots.of(old.config, objects, old.clock),
                clock=old.clock,
            )
            shards = shard_ids(shard_counts(old.config))
            return await migration.run({shard: SHARD_ROOMS[kind_of(shard)].machine() for shard in shards})
    finally:
        lock.release()
