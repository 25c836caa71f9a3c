"""`diskless coordinator`: what is in a shard's log, how the shards are doing, and their stores made anew.

`dump` reads the log where it lies. Asking the broker over HTTP would not help when it does not start, and would give
away what the log says over an interface without authentication.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Any

import typer

from diskless_core.cli import admin_client, common
from diskless_core.cli.backends import Backends, run
from diskless_core.cli.coordinator_rebuild import RebuildRefusedError, rebuild_stores
from diskless_core.cli.text import NONE, iso_time, table
from diskless_core.coordinator.description import DescribedRecord, LogDescriber
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import SHARD_NAMES, kind_of, parse_shard

app = typer.Typer(help="Look into coordinator shards.", no_args_is_help=True, add_completion=False)


@app.command()
def dump(
    shard: Annotated[str, typer.Argument(help=f"{SHARD_NAMES}; Kafka's names will do too.")],
    start: Annotated[
        int | None, typer.Option("--from", min=0, help="Begin with the entry of this offset; by default the first.")
    ] = None,
    end: Annotated[
        int | None, typer.Option("--to", min=0, help="End before this offset; by default at the high watermark.")
    ] = None,
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Write a shard's log, a line a record; with --json each line is an object. A broker may be running, or not."""
    shard_id = _parse_shard(shard)
    if not run(_dump(Backends.configured(config, override), shard_id, start, end, as_json=as_json)):
        common.fail("some records can't be read: see the lines that say so")


@app.command()
def status(
    url: admin_client.UrlOption = None,
    count: Annotated[
        bool, typer.Option("--count", help="Count all rows, and WAL objects: the broker reads its stores through.")
    ] = False,
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Show the coordinator shards of a running broker."""
    try:
        broker = admin_client.address(url, config, override)
        shards = admin_client.ask("GET", broker, f"/coordinator/shards{'?count=true' if count else ''}")
    except admin_client.AdminClientError as error:
        common.fail(str(error))
    if as_json:
        common.echo_json(shards)
        return
    typer.echo("\n".join(_status_lines(shards)))


@app.command()
def rebuild(
    config: common.ConfigOption = None, override: common.OverrideOption = None, as_json: common.JsonOption = False
) -> None:
    """Empty the coordinator stores: the next start fills them again from log and snapshots. The broker must not run."""
    try:
        replayed = run(rebuild_stores(Backends.configured(config, override)))
    except RebuildRefusedError as error:
        common.fail(str(error))
    if as_json:
        common.echo_json(
            [{"shard": str(shard), "replay_from": start, "high_watermark": end} for shard, (start, end) in replayed]
        )
        return
    for shard, (start, end) in replayed:
        typer.echo(f"{shard} is empty: the next start replays the offsets from {start} to {end}")


def _parse_shard(text: str) -> ShardId:
    try:
        return parse_shard(text)
    except ValueError as error:
        common.fail(str(error))


# --- dump --------------------------------------------------------------------------------------------------------


async def _dump(backends: Backends, shard: ShardId, start: int | None, end: int | None, *, as_json: bool) -> bool:
    """Write the records, and return whether all of them could be read."""
    readable = True
    async with backends.log() as log, aclosing(_records(log, shard, start, end)) as records:
        async for record in records:
            typer.echo(json.dumps(asdict(record)) if as_json else _record_line(record))
            readable = readable and record.is_readable
    return readable


async def _records(
    log: CoordinatorLog, shard: ShardId, start: int | None, end: int | None
) -> AsyncGenerator[DescribedRecord, None]:
    bounds = await log.bounds(shard)
    if bounds.end == 0:
        common.fail(f"the log has no shard {shard}")
    first = bounds.start if start is None else start
    last = bounds.end if end is None else min(end, bounds.end)
    describer = LogDescriber(from_start=first == 0, keyed_records=kind_of(shard).keyed_records)
    if first >= last:
        return
    async for batches in log.read(shard, first):
        for batch in batches:
            if batch.offset >= last:
                return
            for record in describer.describe(batch):
                yield record
            if batch.next_offset >= last:
                return


def _record_line(record: DescribedRecord) -> str:
    term = NONE if record.term is None else record.term
    sequence = NONE if record.sequence is None else record.sequence
    ignored = " (ignored: not the next of the latest term)" if record.accepted is False else ""
    fields = " ".join(f"{name}={_value(value)}" for name, value in record.data.items())
    when = iso_time(record.timestamp)
    return f"{record.offset} {when} term={term} sequence={sequence} {record.type} {fields}{ignored}"


def _value(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


# --- status ------------------------------------------------------------------------------------------------------


def _status_lines(shards: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    if not shards:
        yield "The broker is starting or stopping: it has no shards now."
        return
    header = ("shard", "leader", "leading", "term", "log start", "high watermark", "applied", "stored", "pending")
    rows = [
        (
            shard["shard"],
            shard["leader"],
            "yes" if shard["leading"] else "no",
            shard["term"],
            shard["log_start_offset"],
            shard["high_watermark"],
            shard["applied_offset"],
            shard["stored_offset"],
            shard["pending_commands"],
        )
        for shard in shards
    ]
    yield from table(header, rows)
    for shard in shards:
        rows_text = ", ".join(f"{name} {count}" for name, count in shard["rows"].items())
        yield f"{shard['shard']} rows: {rows_text}"
        yield f"{shard['shard']} snapshot: {_snapshot_text(shard)}"
        if shard["data_bytes"] is not None:
            yield f"{shard['shard']} data: {shard['data_bytes']} bytes"
        if shard["objects"] is not None:
            objects = ", ".join(f"{stage} {count}" for stage, count in shard["objects"].items())
            yield f"{shard['shard']} objects: {objects}"
        if shard["failure"] is not None:
            yield f"{shard['shard']} FAILED: {shard['failure']}"


def _snapshot_text(shard: Mapping[str, Any]) -> str:
    taken_at = shard["snapshot_taken_at"]
    taken = NONE if taken_at is None else f"up to {shard['snapshot_offset']}, {iso_time(taken_at)}"
    return f"{taken}; {shard['bytes_since_snapshot']} bytes of the log since"
