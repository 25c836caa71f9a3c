"""An S3 Inventory: the manifest, and the objects that its files list. It blocks; made for tasks and threads.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/storage-inventory-location.html
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import unquote_plus

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

MANIFEST = "manifest.json"
BATCH_OBJECTS = 50_000

_TAKEN = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}Z")
_KEY, _SIZE, _LATEST, _MARKER = "Key", "Size", "IsLatest", "IsDeleteMarker"


class InventoryError(Exception):
    """There is no inventory there that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """One inventory.

    Attributes:
        url: of its manifest.
        created_ms: when S3 began to make it, in milliseconds since the epoch. What came later may be missing.
        columns: names of what a row of a CSV file has; None: the files are Parquet.
        files: URLs.
    """

    url: str
    created_ms: int
    columns: Sequence[str] | None
    files: Sequence[str]


def find_inventory(url: str, options: Mapping[str, Any]) -> Inventory:
    """The inventory of this manifest, or the newest one in the folder of an inventory's configuration.

    Raises:
        InventoryError: there is none, or not of a kind that can be read.
        OSError: the store failed.
    """
    manifest_url = url if url.endswith(f"/{MANIFEST}") else _newest(url, options)
    try:
        with fsspec.open(manifest_url, "rb", **options) as file:
            manifest = json.load(file)
        return parse_manifest(manifest_url, manifest)
    except FileNotFoundError:
        raise InventoryError(f"there is no {manifest_url}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InventoryError(f"{manifest_url} is no manifest of an S3 Inventory: {error!r}") from error


def parse_manifest(url: str, manifest: Mapping[str, Any]) -> Inventory:
    """What a manifest says. Its files are found where S3 puts them, beside the folder of the manifest.

    Raises:
        InventoryError: it is of a format that cannot be read, or lacks a column.
        ValueError, KeyError, TypeError, AttributeError: it is no manifest.
    """
    file_format, schema = manifest["fileFormat"], manifest["fileSchema"]
    if file_format not in ("CSV", "Parquet"):
        raise InventoryError(f"the inventory of {url} is in {file_format}: have it made in Parquet or CSV")
    columns = [column.strip() for column in schema.split(",")] if file_format == "CSV" else None
    if _SIZE not in (columns or [_SIZE]) or (columns is None and "size" not in schema):
        raise InventoryError(f"the inventory of {url} has no sizes: have the field Size included")
    folder = url.rsplit("/", 2)[0]
    return Inventory(
        url=url,
        created_ms=int(manifest["creationTimestamp"]),
        columns=columns,
        files=[f"{folder}/data/{file['key'].rsplit('/', 1)[-1]}" for file in manifest["files"]],
    )


def read_file(
    url: str, columns: Sequence[str] | None, options: Mapping[str, Any]
) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Keys and sizes of the objects in one file, some at a time; no versions but the latest.

    Raises:
        OSError, EOFError, ValueError: it cannot be read.
    """
    with fsspec.open(url, "rb", **options) as file:
        batches = _parquet_batches(file) if columns is None else _csv_batches(file, columns)
        for batch in batches:
            latest = batch.filter(_is_latest(batch))
            keys = latest.column(_KEY)
            sizes = latest.column(_SIZE).cast(pa.int64())
            yield (keys if columns is None else _decoded(keys)), pc.fill_null(sizes, 0)


def _newest(url: str, options: Mapping[str, Any]) -> str:
    files, path = fsspec.core.url_to_fs(url, **options)
    try:
        names = {entry["name"].rstrip("/").rsplit("/", 1)[-1] for entry in files.ls(path, detail=True)}
    except FileNotFoundError:
        raise InventoryError(f"there is no {url}") from None
    # A folder is there before its manifest, which is written last.
    for name in sorted(filter(_TAKEN.fullmatch, names), reverse=True):
        if files.exists(f"{path}/{name}/{MANIFEST}"):
            return f"{url}/{name}/{MANIFEST}"
    raise InventoryError(f"there is no inventory in {url}, whose folders would have names such as 2026-01-31T01-00Z")


def _parquet_batches(file: BinaryIO) -> Iterator[pa.RecordBatch]:
    names = {"key": _KEY, "size": _SIZE, "is_latest": _LATEST, "is_delete_marker": _MARKER}
    parquet = pyarrow.parquet.ParquetFile(file)
    there = [name for name in names if name in parquet.schema_arrow.names]
    for batch in parquet.iter_batches(BATCH_OBJECTS, columns=there):
        yield batch.rename_columns([names[name] for name in batch.schema.names])


def _csv_batches(file: BinaryIO, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    wanted = [name for name in (_KEY, _SIZE, _LATEST, _MARKER) if name in columns]
    types = {_KEY: pa.string(), _SIZE: pa.int64(), _LATEST: pa.bool_(), _MARKER: pa.bool_()}
    with gzip.GzipFile(fileobj=file) as stream:
        if not stream.peek(1):
            return
        yield from pyarrow.csv.open_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(column_names=list(columns)),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types, include_columns=wanted),
        )


def _is_latest(batch: pa.RecordBatch) -> pa.Array:
    is_wanted = pa.repeat(True, batch.num_rows)
    for name, wanted in ((_LATEST, True), (_MARKER, False)):
        if name in batch.schema.names:
            is_wanted = pc.and_(is_wanted, pc.equal(pc.fill_null(batch.column(name), wanted), wanted))
    return is_wanted


def _decoded(keys: pa.Array) -> pa.Array:
    """CSV files have keys as in URLs."""
    encoded = pc.match_substring_regex(keys, "[%+]")
    if not pc.any(encoded).as_py():
        return keys
    return pa.array([unquote_plus(key) for key in keys.to_pylist()], pa.string())
