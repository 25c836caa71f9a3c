"""Unsigned varints of at most 31 bits: what Kafka's flexible versions and record frames count with."""

from __future__ import annotations

_MAX_VALUE = 2**31 - 1
_MAX_BYTES = 5
_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


class VarintError(ValueError):
    """A varint takes more than five bytes, or its value more than 31 bits."""


def encode_uvarint(value: int) -> bytes:
    """The shortest encoding of `value`, which lies between 0 and 2**31 - 1."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if not 0 <= value <= _MAX_VALUE:
        raise VarintError(f"{value} does not fit 31 bits")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_uvarint(data: bytes | bytearray | memoryview, pos: int) -> tuple[int, int]:
    """Value of the varint at `pos`, and the position behind it.

    Raises:
        VarintError: it is too long or too large.
        IndexError: the data ends before it does.
    """
    value = 0
    for index in range(_MAX_BYTES):
        byte = data[pos + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value > _MAX_VALUE:
                break
            return value, pos + index + 1
    raise VarintError("a varint does not fit 31 bits")
