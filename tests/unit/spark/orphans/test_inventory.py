"""S3 Inventories: which one is taken, and what is read from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diskless_spark.orphans.inventory import InventoryError, find_inventory, read_file
from tests.support.inventories import Listed, write_inventory

FORMATS = ("Parquet", "CSV")
ROWS = [Listed("wal/a b+ü%.txt", 7), Listed("wal/ab/1-x", 0), Listed("wal/plain", 3)]


def listed(url: str) -> list[tuple[str, int]]:
    inventory = find_inventory(url, {})
    return [
        (key, size)
        for file in inventory.files
        for keys, sizes in read_file(file, inventory.columns, {})
        for key, size in zip(keys.to_pylist(), sizes.to_pylist(), strict=True)
    ]


@pytest.mark.parametrize("file_format", FORMATS)
def test_keys_and_sizes_are_read_as_they_are_in_the_bucket(tmp_path: Path, file_format: str) -> None:
    url = write_inventory(tmp_path, [ROWS[:2], [], ROWS[2:]], created_ms=5, file_format=file_format)
    assert listed(url) == [(row.key, row.size) for row in ROWS]


@pytest.mark.parametrize("file_format", FORMATS)
def test_older_versions_and_deletions_are_no_objects(tmp_path: Path, file_format: str) -> None:
    rows = [Listed("k1", 1), Listed("k1", 2, is_latest=False), Listed("k2", None, is_marker=True), Listed("k3", 3)]
    url = write_inventory(tmp_path, [rows], created_ms=5, file_format=file_format)
    assert listed(url) == [("k1", 1), ("k3", 3)]


def test_the_newest_inventory_that_is_whole_is_taken(tmp_path: Path) -> None:
    for day in (1, 3, 2):
        write_inventory(tmp_path, [ROWS], created_ms=day, taken=f"2026-01-0{day}T01-00Z")
    (tmp_path / "2026-01-04T01-00Z").mkdir()
    (tmp_path / "hive").mkdir()
    found = find_inventory(f"file://{tmp_path}", {})
    assert (found.url, found.created_ms) == (f"file://{tmp_path}/2026-01-03T01-00Z/manifest.json", 3)
    assert find_inventory(f"file://{tmp_path}/2026-01-01T01-00Z/manifest.json", {}).created_ms == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"fileFormat": "ORC"}, "is in ORC: have it made in Parquet or CSV"),
        ({"fileFormat": "CSV", "fileSchema": "Bucket, Key"}, "have the field Size included"),
        ({"fileSchema": "message s3.inventory { required binary key; }"}, "have the field Size included"),
        ({"files": None}, "is no manifest of an S3 Inventory"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    url = write_inventory(tmp_path, [ROWS], created_ms=5)
    manifest = tmp_path / "2026-01-31T01-00Z" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | change))
    with pytest.raises(InventoryError, match=reason):
        find_inventory(url, {})


def test_a_place_without_an_inventory_is_refused(tmp_path: Path) -> None:
    for url in (f"file://{tmp_path}", f"file://{tmp_path}/none", f"file://{tmp_path}/manifest.json"):
        with pytest.raises(InventoryError, match=f"there is no .*{tmp_path.name}"):
            find_inventory(url, {})


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_file_that_is_cut_off_is_an_error(tmp_path: Path, file_format: str) -> None:
    url = write_inventory(tmp_path, [ROWS * 100], created_ms=5, file_format=file_format)
    (file,) = (tmp_path / "data").iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises((OSError, EOFError, ValueError)):
        listed(url)
