"""`diskless compact`: has a running broker move records from WAL objects into segments."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import urlencode

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table
from tenacity import Retrying, retry_if_result, wait_fixed

from diskless_core.cli import admin_client, common, text

app = typer.Typer(add_completion=False)

POLL_S = 0.5
_ENDED = ("finished", "failed")


@app.command()
def compact(
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="A topic; can be given many times.")
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all", help="All topics.")] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine", metavar="NAME", help="Another engine than the configured one. It has its default settings."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="Make the last segments too although they are not full.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be made, and make nothing.")] = False,
    url: admin_client.UrlOption = None,
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Move records of topics from WAL objects into segments, those of the coordinators that the broker leads."""
    if bool(topic) == all_topics:
        raise typer.BadParameter("give either --topic or --all")
    try:
        broker = url or admin_client.configured_url(config, override)
        if plan:
            planned = _planned(broker, topic, engine, everything=everything)
            common.echo_json(planned) if as_json else _show_plan(planned)
            made = len(planned)
        else:
            body = {"topics": topic or [], "all": all_topics, "engine": engine, "everything": everything}
            begun = admin_client.ask("POST", broker, "/compaction", body)
            report = _follow(broker, begun, show=not as_json and sys.stderr.isatty())
            common.echo_json(report) if as_json else _show_report(report)
            if report["state"] == "failed":
                common.fail(*report["failures"])
            made = report["segments"]
        if not (made or everything or as_json):
            with suppress(admin_client.AdminClientError):  # what was asked for is done
                _say_what_waits(_planned(broker, topic, engine, everything=True))
    except admin_client.AdminClientError as error:
        common.fail(str(error))


def _planned(broker: str, topics: list[str] | None, engine: str | None, *, everything: bool) -> list[dict[str, Any]]:
    asked = [*(("topic", one) for one in topics or ()), ("everything", str(everything).lower())]
    if engine is not None:
        asked.append(("engine", engine))
    segments: list[dict[str, Any]] = admin_client.ask("GET", broker, f"/compaction/plan?{urlencode(asked)}")
    return segments


def _follow(broker: str, report: dict[str, Any], *, show: bool) -> dict[str, Any]:
    """Wait for the end of a job; its last report."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not show) as progress:
        bar = progress.add_task(report["state"], total=None)

        def look() -> dict[str, Any]:
            now: dict[str, Any] = admin_client.ask("GET", broker, f"/compaction/{report['id']}")
            progress.update(
                bar,
                description=now["state"],
                completed=now["bytes_copied"],
                total=now["bytes_planned"] + now["bytes_expected"],
            )
            return now

        waiting = Retrying(retry=retry_if_result(lambda now: now["state"] not in _ENDED), wait=wait_fixed(POLL_S))
        last: dict[str, Any] = waiting(look)
    return last


def _show_plan(segments: list[dict[str, Any]]) -> None:
    table = Table("topic", "partition", "start offset", "end offset", "bytes", "ranges")
    for segment in segments:
        table.add_row(*map(str, segment.values()))
    Console().print(table)
    typer.echo(f"{text.counted(len(segments), 'segment')} of {_size_bytes(segments)} bytes")


def _show_report(report: dict[str, Any]) -> None:
    table = Table("topic", "partitions", "segments", "bytes", "lost")
    for name, topic in sorted(report["topics"].items()):
        numbers = (topic["partitions"], topic["segments"], topic["size_bytes"], topic["segments_lost"])
        table.add_row(name, *map(str, numbers))
    Console().print(table)
    seconds = (report["ended_at_ms"] - report["begun_at_ms"]) / 1000
    typer.echo(
        f"{text.counted(report['segments'], 'segment')} of {report['bytes_copied']} bytes in {seconds:.1f} s, "
        f"engine {report['engine']}"
    )
    if report["skipped"]:
        typer.echo(f"other brokers lead {text.counted(report['skipped'], 'partition')}: run `diskless compact` there")


def _say_what_waits(segments: list[dict[str, Any]]) -> None:
    if segments:
        waiting = f"{_size_bytes(segments)} bytes wait in WAL objects"
        typer.echo(f"nothing is full yet ({waiting}); --everything makes the rest")


def _size_bytes(segments: list[dict[str, Any]]) -> int:
    return sum(segment["size_bytes"] for segment in segments)
