"""The WAL object's format: what is written is read back, and damage is noticed."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.wal import format as wal_format
from diskless_core.wal.format import IndexEntry, WalFormatError

CONTENT = b"batches"


def whole(entries: list[IndexEntry]) -> bytes:
    body = wal_format.HEADER + CONTENT
    return body + wal_format.encode_footer(entries, len(body))


entry = st.builds(
    IndexEntry,
    topic_id=st.binary(min_size=16, max_size=16),
    partition=st.integers(0, 2**31 - 1),
    byte_offset=st.integers(0, 2**62),
    size=st.integers(0, 2**62),
    batch_count=st.integers(0, 2**31 - 1),
    record_count=st.integers(0, 2**62),
)
ENTRY = IndexEntry(b"T" * 16, 1, 16, 7, 1, 1)


@given(st.lists(entry, max_size=5))
def test_the_index_is_read_back_as_written(entries: list[IndexEntry]) -> None:
    assert wal_format.read_index(whole(entries)) == entries
    assert wal_format.read_index(memoryview(bytearray(whole(entries)))) == entries


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_flipped_bit_in_header_index_or_trailer_gives_another_index(position: int, bit: int) -> None:
    data = bytearray(whole([ENTRY, ENTRY._replace(partition=2)]))
    position %= len(data)
    data[position] ^= 1 << bit
    try:
        found = wal_format.read_index(data)
    except WalFormatError:
        return
    assert found == [ENTRY, ENTRY._replace(partition=2)]
    assert 10 <= position < len(wal_format.HEADER) + len(CONTENT), "only reserved fields and batches may change"


@given(st.integers(0, 200))
def test_a_truncated_object_is_refused(length: int) -> None:
    data = whole([ENTRY])
    with pytest.raises(WalFormatError):
        wal_format.read_index(data[: length % len(data)])


def test_a_later_version_is_refused_by_its_number() -> None:
    data = bytearray(whole([]))
    data[9] = 2
    with pytest.raises(WalFormatError, match="version 2"):
        wal_format.read_index(data)


def test_a_key_tells_its_time_and_sorts_by_it_within_its_spread() -> None:
    object_id = uuid.UUID("ab000000-0000-4000-8000-000000000000")
    keys = [wal_format.object_key("some/prefix", created_ms, object_id) for created_ms in (5, 1_700_000_000_000)]
    assert keys[0] == "some/prefix/ab/0000000000005-ab000000-0000-4000-8000-000000000000"
    assert keys == sorted(keys)
    assert [wal_format.created_ms_of(key) for key in keys] == [5, 1_700_000_000_000]


@pytest.mark.parametrize("key", ["", "wal/ab/", "wal/ab/123", "wal/ab/x-y", "wal/ab/-5", "wal/ab/123-"])
def test_a_key_of_something_else_is_refused(key: str) -> None:
    with pytest.raises(WalFormatError):
        wal_format.created_ms_of(key)


def test_a_key_is_known_for_one_of_a_wal_object_by_its_form() -> None:
    object_id = uuid.UUID("ab000000-0000-4000-8000-000000000000")
    key = wal_format.object_key("some/prefix", 1_700_000_000_000, object_id)
    assert wal_format.is_object_key("some/prefix", key)
    assert any(key.startswith(spread) for spread in wal_format.spreads("some/prefix"))
    others = ("some", "some/prefi", "some/prefix/", "other", "")
    assert not any(wal_format.is_object_key(prefix, key) for prefix in others)
    changed = (key + "0", key.replace("/ab/", "/ac/"), key.upper(), key[:-1], "some/prefix/ab/2024-notes.txt")
    assert not any(wal_format.is_object_key("some/prefix", name) for name in changed)
