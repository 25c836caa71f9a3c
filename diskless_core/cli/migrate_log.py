"""`diskless migrate-log`: moves a stopped cluster from one coordinator log to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from diskless_core.broker.coordinators import SHARD_ROOMS, shard_counts, shard_ids
from diskless_core.cli import common
from diskless_core.cli.backends import Backends, run
from diskless_core.cluster import coordinator_counts
from diskless_core.cluster.coordinator_counts import Change, ChangeRefusedError
from diskless_core.cluster.state_machine import ClusterMachine
from diskless_core.cluster.tables import CLUSTER
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.log_migration import LogMigration, MovedShard
from diskless_core.coordinator.new_log import MigrationRefusedError
from diskless_core.coordinator.regrouping import Regrouping
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.groups.routing import shard_index
from diskless_core.groups.state_machine import GroupsMachine
from diskless_core.plugin.folders import FolderLock
from diskless_core.shards import CLUSTER_SHARD, GROUPS, ShardKind, kind_of

app = typer.Typer(add_completion=False)


@app.command(name="migrate-log")
def migrate_log(
    source: Annotated[str, typer.Option("--from", metavar="LOG", help="The coordinator_log that the cluster is on.")],
    target: Annotated[str, typer.Option("--to", metavar="LOG", help="The coordinator_log that it is to be on.")],
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    offsets_topic_num_partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Deal the groups out to so many group coordinators; else there are as many as before.",
        ),
    ] = None,
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
        moved = run(_migrate(old, new, target, offsets_topic_num_partitions))
    except (MigrationRefusedError, ChangeRefusedError, CoordinatorError) as error:
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


async def _migrate(
    old: Backends, new: Backends, destination: str, group_coordinators: int | None
) -> Sequence[MovedShard]:
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
            return await move(migration, shard_counts(old.config), group_coordinators)
    finally:
        lock.release()


async def move(
    migration: LogMigration, counts: Mapping[ShardKind, int], group_coordinators: int | None
) -> Sequence[MovedShard]:
    """Move all shards of a cluster.

    Args:
        counts: how many shards there are of the kinds whose number a broker's settings say.
        group_coordinators: how many there are to be; None: as many as there are.

    Raises:
        ChangeRefusedError: an interrupted run has decided for another number.
        MigrationRefusedError, CoordinatorError, CoordinatorLogError, CoordinatorStoreError, WalObjectStoreError,
            SnapshotError: as `LogMigration.run`.
    """
    cluster = await migration.read_table(CLUSTER_SHARD, ClusterMachine(), CLUSTER)
    change = coordinator_counts.change(cluster.rows, GROUPS.topic, group_coordinators, is_decided=cluster.is_decided)
    shards = shard_ids({**counts, GROUPS: change.old})
    amended = coordinator_counts.changed(cluster.rows, GROUPS.topic, change)
    return await migration.run(
        {shard: SHARD_ROOMS[kind_of(shard)].machine() for shard in shards},
        _regrouping(change) if change.old != change.new else None,
        {CLUSTER_SHARD: {CLUSTER.name: amended}},
    )


def _regrouping(change: Change) -> Regrouping:
    return Regrouping(
        old=[GROUPS.shard(index) for index in range(change.old)],
        new=[GROUPS.shard(index) for index in range(change.new)],
        machine=GroupsMachine(),
        place=lambda group_id: shard_index(group_id, change.new),
    )
