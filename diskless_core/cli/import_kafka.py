"""`diskless import`: adopts topics of an Apache Kafka, from the segments that it has in tiered storage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from diskless_core.cli import admin_client, common, text
from diskless_core.cli.export import (
    EXPECTED_ERRORS,
    DisklessOption,
    StorageOption,
    StorageOptionsOption,
    TopicsOption,
)
from diskless_core.cli.kafka_importer import Importer, PartitionReport
from diskless_core.cli.remote_storages import RemoteStorages
from diskless_core.cli.tiering_client import TieringClient
from diskless_core.protocol.names import partition_name
from diskless_core.tiering.migration.kafka_import import TopicImportError

app = typer.Typer(help="Take over topics of another system.", no_args_is_help=True, add_completion=False)


@app.callback()
def import_() -> None:
    """Take over topics of another system."""


@app.command()
def kafka(
    topic: TopicsOption,
    tiered_storage_dir: StorageOption,
    bootstrap: Annotated[str, typer.Option("--bootstrap", metavar="HOST:PORT", help="The Kafka; it has to run.")],
    tiered_storage_option: StorageOptionsOption = None,
    diskless: DisklessOption = None,
    url: admin_client.UrlsOption = None,
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
) -> None:
    """Copy the segments of an Apache Kafka's topics, and have Diskless serve them with the same offsets.

    Records that Kafka has not copied to its tiered storage yet are left out, and told.
    """
    storages = RemoteStorages.configured(config, override)
    try:
        with TieringClient.connected(storages.config, diskless, url) as target:
            importer = Importer(
                target=target,
                storages=storages,
                place=tiered_storage_dir,
                place_options=tiered_storage_option or (),
                echo=typer.echo,
            )
            _tell(asyncio.run(importer.import_topics(topic, bootstrap)))
    except (*EXPECTED_ERRORS, TopicImportError) as error:
        common.fail(str(error))


def _tell(reports: Sequence[PartitionReport]) -> None:
    segments = sum(report.segments for report in reports)
    size_bytes = sum(report.size_bytes for report in reports)
    of_partitions = text.counted(len(reports), "partition")
    typer.echo(f"Diskless has {text.counted(segments, 'segment')} with {size_bytes} bytes of {of_partitions}")
    left_out = [report for report in reports if report.next_offset < report.log_end_offset]
    for report in left_out:
        typer.echo(
            f"{partition_name(report.topic, report.partition)}: offsets {report.next_offset} to "
            f"{report.log_end_offset - 1} are not imported: Kafka has them in its local log only"
        )
