"""Rows to objects and back, and what damage is noticed."""

from __future__ import annotations

import uuid

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.plugin.coordinator_store import Column, ColumnType, TableChanges, TableSpec
from diskless_core.shards import DISKLESS
from diskless_core.snapshot import format as snapshot_format
from diskless_core.snapshot.format import Manifest, Part, SnapshotError
from diskless_core.testing.fakes.store import MemoryCoordinatorStore

INT64 = st.integers(-(2**63), 2**63 - 1)
TABLES = [
    TableSpec(
        name="mixed",
        key=(Column("a", ColumnType.TEXT), Column("b", ColumnType.INTEGER)),
        values=(Column("c", ColumnType.BLOB), Column("d", ColumnType.TEXT), Column("e", ColumnType.INTEGER)),
    ),
    TableSpec(name="keys", key=(Column("k", ColumnType.BLOB),), values=()),
]
MANIFEST = Manifest(
    applied_offset=2**40,
    taken_at=1_700_000_000_000,
    tables=snapshot_format.declared(TABLES),
    parts=[Part(key="a/0", size=2**33, crc=2**32 - 1), Part(key="a/1", size=1, crc=0)],
    log_id=uuid.UUID(int=7),
)


def filled(mixed, keys):
    store = MemoryCoordinatorStore().open(DISKLESS.shard(0), TABLES)
    store.write({"mixed": TableChanges(put=mixed), "keys": TableChanges(put=keys)}, 7)
    return store


def described(data: bytes) -> Part:
    return Part(key="part", size=len(data), crc=crc32c(data))


@given(
    mixed=st.lists(
        st.tuples(st.text(), INT64, st.none() | st.binary(), st.none() | st.text(), st.none() | INT64),
        unique_by=lambda row: row[:2],
        max_size=30,
    ),
    keys=st.lists(st.tuples(st.binary()), unique=True, max_size=10),
    rows_a_batch=st.integers(1, 5),
    part_bytes=st.integers(0, 400),
)
def test_a_store_filled_from_a_snapshot_holds_the_same(mixed, keys, rows_a_batch, part_bytes):
    source, target = filled(mixed, keys), filled([], [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_format, "BATCH_ROWS", rows_a_batch)
        patch.setattr(snapshot_format, "PART_BYTES", part_bytes)
        parts = list(snapshot_format.encode_parts(source, TABLES))
    for data in parts:
        for table, rows in snapshot_format.decode_part(described(data), data):
            target.write({table: TableChanges(put=rows)}, 0)
    for spec in TABLES:
        assert target.scan(spec.name) == source.scan(spec.name)


def test_a_manifest_comes_back_as_it_was():
    assert snapshot_format.decode_manifest(snapshot_format.encode_manifest(MANIFEST)) == MANIFEST


@pytest.mark.parametrize("position", [0.1, 0.5, 0.99])
def test_a_flipped_byte_is_noticed(position):
    (data,) = snapshot_format.encode_parts(filled([("a", 1, b"x" * 100, "t", 2)], [(b"k",)]), TABLES)
    damaged = bytearray(data)
    damaged[int(len(data) * position)] ^= 1
    with pytest.raises(SnapshotError, match="damaged"):
        list(snapshot_format.decode_part(described(data), damaged))


@pytest.mark.parametrize("cut", [0, 10, 61, -1])
def test_a_torn_manifest_is_noticed(cut):
    with pytest.raises(SnapshotError, match="damaged"):
        snapshot_format.decode_manifest(snapshot_format.encode_manifest(MANIFEST)[:cut])


def test_only_the_rows_of_some_tables_are_read():
    (data,) = snapshot_format.encode_parts(filled([("a", 1, b"x", "t", 2)], [(b"k",)]), TABLES)
    assert list(snapshot_format.decode_part(described(data), data, {"keys"})) == [("keys", [(b"k",)])]


def test_columns_are_found_by_name():
    tables = snapshot_format.declared(TABLES)
    assert snapshot_format.positions(tables, "mixed", ["e", "a"]) == (4, 0)
    with pytest.raises(SnapshotError, match="its table mixed has no z, y"):
        snapshot_format.positions(tables, "mixed", ["a", "z", "y"])
    with pytest.raises(SnapshotError, match="its table others has no a"):
        snapshot_format.positions(tables, "others", ["a"])
