"""S3 Inventories as S3 writes them, in a folder."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet

FIELDS = ("Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", "Size", "LastModifiedDate")
TAKEN = "2026-01-31T01-00Z"
PARQUET_NAMES = ("bucket", "key", "version_id", "is_latest", "is_delete_marker", "size", "last_modified_date")


class Listed(NamedTuple):
    """One row. A marker has no size."""

    key: str
    size: int | None = 1
    is_latest: bool = True
    is_marker: bool = False


def write_inventory(
    folder: Path,
    files: Sequence[Sequence[Listed]],
    *,
    created_ms: int,
    file_format: str = "Parquet",
    taken: str = TAKEN,
) -> str:
    """The URL of the configuration's folder; `files` are what is in each of the inventory's files."""
    paths = []
    for number, rows in enumerate(files):
        suffix = "parquet" if file_format == "Parquet" else "csv.gz"
        path = folder / "data" / f"{taken}-{number}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        (_write_parquet if file_format == "Parquet" else _write_csv)(path, rows)
        paths.append(path)
    write_manifest(folder, paths, created_ms=created_ms, file_format=file_format, taken=taken)
    return f"file://{folder}"


def write_manifest(
    folder: Path, files: Sequence[Path], *, created_ms: int, file_format: str = "Parquet", taken: str = TAKEN
) -> None:
    """The manifest of these files."""
    columns = " ".join(f"optional binary {name};" for name in PARQUET_NAMES)
    manifest = {
        "sourceBucket": "bucket",
        "destinationBucket": "arn:aws:s3:::inventories",
        "version": "2016-11-30",
        "creationTimestamp": str(created_ms),
        "fileFormat": file_format,
        "fileSchema": ", ".join(FIELDS) if file_format == "CSV" else f"message s3.inventory {{ {columns} }}",
        "files": [{"key": f"inventories/bucket/all/data/{path.name}", "size": path.stat().st_size} for path in files],
    }
    (folder / taken).mkdir()
    (folder / taken / "manifest.json").write_text(json.dumps(manifest))


def _write_parquet(path: Path, rows: Sequence[Listed]) -> None:
    columns = {
        "bucket": pa.array(["bucket"] * len(rows), pa.string()),
        "key": pa.array([row.key for row in rows], pa.string()),
        "is_latest": pa.array([row.is_latest for row in rows], pa.bool_()),
        "is_delete_marker": pa.array([row.is_marker for row in rows], pa.bool_()),
        "size": pa.array([row.size for row in rows], pa.int64()),
    }
    pyarrow.parquet.write_table(pa.table(columns), path)


def _write_csv(path: Path, rows: Sequence[Listed]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for row in rows:
        flags = (str(row.is_latest).lower(), str(row.is_marker).lower())
        size = "" if row.size is None else row.size
        writer.writerow(["bucket", quote(row.key, safe="/"), "", *flags, size, "2026-01-30T00:00:00.000Z"])
    path.write_bytes(gzip.compress(text.getvalue().encode()))
