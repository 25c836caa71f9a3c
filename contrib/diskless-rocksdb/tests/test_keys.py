"""Keys as bytes compare as the keys do, and prefixes of keys as prefixes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.plugin.coordinator_store import Column, ColumnType, Key, TableSpec
from diskless_rocksdb.keys import KeyCodec, KeyFormatError

ALPHABET = st.sampled_from("\x00\x01a\x7f\u00e9\uffff\U0001f600")
BYTES = st.lists(st.sampled_from([0, 1, 0x61, 0xFE, 0xFF]), max_size=6).map(bytes)
VALUES = {
    ColumnType.INTEGER: st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300),
    ColumnType.TEXT: st.text(ALPHABET, max_size=6) | st.text(),
    ColumnType.BLOB: BYTES | st.binary(),
}


@st.composite
def tables_with_keys(draw: st.DrawFn) -> tuple[TableSpec, list[Key]]:
    """A table of any key columns, and some keys of it, many of which have columns in common."""
    types = draw(st.lists(st.sampled_from(list(ColumnType)), min_size=1, max_size=4))
    spec = TableSpec(name="t", key=tuple(Column(f"c{n}", type_) for n, type_ in enumerate(types)), values=())
    pools = [draw(st.lists(VALUES[type_], min_size=1, max_size=4)) for type_ in types]
    keys = st.tuples(*(st.sampled_from(pool) for pool in pools))
    return spec, draw(st.lists(keys, min_size=2, max_size=12))


def ordered(key: Key) -> tuple[object, ...]:
    return tuple(value.encode() if isinstance(value, str) else value for value in key)


@given(tables_with_keys())
def test_bytes_compare_as_keys_do(table: tuple[TableSpec, list[Key]]) -> None:
    spec, keys = table
    codec = KeyCodec.of(spec, 7)

    for one in keys:
        for other in keys:
            assert (codec.encode(one) < codec.encode(other)) == (ordered(one) < ordered(other))
            assert (codec.encode(one) == codec.encode(other)) == (one == other)


@given(tables_with_keys(), st.data())
def test_a_prefix_of_the_columns_bounds_as_a_shorter_tuple_does(
    table: tuple[TableSpec, list[Key]], data: st.DataObject
) -> None:
    spec, keys = table
    codec = KeyCodec.of(spec, 7)
    bound = data.draw(st.sampled_from(keys))[: data.draw(st.integers(0, len(spec.key)))]

    for key in keys:
        assert (codec.bound(bound) <= codec.encode(key)) == (ordered(bound) <= ordered(key))


@given(tables_with_keys())
def test_a_table_is_between_its_bounds_and_apart_from_its_neighbours(table: tuple[TableSpec, list[Key]]) -> None:
    spec, keys = table
    below, codec, above = (KeyCodec.of(spec, number) for number in (255, 256, 257))

    assert (below.after, codec.after) == (codec.first, above.first)
    for key in keys:
        assert below.encode(key) < codec.first <= codec.encode(key) < codec.after <= above.encode(key)


def test_columns_behind_the_key_do_not_count() -> None:
    spec = TableSpec(name="t", key=(Column("a", ColumnType.TEXT),), values=(Column("b", ColumnType.INTEGER),))
    codec = KeyCodec.of(spec, 1)

    assert codec.encode(("x", 5)) == codec.encode(("x",))


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (ColumnType.INTEGER, 2**63),
        (ColumnType.INTEGER, -(2**63) - 1),
        (ColumnType.INTEGER, "1"),
        (ColumnType.INTEGER, None),
        (ColumnType.TEXT, b"a"),
        (ColumnType.TEXT, None),
        (ColumnType.TEXT, "\ud800"),
        (ColumnType.BLOB, "a"),
        (ColumnType.BLOB, None),
    ],
)
@pytest.mark.parametrize("following", [(), (Column("more", ColumnType.INTEGER),)])
def test_what_is_no_key_of_the_table_is_refused_without_its_content(
    type_: ColumnType, value: object, following: tuple[Column, ...]
) -> None:
    spec = TableSpec(name="t", key=(Column("a", type_), *following), values=())
    key = (value, *(1 for _ in following))

    with pytest.raises(KeyFormatError, match=rf"^not a key of this table: {type(value).__name__}"):
        KeyCodec.of(spec, 1).encode(key)  # type: ignore[arg-type]


def test_what_equals_a_known_key_and_is_of_another_type_is_refused_too() -> None:
    columns = (Column("a", ColumnType.BLOB), Column("b", ColumnType.INTEGER), Column("c", ColumnType.INTEGER))
    codec = KeyCodec.of(TableSpec(name="t", key=columns, values=()), 1)
    codec.encode((b"topic", 1, 5))

    with pytest.raises(KeyFormatError):
        codec.encode((b"topic", 1.0, 5))  # type: ignore[arg-type]


def test_a_codec_remembers_no_more_beginnings_than_it_may_and_goes_on() -> None:
    columns = (Column("a", ColumnType.INTEGER), Column("b", ColumnType.INTEGER))
    spec = TableSpec(name="t", key=columns, values=())
    codec = KeyCodec.of(spec, 1)

    for number in range(10_000):
        assert codec.encode((number, 1)) == KeyCodec.of(spec, 1).encode((number, 1))
    assert len(codec._known) <= 4096


def test_a_key_of_too_few_or_too_many_columns_is_refused() -> None:
    spec = TableSpec(name="t", key=(Column("a", ColumnType.TEXT), Column("b", ColumnType.TEXT)), values=())
    codec = KeyCodec.of(spec, 1)

    with pytest.raises(KeyFormatError):
        codec.encode(("a",))
    with pytest.raises(KeyFormatError):
        codec.bound(("a", "b", "c"))
