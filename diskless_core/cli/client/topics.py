"""`diskless topics`: lists, creates, describes, alters and deletes topics of any Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from diskless_core.cli import common, text
from diskless_core.cli.client.cluster import Cluster, TopicDescription, is_internal, no_topic
from diskless_core.cli.client.options import (
    BootstrapOption,
    CommandConfigOption,
    CommandPropertyOption,
    YesOption,
    complete_topic,
    connected,
    ends_on_errors,
    pairs,
)
from diskless_core.cli.tables import echo_table

app = typer.Typer(help="List, create and change topics of any Kafka.", no_args_is_help=True, add_completion=False)

TopicsArgument = Annotated[
    list[str], typer.Argument(metavar="TOPIC", help="Names of topics.", autocompletion=complete_topic)
]
ConfigsOption = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="Set a setting of the topic; can be given many times."),
]


@app.command("list")
@ends_on_errors()
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Show the brokers' own topics too.")] = False,
    as_json: common.JsonOption = False,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    command_property: CommandPropertyOption = None,
) -> None:
    """List topics."""
    cluster = connected(bootstrap_server, command_config, command_property)
    topics = cluster.topics([name for name in cluster.topic_names() if internal or not is_internal(name)])
    if as_json:
        common.echo_json([_listing_json(topic) for topic in topics])
        return
    echo_table(
        ("topic", "partitions", "replication factor"),
        [(topic.name, len(topic.partitions), _replication_factor(topic)) for topic in topics],
    )


@app.command()
@ends_on_errors()
def create(
    topic: TopicsArgument,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", metavar="N", min=1, help="Number of partitions; the broker's default without."
        ),
    ] = None,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", metavar="N", min=-1, help="-1 is the broker's default.")
    ] = -1,
    config: ConfigsOption = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Succeed when the topic exists.")] = False,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    command_property: CommandPropertyOption = None,
) -> None:
    """Create topics."""
    settings = pairs(config or (), "--config")
    cluster = connected(bootstrap_server, command_config, command_property)
    for name in topic:
        if cluster.create_topic(name, partitions or -1, replication_factor, settings):
            typer.echo(f"created {name}")
        elif if_not_exists:
            typer.echo(f"{name} exists")
        else:
            common.fail(f"the topic {name} exists: --if-not-exists takes it as it is")


@app.command()
@ends_on_errors()
def describe(
    topic: TopicsArgument,
    as_json: common.JsonOption = False,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    command_property: CommandPropertyOption = None,
) -> None:
    """Show topics: their partitions with leaders and offsets, and the settings that are not defaults."""
    cluster = connected(bootstrap_server, command_config, command_property)
    described = [_described(cluster, found) for found in cluster.topics(topic)]
    if as_json:
        common.echo_json(described)
        return
    for number, found in enumerate(described):
        if number:
            typer.echo()
        _echo_description(found)


@app.command()
@ends_on_errors()
def alter(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Its name.", autocompletion=complete_topic)],
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", metavar="N", min=1, help="The new number of partitions; it can only grow."),
    ] = None,
    config: ConfigsOption = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config", metavar="KEY", help="Take a setting back to its default; can be given many times."
        ),
    ] = None,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    command_property: CommandPropertyOption = None,
) -> None:
    """Change a topic's settings and its number of partitions."""
    settings = pairs(config or (), "--config")
    if not settings and not delete_config and partitions is None:
        raise typer.BadParameter("give --config, --delete-config or --partitions")
    cluster = connected(bootstrap_server, command_config, command_property)
    cluster.topic(topic)
    if settings or delete_config:
        cluster.alter_config(topic, settings, delete_config or ())
    if partitions is not None:
        cluster.add_partitions(topic, partitions)
    typer.echo(f"altered {topic}")


@app.command()
@ends_on_errors()
def delete(
    topic: TopicsArgument,
    yes: YesOption = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Succeed when there is no such topic.")] = False,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    command_property: CommandPropertyOption = None,
) -> None:
    """Delete topics and all their records."""
    cluster = connected(bootstrap_server, command_config, command_property)
    if not yes:
        typer.confirm(f"Delete {', '.join(topic)} of {cluster.bootstrap}, with all records?", abort=True, err=True)
    for name in topic:
        if cluster.delete_topic(name):
            typer.echo(f"deleted {name}")
        elif if_exists:
            typer.echo(f"there is no {name}")
        else:
            raise no_topic(name)


def _described(cluster: Cluster, topic: TopicDescription) -> dict[str, Any]:
    places = topic.all_partitions()
    earliest, latest = cluster.earliest_offsets(places), cluster.latest_offsets(places)
    return {
        "name": topic.name,
        "id": topic.topic_id,
        "internal": topic.is_internal,
        "replication_factor": _replication_factor(topic),
        "config": cluster.own_config(topic.name),
        "partitions": [
            {
                "partition": partition.number,
                "leader": partition.leader,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "earliest_offset": earliest.get(place),
                "latest_offset": latest.get(place),
            }
            for place, partition in zip(places, topic.partitions, strict=True)
        ],
    }


def _echo_description(topic: dict[str, Any]) -> None:
    partitions = topic["partitions"]
    typer.echo(
        f"{topic['name']}: {text.counted(len(partitions), 'partition')}, "
        f"replication factor {topic['replication_factor']}, id {topic['id']}"
    )
    for key, value in topic["config"].items():
        typer.echo(f"  {key}={value}")
    columns = ("partition", "leader", "replicas", "isr", "earliest_offset", "latest_offset")
    echo_table(
        [column.replace("_", " ") for column in columns],
        [[_cell(partition[column]) for column in columns] for partition in partitions],
    )


def _cell(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, Sequence) else value


def _listing_json(topic: TopicDescription) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": topic.topic_id,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": _replication_factor(topic),
    }


def _replication_factor(topic: TopicDescription) -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)
