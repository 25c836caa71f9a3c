"""`diskless wal`: which WAL objects there are, what is in one, and which batches consumers cannot read.

It only reads, so a broker may be running.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from diskless_core.cli import admin_client, common, stored_batches
from diskless_core.cli.backends import Backends, run
from diskless_core.cli.remote_storages import RemoteStorages
from diskless_core.cli.text import NONE, counted, iso_time, table
from diskless_core.cli.wal_objects import find_object, read_headers, read_index
from diskless_core.layout.partition import PartitionLayout
from diskless_core.plugin.wal_object_store import ObjectInfo, ObjectNotFoundError, WalObjectStore
from diskless_core.protocol.names import uuid_text
from diskless_core.protocol.record_batch import BatchHeader
from diskless_core.wal.format import IndexEntry, WalFormatError, created_ms_of

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

app = typer.Typer(
    help="List WAL objects, look into them, and find damaged batches.", no_args_is_help=True, add_completion=False
)


@app.command("ls")
def list_objects(
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", help="Only keys that begin so. Without it, those that the broker would write."),
    ] = None,
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """List the objects of the configured store, the oldest first."""
    backends = Backends.configured(config, override)
    wanted = f"{backends.config.diskless_wal_object_prefix}/" if prefix is None else prefix

    async def listed() -> list[ObjectInfo]:
        async with backends.objects() as store:
            return await _listed(store, wanted)

    found = run(listed())
    if as_json:
        common.echo_json([_object_json(info) for info in found])
        return
    rows = [(info.key, _created(info.key), info.size_bytes) for info in found]
    typer.echo("\n".join(table(("key", "created", "bytes"), rows)))


@app.command()
def show(
    key: Annotated[str, typer.Argument(help="Key of the object, as `ls` writes it.")],
    batches: Annotated[bool, typer.Option("--batches", help="Show the header of each batch too.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the whole object and check the CRC of each batch.")
    ] = False,
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Show what an object holds; ends with an error if it is damaged."""
    backends = Backends.configured(config, override)
    try:
        info, described = run(_described(backends, key, walk=batches or verify, verify=verify))
    except WalFormatError as error:
        common.fail(f"{key} is damaged: {error}")
    if as_json:
        common.echo_json(
            {
                **_object_json(info),
                "verified": verify,
                "partitions": [_partition_json(*one, batches=batches) for one in described],
            }
        )
        return
    typer.echo("\n".join(_object_lines(info, described, batches=batches)))
    if verify:
        typer.echo("All batches are intact.")


@app.command()
def verify(
    key: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY", help="Keys of objects, as `ls` writes them. All objects without."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="NAME",
            help="Instead: the batches of this topic, in WAL objects and segments, with their offsets. "
            "A running broker says where they are. Can be given many times.",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", metavar="N", min=0, help="With --topic: only this one; can be given many times."
        ),
    ] = None,
    url: admin_client.UrlOption = None,
    config: common.ConfigOption = None,
    override: common.OverrideOption = None,
    as_json: common.JsonOption = False,
) -> None:
    """Read every record of every batch, and show the batches that consumers cannot read; ends with 1 if there are any.

    A batch is damaged if its checksum is wrong, its records cannot be unpacked, or they contradict its header.
    """
    if key and topic:
        raise typer.BadParameter("give either keys of objects or --topic")
    if partition and not topic:
        raise typer.BadParameter("--partition is of a topic: give --topic too")
    backends = RemoteStorages.configured(config, override)
    if topic:
        damaged, checked = _verified_topics(backends, topic, partition or (), url, config, override)
    else:
        damaged, checked = run(_verified_objects(backends, key or ()))
    if as_json:
        common.echo_json({"batches": checked, "damaged": damaged})
    else:
        if damaged:
            typer.echo("\n".join(table(list(damaged[0]), [list(one.values()) for one in damaged])))
        typer.echo(f"{counted(checked, 'batch', 'batches')} read, {len(damaged)} damaged")
    if damaged:
        raise typer.Exit(1)


async def _verified_objects(backends: Backends, keys: Sequence[str]) -> tuple[list[dict[str, Any]], int]:
    """What is wrong, a row for each batch, and how many batches there are."""
    damaged, checked = list[dict[str, Any]](), 0
    async with backends.objects() as store:
        prefix = f"{backends.config.diskless_wal_object_prefix}/"
        objects = [await find_object(store, one) for one in keys] if keys else await _listed(store, prefix)
        for info in objects:
            row = {"object": info.key, "topic_id": None, "partition": None, "byte_offset": 0, "bytes": info.size_bytes}
            try:
                async for entry, batch in stored_batches.in_object(store, info):
                    checked += 1
                    if batch.problem is not None:
                        found = {"topic_id": _topic_id(entry), "partition": entry.partition}
                        place = {"byte_offset": batch.byte_offset, "bytes": batch.size, "problem": batch.problem}
                        damaged.append(row | found | place)
            except WalFormatError as error:
                damaged.append(row | {"problem": str(error)})
            except ObjectNotFoundError:
                typer.echo(f"{info.key} has been deleted meanwhile", err=True)
    return damaged, checked


def _verified_topics(
    backends: RemoteStorages,
    topics: Sequence[str],
    partitions: Collection[int],
    url: list[str] | None,
    config: Path | None,
    override: Sequence[str] | None,
) -> tuple[list[dict[str, Any]], int]:
    try:
        layouts = admin_client.layouts(admin_client.address(url, config, override), topics)
    except admin_client.AdminClientError as error:
        common.fail(str(error))
    wanted = [layout for layout in layouts if not partitions or layout.partition.partition in partitions]
    return run(_verified_partitions(backends, wanted))


async def _verified_partitions(
    backends: RemoteStorages, layouts: Sequence[PartitionLayout]
) -> tuple[list[dict[str, Any]], int]:
    damaged, checked = list[dict[str, Any]](), 0
    async with backends.objects() as store:
        for layout in layouts:
            async for batch in stored_batches.in_partition(layout, store, backends.own):
                checked += 1
                if batch.problem is not None:
                    damaged.append(
                        {
                            "topic": layout.partition.topic,
                            "partition": layout.partition.partition,
                            "first_offset": batch.first_offset,
                            "last_offset": batch.last_offset,
                            "place": batch.place,
                            "byte_offset": batch.byte_offset,
                            "bytes": batch.size,
                            "problem": batch.problem,
                        }
                    )
    return damaged, checked


Described = Sequence[tuple[IndexEntry, Sequence[tuple[int, BatchHeader]]]]
"""The partitions of an object, and byte offset and header of their batches where these were read."""


async def _listed(store: WalObjectStore, prefix: str) -> list[ObjectInfo]:
    found = [info async for page in store.list(prefix) for info in page]
    return sorted(found, key=lambda info: (_created(info.key), info.key))


async def _described(backends: Backends, key: str, *, walk: bool, verify: bool) -> tuple[ObjectInfo, Described]:
    async with backends.objects() as store:
        info = await find_object(store, key)
        index = await read_index(store, info)
        if not walk:
            return info, [(entry, ()) for entry in index]
        headers = [[one async for one in read_headers(store, key, entry, verify=verify)] for entry in index]
    return info, list(zip(index, headers, strict=True))


def _created(key: str) -> str:
    try:
        return iso_time(created_ms_of(key))
    except WalFormatError:
        return NONE


def _object_json(info: ObjectInfo) -> dict[str, Any]:
    created = _created(info.key)
    return {"key": info.key, "created": None if created == NONE else created, "bytes": info.size_bytes}


def _partition_json(entry: IndexEntry, headers: Sequence[tuple[int, BatchHeader]], *, batches: bool) -> dict[str, Any]:
    described = {
        "topic_id": _topic_id(entry),
        "partition": entry.partition,
        "byte_offset": entry.byte_offset,
        "bytes": entry.size,
        "batch_count": entry.batch_count,
        "record_count": entry.record_count,
    }
    return {**described, "batches": [_batch(*one) for one in headers]} if batches else described


def _topic_id(entry: IndexEntry) -> str:
    return uuid_text(uuid.UUID(bytes=entry.topic_id))


def _batch(byte_offset: int, header: BatchHeader) -> dict[str, Any]:
    return {
        "byte_offset": byte_offset,
        "bytes": header.size,
        "records": header.record_count,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "codec": _CODECS[header.compression] if header.compression < len(_CODECS) else str(header.compression),
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "base_timestamp": iso_time(header.base_timestamp),
        "max_timestamp": iso_time(header.max_timestamp),
    }


def _object_lines(info: ObjectInfo, described: Described, *, batches: bool) -> Iterable[str]:
    yield f"{info.key}, created {_created(info.key)}, {info.size_bytes} bytes"
    rows = [
        (
            _topic_id(entry),
            entry.partition,
            entry.batch_count,
            entry.record_count,
            entry.byte_offset,
            entry.byte_offset + entry.size,
        )
        for entry, _ in described
    ]
    yield from table(("topic id", "partition", "batches", "records", "from byte", "to byte"), rows)
    if batches:
        for entry, headers in described:
            yield f"\n{_topic_id(entry)} partition {entry.partition}:"
            lines = [_batch(*one) for one in headers]
            yield from table([name.replace("_", " ") for name in lines[0]], [list(line.values()) for line in lines])
