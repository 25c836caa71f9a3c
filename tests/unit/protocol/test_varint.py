"""Unsigned varints: every length, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.schemas.fields.codecs.types import UnsignedVarInt32

from diskless_core.protocol.varint import VarintError, encode_uvarint, read_uvarint


@given(st.integers(0, 2**31 - 1))
def test_a_varint_is_encoded_as_kafka_python_does_and_read_back(value: int) -> None:
    encoded = encode_uvarint(value)
    assert encoded == UnsignedVarInt32.encode(value)
    assert read_uvarint(b"x" + encoded + b"y", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("value", [-1, 2**31])
def test_a_value_of_more_than_31_bits_is_not_encoded(value: int) -> None:
    with pytest.raises(VarintError):
        encode_uvarint(value)


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\x08", b"\x80\x80\x80\x80\x80\x01", b"\xff" * 5])
def test_a_varint_that_is_too_long_or_too_large_is_not_read(encoded: bytes) -> None:
    with pytest.raises(VarintError):
        read_uvarint(encoded, 0)


def test_a_varint_that_the_data_cuts_off_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        read_uvarint(b"\x80\x80", 0)
