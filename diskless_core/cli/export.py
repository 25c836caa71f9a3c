"""`diskless export`: hands topics over to an Apache Kafka, which serves them from their segments."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from diskless_core.cli import admin_client, common, text
from diskless_core.cli.kafka_cluster import KafkaClusterError
from diskless_core.cli.kafka_exporter import Exporter, ExportReport
from diskless_core.cli.kafka_log_dir import LogDirError
from diskless_core.cli.remote_storages import RemoteStorages
from diskless_core.cli.tiering_client import TieringClient
from diskless_core.plugin.errors import PluginError
from diskless_core.plugin.remote_storage import RemoteStorageError
from diskless_core.tiering.migration.kafka_export import ExportError, Step
from diskless_core.tiering.migration.segment_copy import SegmentDamagedError

app = typer.Typer(help="Hand topics over to another system.", no_args_is_help=True, add_completion=False)

TopicsOption = Annotated[list[str], typer.Option("--topic", metavar="NAME", help="The topic; can be given many times.")]
StorageOption = Annotated[
    str,
    typer.Option(
        "--tiered-storage-dir",
        metavar="DIR",
        help="Where the Kafka has its segments: `dir` of its LocalTieredStorage, or a URL of the same layout.",
    ),
]
StorageOptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tiered-storage-option", metavar="KEY=VALUE", help="A setting of remote_storage.fsspec for that place."
    ),
]
DisklessOption = Annotated[
    str | None,
    typer.Option("--diskless", metavar="HOST:PORT", help="The Diskless broker's address, instead of its listener's."),
]
EXPECTED_ERRORS = (
    admin_client.AdminClientError,
    ExportError,
    KafkaClusterError,
    LogDirError,
    PluginError,
    RemoteStorageError,
    SegmentDamagedError,
)


@app.callback()
def export() -> None:
    """Hand topics over to another system."""


@app.command()
def kafka(
    topic: TopicsOption,
    tiered_storage_dir: StorageOption,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", metavar="HOST:PORT", help="The Kafka; it has to run.")
    ] = None,
    prepare_log_dir: Annotated[
        Path | None,
        typer.Option(
            "--prepare-log-dir",
            metavar="DIR",
            help="Instead: prepare the local logs in log.dirs of one of its brokers, which has to be stopped.",
        ),
    ] = None,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", min=-1, help="Of topics that are created; -1 is Kafka's default.")
    ] = -1,
    tiered_storage_option: StorageOptionsOption = None,
    diskless: DisklessOption = None,
    url: admin_client.UrlsOption = None,
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
) -> None:
    """Copy topics to an Apache Kafka with tiered storage, in three steps, and say what the next one is.

    Run it, do what it says, run it again, until it says that the topics are exported.
    """
    if (bootstrap is None) == (prepare_log_dir is None):
        common.fail("give either --bootstrap, with the Kafka running, or --prepare-log-dir, with its broker stopped")
    storages = RemoteStorages.configured(config, override)
    try:
        with TieringClient.connected(storages.config, diskless, url) as source:
            exporter = Exporter(
                source=source,
                storages=storages,
                place=tiered_storage_dir,
                place_options=tiered_storage_option or (),
                echo=typer.echo,
            )
            if prepare_log_dir is not None:
                asyncio.run(exporter.prepare(topic, prepare_log_dir))
                typer.echo("now start the broker again, and run the command with --bootstrap once more")
            elif bootstrap is not None:
                _tell(asyncio.run(exporter.export(topic, bootstrap, replication_factor)), topic, tiered_storage_dir)
    except EXPECTED_ERRORS as error:
        common.fail(str(error))


def _tell(report: ExportReport, topics: Sequence[str], place: str) -> None:
    segments = f"{text.counted(report.segments, 'segment')} with {report.size_bytes} bytes"
    copied = f"the Kafka has {segments} in its tiered storage"
    if report.step is Step.NOTHING:
        typer.echo(f"{copied}; it serves all records of {', '.join(topics)}")
        typer.echo("retention.ms and retention.bytes of the topics are -1: set there what you want")
        return
    names = " ".join(f"--topic {topic}" for topic in topics)
    typer.echo(f"{copied}. Next:")
    typer.echo(f"1. stop all brokers of the Kafka that have partitions of {', '.join(topics)}")
    typer.echo("2. on each, for the folder that it has as log.dirs:")
    typer.echo(f"   diskless export kafka {names} --tiered-storage-dir {place} --prepare-log-dir LOG_DIR")
    typer.echo("3. start the brokers, and run this command again")
