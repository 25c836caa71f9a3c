"""Keys of WAL objects as numbers: exactly those that the core takes for candidates, and nothing of them lost."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.wal.format import created_ms_of, is_object_key, object_key
from diskless_spark.orphans.keys import parse, texts

PREFIX = "wal/prod"
TIMES = st.integers(0, 10**13 - 1)

wal_keys = st.builds(object_key, st.sampled_from([PREFIX, "wal", "wal/prod2", "wal/dev"]), TIMES, st.uuids())


@st.composite
def nearly_keys(draw: st.DrawFn) -> str:
    """A key with one character changed, or one more, or one less."""
    key = draw(wal_keys)
    position = draw(st.integers(0, len(key) - 1))
    return (
        key[:position] + draw(st.sampled_from(["", "0", "a", "A", "f", "g", "/", "-", "é", "00"])) + key[position + 1 :]
    )


@settings(deadline=None)
@given(st.lists(st.none() | wal_keys | nearly_keys() | st.text(max_size=8)))
def test_exactly_the_keys_of_wal_objects_are_found_with_their_times_and_ids(keys: list[str | None]) -> None:
    found = parse(pa.array(keys, pa.string()), PREFIX)
    wanted = [position for position, key in enumerate(keys) if key is not None and is_object_key(PREFIX, key)]
    assert found.positions.tolist() == wanted
    assert list(texts(PREFIX, *found[:3])) == [keys[position] for position in wanted]
    assert found.created_ms.tolist() == [created_ms_of(keys[position] or "") for position in wanted]


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
def test_a_part_of_a_longer_array_is_read_where_it_is(type_: pa.DataType) -> None:
    keys = [object_key("wal", time, uuid.UUID(int=time << 100)) for time in range(5)]
    found = parse(pa.array(keys, type_)[2:4], "wal")
    assert list(texts("wal", *found[:3])) == keys[2:4]
    assert found.positions.tolist() == [0, 1]
