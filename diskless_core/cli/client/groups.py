"""`diskless groups`: lists, describes, resets and deletes consumer groups of any Kafka."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

import typer

from diskless_core.cli import common, text
from diskless_core.cli.client.cluster import (
    Cluster,
    ClusterError,
    GroupDescription,
    MemberDescription,
    Partition,
    no_partition,
)
from diskless_core.cli.client.options import (
    BootstrapOption,
    CommandConfigOption,
    CommandPropertyOption,
    YesOption,
    complete_group,
    complete_topic,
    connected,
    ends_on_errors,
)
from diskless_core.cli.client.positions import GRAMMAR, PositionError, parse_position
from diskless_core.cli.tables import echo_table
from diskless_core.clock import SystemClock

app = typer.Typer(
    help="List, describe and reset consumer groups of any Kafka.", no_args_is_help=True, add_completion=False
)

GroupsArgument = Annotated[
    list[str], typer.Argument(metavar="GROUP", help="Names of groups.", autocompletion=complete_group)
]


@app.command("list")
@ends_on_errors()
def list_groups(
    as_json: common.JsonOption = False,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    command_property: CommandPropertyOption = None,
) -> None:
    """List consumer groups with their state and type."""
    groups = connected(bootstrap_server, command_config, command_property).groups()
    if as_json:
        common.echo_json([{"name": group.name, "state": group.state, "type": group.group_type} for group in groups])
        return
    echo_table(("group", "state", "type"), [(group.name, group.state, group.group_type) for group in groups])


@app.command()
@ends_on_errors()
def describe(
    group: GroupsArgument,
    as_json: common.JsonOption = False,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    command_property: CommandPropertyOption = None,
) -> None:
    """Show groups: members, what they are assigned, committed offsets and lag of each partition."""
    cluster = connected(bootstrap_server, command_config, command_property)
    described = [_described(cluster, name) for name in group]
    if as_json:
        common.echo_json(described)
        return
    for number, found in enumerate(described):
        if number:
            typer.echo()
        _echo_description(found)


@app.command()
@ends_on_errors()
def reset(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Its name.", autocompletion=complete_group)],
    to: Annotated[
        str | None, typer.Option("--to", metavar="POSITION", help=f"Where the group goes on: {GRAMMAR}.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Instead: so many offsets on, or back if negative.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC[:0,1]",
            help="A topic or some of its partitions, many times; all that the group has committed without.",
            autocompletion=complete_topic,
        ),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Without, only show what would be done.")] = False,
    as_json: common.JsonOption = False,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    command_property: CommandPropertyOption = None,
) -> None:
    """Set the committed offsets of a group that has no members. Changes nothing without --execute.

    An offset outside a partition becomes its beginning or its end.
    """
    if (to is None) == (shift_by is None):
        raise typer.BadParameter("give either --to or --shift-by")
    try:
        position = parse_position(to, SystemClock().now_ms()) if to is not None else None
    except PositionError as error:
        raise typer.BadParameter(str(error), param_hint="--to") from None
    cluster = connected(bootstrap_server, command_config, command_property)
    _refuse_active(cluster.group(group))
    committed = cluster.committed_offsets(group)
    partitions = _chosen(cluster, group, topic, committed)
    if position is not None:
        planned = cluster.offsets_at(partitions, position)
    else:
        planned = _shifted(cluster, partitions, committed, shift_by or 0)
    if execute:
        cluster.commit_offsets(group, planned)
    _echo_reset(group, committed, planned, execute=execute, as_json=as_json)


@app.command()
@ends_on_errors()
def delete(
    group: GroupsArgument,
    yes: YesOption = False,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    command_property: CommandPropertyOption = None,
) -> None:
    """Delete groups that have no members, and their committed offsets."""
    cluster = connected(bootstrap_server, command_config, command_property)
    if not yes:
        typer.confirm(f"Delete {', '.join(group)} of {cluster.bootstrap}, with all offsets?", abort=True, err=True)
    for name in group:
        _refuse_active(cluster.group(name))
        if not cluster.delete_group(name):
            raise _no_group(name)
        typer.echo(f"deleted {name}")


def shifted(committed: int, by: int, earliest: int, latest: int) -> int:
    """A committed offset moved within what the partition has."""
    return min(max(committed + by, earliest), latest)


def _described(cluster: Cluster, name: str) -> dict[str, Any]:
    group = cluster.group(name)
    committed = cluster.committed_offsets(name)
    if not group.exists and not committed:
        raise _no_group(name)
    owners = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted(committed.keys() | owners.keys())
    ends = cluster.latest_offsets(partitions)
    return {
        "name": name,
        "state": group.state,
        "type": group.group_type,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator,
        "members": [_member_json(member) for member in group.members],
        "partitions": [
            _partition_json(partition, committed.get(partition), ends.get(partition), owners.get(partition))
            for partition in partitions
        ],
    }


def _member_json(member: MemberDescription) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id or None,
        "client_id": member.client_id,
        "host": member.host,
        "assignment": [{"topic": topic, "partition": number} for topic, number in member.assignment],
    }


def _partition_json(
    partition: Partition, committed: int | None, end: int | None, owner: MemberDescription | None
) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "committed_offset": committed,
        "end_offset": end,
        "lag": max(end - committed, 0) if end is not None and committed is not None else None,
        "member_id": owner.member_id if owner else None,
    }


def _echo_description(group: dict[str, Any]) -> None:
    members = {member["member_id"]: member for member in group["members"]}
    assignor = f", assignor {group['assignor']}" if group["assignor"] else ""
    typer.echo(f"{group['name']}: {group['state']}, {text.counted(len(members), 'member')}, {group['type']}{assignor}")
    columns = ("topic", "partition", "committed_offset", "end_offset", "lag", "member_id")
    rows = [
        [*(one[column] for column in columns), *_client(members.get(one["member_id"]))] for one in group["partitions"]
    ]
    idle = [member for member in group["members"] if not member["assignment"]]
    rows += [[None] * 5 + [member["member_id"], *_client(member)] for member in idle]
    if rows:
        echo_table([*(column.replace("_", " ") for column in columns), "client id", "host"], rows)


def _client(member: Mapping[str, Any] | None) -> Sequence[str | None]:
    return (member["client_id"], member["host"]) if member else (None, None)


def _refuse_active(group: GroupDescription) -> None:
    if group.members:
        members = text.counted(len(group.members), "member")
        raise ClusterError(f"the group {group.name} is {group.state} with {members}: stop its consumers first")


def _chosen(
    cluster: Cluster, group: str, topics: Collection[str] | None, committed: Collection[Partition]
) -> list[Partition]:
    if not topics:
        if not committed:
            raise ClusterError(f"the group {group} has committed nothing: name its topics with --topic")
        return sorted(committed)
    chosen = []
    for written in topics:
        name, colon, numbers = written.partition(":")
        there = cluster.topic(name).all_partitions()
        if not colon:
            chosen += there
            continue
        for number in numbers.split(","):
            if not number.strip().isdecimal():
                raise typer.BadParameter(f"{written!r} is not TOPIC or TOPIC:0,1", param_hint="--topic")
            if Partition(name, int(number)) not in there:
                raise no_partition(name, int(number), len(there))
            chosen.append(Partition(name, int(number)))
    return sorted(set(chosen))


def _shifted(
    cluster: Cluster, partitions: Collection[Partition], committed: Mapping[Partition, int], by: int
) -> dict[Partition, int]:
    earliest, latest = cluster.earliest_offsets(partitions), cluster.latest_offsets(partitions)
    nowhere = [partition for partition in partitions if partition not in committed]
    if nowhere:
        topic, number = nowhere[0]
        raise ClusterError(f"the group has committed nothing of partition {number} of {topic}: give --to")
    return {
        partition: shifted(committed[partition], by, earliest[partition], latest[partition])
        for partition in partitions
        if partition in earliest.keys() & latest.keys()
    }


def _echo_reset(
    group: str, committed: Mapping[Partition, int], planned: Mapping[Partition, int], *, execute: bool, as_json: bool
) -> None:
    rows = [(*partition, committed.get(partition), planned[partition]) for partition in sorted(planned)]
    columns = ("topic", "partition", "committed_offset", "new_offset")
    if as_json:
        partitions = [dict(zip(columns, row, strict=True)) for row in rows]
        common.echo_json({"name": group, "executed": execute, "partitions": partitions})
        return
    echo_table([column.replace("_", " ") for column in columns], rows)
    if not execute:
        typer.echo("nothing is changed yet: add --execute", err=True)


def _no_group(name: str) -> ClusterError:
    return ClusterError(f"there is no group {name}: `diskless groups list` shows all")
