"""`diskless remote-log`: what is known of the segments in remote storage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from diskless_core.cli import admin_client, common
from diskless_core.cli.cluster_admin import ClusterAdmin

app = typer.Typer(help="Show what is known of segments in remote storage.", no_args_is_help=True, add_completion=False)


@app.callback()
def remote_log() -> None:
    """Show what is known of segments in remote storage."""


@app.command()
def dump(
    topic: Annotated[str | None, typer.Option("--topic", help="Only segments of this topic.")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="Only segments of partitions with this number.")
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(
            "--kafka",
            metavar="HOST:PORT",
            help="Print the records of __remote_log_metadata of this Kafka cluster instead.",
        ),
    ] = None,
    url: admin_client.UrlsOption = None,
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Print all segments that running brokers know, a line for each, in the form of Kafka's own formatter."""
    if kafka is None:
        _dump_broker(_segments(topic, partition, url, config, override), as_json=as_json)
    elif as_json:
        raise typer.BadParameter("--kafka prints what Kafka's formatter prints: it has no JSON")
    else:
        _dump_kafka(kafka, topic, partition)


def _segments(
    topic: str | None,
    partition: int | None,
    urls: Sequence[str] | None,
    config: Path | None,
    override: Sequence[str] | None,
) -> Any:
    wanted = {name: value for name, value in (("topic", topic), ("partition", partition)) if value is not None}
    try:
        cluster = ClusterAdmin(admin_client.addresses(urls, config, override))
        path = f"/remote-log{'?' if wanted else ''}{urlencode(wanted)}"
        return cluster.ask_leader(lambda view: view.node_id, "GET", path)
    except admin_client.AdminClientError as error:
        common.fail(str(error))


def _dump_broker(segments: Any, *, as_json: bool) -> None:
    if as_json:
        common.echo_json(segments)
        return
    from diskless_core.admin.models import RemoteSegment
    from diskless_core.remote_log.formatter import format_event

    for segment in segments:
        typer.echo(format_event(RemoteSegment.model_validate(segment).metadata()))


def _dump_kafka(bootstrap: str, topic: str | None, partition: int | None) -> None:
    from diskless_core.cli.remote_log_topic import RemoteLogTopicError, read_records
    from diskless_core.remote_log.formatter import format_record
    from diskless_core.remote_log.metadata import partition_of
    from diskless_core.remote_log.records import CorruptRecordError, decode

    damaged = 0
    try:
        for record in read_records(bootstrap):
            try:
                event = decode(record.value)
            except CorruptRecordError as error:
                damaged += 1
                typer.echo(f"partition: {record.partition}, offset: {record.offset}: {error}", err=True)
                continue
            subject = partition_of(event)
            if topic in (None, subject.topic) and partition in (None, subject.partition):
                typer.echo(format_record(record.partition, record.offset, event))
    except RemoteLogTopicError as error:
        common.fail(str(error))
    if damaged:
        raise typer.Exit(1)
