"""`diskless compact`: moves records from WAL objects into segments, in a running broker or for one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from diskless_core.cli import admin_client, common, text
from diskless_core.cli.backends import Backends, run
from diskless_core.cli.cluster_admin import ClusterAdmin
from diskless_core.cli.cluster_compaction import ClusterCompaction, CompactionWish
from diskless_core.cli.compaction_progress import progress_bar
from diskless_core.cli.compaction_reports import LOST
from diskless_core.cli.tables import echo_table
from diskless_core.plugin.remote_storage import RemoteStorageError

app = typer.Typer(add_completion=False)


@app.command()
def compact(
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="A topic; can be given many times.")
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all", help="All topics.")] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="Another engine than the configured one. In the broker it has its default settings.",
        ),
    ] = None,
    here: Annotated[
        bool,
        typer.Option(
            "--here", help="Run the engine in this process, with the settings of the command's configuration."
        ),
    ] = False,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="Where an engine such as spark runs its tasks. Implies --here."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="Make the last segments too although they are not full.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be made, and make nothing.")] = False,
    from_snapshot: Annotated[
        bool,
        typer.Option(
            "--from-snapshot",
            help="With --plan: ask no broker, but the snapshots of its coordinators in the object store.",
        ),
    ] = False,
    url: admin_client.UrlsOption = None,
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Move records of topics from WAL objects into segments, at all brokers that lead their coordinators.

    Any broker can be asked: it tells where the others are. When a coordinator moves meanwhile, or its broker dies, the
    compaction goes on at the next one that leads it.
    """
    if bool(topic) == all_topics:
        raise typer.BadParameter("give either --topic or --all")
    if from_snapshot and not plan:
        raise typer.BadParameter(
            "--from-snapshot only shows a --plan: segments are made for a broker, whose coordinators take them for the "
            "batches in WAL objects"
        )
    try:
        if from_snapshot:
            _show_snapshot_plan(Backends.configured(config, override), topic, everything=everything, as_json=as_json)
            return
        cluster = ClusterAdmin(admin_client.addresses(url, config, override))
        wish = CompactionWish(topics=topic, engine=None if here or master else engine, everything=everything)
        if plan:
            planned = _planned(cluster, wish)
            common.echo_json(planned) if as_json else _show_plan(planned)
            made = len(planned)
        else:
            with progress_bar(wanted=not as_json) as show:
                if here or master:
                    # it brings the server's parts, which other ways of this command do without
                    from diskless_core.cli.compaction_driver import DriverBackends, driven

                    backends = DriverBackends.for_engine(config, override, engine=engine, master=master)
                    compaction = ClusterCompaction(cluster, wish, show)
                    report = run(driven(compaction, backends, topic or None, everything=everything))
                else:
                    report = run(ClusterCompaction(cluster, wish, show).by_brokers())
            common.echo_json(report) if as_json else _show_report(report)
            if report["state"] == "failed":
                common.fail(*report["failures"])
            made = report["segments"]
        if not (made or everything or as_json):
            with suppress(admin_client.AdminClientError):  # what was asked for is done
                impatient = ClusterAdmin(admin_client.addresses(url, config, override), patience_s=0)
                _say_what_waits(_planned(impatient, replace(wish, everything=True)))
    except (admin_client.AdminClientError, RemoteStorageError) as error:
        common.fail(str(error))


def _planned(cluster: ClusterAdmin, wish: CompactionWish) -> list[dict[str, Any]]:
    return run(ClusterCompaction(cluster, wish, lambda *_: None).planned())


def _show_snapshot_plan(backends: Backends, topics: list[str] | None, *, everything: bool, as_json: bool) -> None:
    # it brings parts of the broker, which other ways of this command do without
    from diskless_core.cli.snapshot_plan import plan_from_snapshot

    plan = run(plan_from_snapshot(backends, topics or None, everything=everything))
    if as_json:
        common.echo_json(plan.segments)
        return
    _show_plan(plan.segments)
    taken_at = datetime.fromtimestamp(plan.taken_at_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")
    typer.echo(f"as of {taken_at}, and as if no topic had settings of its own: the snapshots do not have them")


def _show_plan(segments: list[dict[str, Any]]) -> None:
    header = ("topic", "partition", "start offset", "end offset", "bytes", "ranges")
    echo_table(header, [tuple(segment.values()) for segment in segments])
    typer.echo(f"{text.counted(len(segments), 'segment')} of {_size_bytes(segments)} bytes")


def _show_report(report: dict[str, Any]) -> None:
    echo_table(
        ("topic", "partitions", "segments", "bytes", "lost"),
        [
            (name, topic["partitions"], topic["segments"], topic["size_bytes"], topic["segments_lost"])
            for name, topic in sorted(report["topics"].items())
        ],
    )
    seconds = (report["ended_at_ms"] - report["begun_at_ms"]) / 1000
    typer.echo(
        f"{text.counted(report['segments'], 'segment')} of {report['bytes_copied']} bytes in {seconds:.1f} s, "
        f"engine {report['engine']}"
    )
    for job in report["jobs"]:
        if job["state"] == LOST:
            typer.echo(f"broker {job['node_id']} did not finish its job: others went on with it")


def _say_what_waits(segments: list[dict[str, Any]]) -> None:
    if segments:
        waiting = f"{_size_bytes(segments)} bytes wait in WAL objects"
        typer.echo(f"nothing is full yet ({waiting}); --everything makes the rest")


def _size_bytes(segments: list[dict[str, Any]]) -> int:
    return sum(segment["size_bytes"] for segment in segments)
