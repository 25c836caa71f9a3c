"""Which single bit of a record batch is flipped, if one is. Pure.

A CRC is linear: the difference between the checksum that a batch states and the one that its bytes have depends only on
which bits are wrong, not on the rest of the content. So one flipped bit is found by walking that difference backwards.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from diskless_core.protocol.record_batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC

SEARCHED_BYTES = 1024 * 1024
"""The content of a larger batch is not searched. Of batches of this size that are wrong in many bits, one in 500 has by
chance the checksum of a batch with a single flipped bit; of smaller ones, fewer."""

_POLYNOMIAL = 0x82F63B78  # CRC-32C, bits reversed
_ALL_BITS = 0xFFFFFFFF
_TOP_BIT = 0x80000000
_HEAD = struct.Struct(">QIiBI")
_LENGTH_AT = 8
_MAGIC_AT = 16
_CRC_AT = 17
_COVERED_AT = 21
_LENGTH_BITS = 32


class FlippedBit(NamedTuple):
    """A bit that is wrong: the byte at `position` of the buffer becomes right when it is XORed with `mask`."""

    position: int
    mask: int


def flipped_bit(data: bytes, position: int, expected_offset: int) -> FlippedBit | None:
    """Find the bit that, once flipped, makes the batch at `position` an intact one of base offset `expected_offset`.

    None if there is no such bit: the batch is intact, cut short, or wrong in several bits. The leader epoch is not
    looked at, for no checksum covers it.
    """
    if len(data) - position < HEADER_BYTES:
        return None
    base_offset, length, _, magic, crc = _HEAD.unpack_from(data, position)
    wrong = [
        *_set_bits(base_offset ^ expected_offset, position, 8),
        *_set_bits(magic ^ MAGIC, position + _MAGIC_AT, 1),
    ]
    end = position + LENGTH_PREFIX_BYTES + length
    if not position + HEADER_BYTES <= end <= len(data):
        return _flipped_length(data, position, length, crc) if not wrong else None
    difference = _checksum(data, position, end) ^ crc
    if wrong or not difference:
        return wrong[0] if len(wrong) == 1 and not difference else None
    in_crc = _set_bits(difference, position + _CRC_AT, 4)
    if len(in_crc) == 1:
        return in_crc[0]
    return _flipped_length(data, position, length, crc) or _flipped_content(difference, position + _COVERED_AT, end)


def _flipped_length(data: bytes, position: int, length: int, crc: int) -> FlippedBit | None:
    for bit in range(_LENGTH_BITS):
        end = position + LENGTH_PREFIX_BYTES + (length ^ 1 << bit)
        if position + HEADER_BYTES <= end <= len(data) and _checksum(data, position, end) == crc:
            (found,) = _set_bits(1 << bit, position + _LENGTH_AT, 4)
            return found
    return None


def _flipped_content(difference: int, start: int, end: int) -> FlippedBit | None:
    if end - start > SEARCHED_BYTES:
        return None
    for position in range(end - 1, start - 1, -1):
        mask = _MASKS.get(difference)
        if mask is not None:
            return FlippedBit(position, mask)
        difference = (difference << 8 & _ALL_BITS) ^ _BYTE_BACK[difference >> 24]
    return None


def _set_bits(difference: int, position: int, size: int) -> list[FlippedBit]:
    """The bits that are set in a big-endian field of `size` bytes at `position`."""
    return [
        FlippedBit(position + size - 1 - bit // 8, 1 << bit % 8) for bit in range(8 * size) if difference >> bit & 1
    ]


def _checksum(data: bytes, position: int, end: int) -> int:
    return int(crc32c(memoryview(data)[position + _COVERED_AT : end]))


def _bits_on(difference: int) -> int:
    """What becomes of a difference in the CRC's register when a byte without a difference follows."""
    for _ in range(8):
        difference = difference >> 1 ^ (_POLYNOMIAL if difference & 1 else 0)
    return difference


def _bits_back(difference: int) -> int:
    """The difference before it."""
    for _ in range(8):
        if difference & _TOP_BIT:
            difference = (difference ^ _POLYNOMIAL) << 1 | 1
        else:
            difference <<= 1
    return difference


_MASKS = {_bits_on(1 << bit): 1 << bit for bit in range(8)}
_BYTE_BACK = [_bits_back(top << 24) for top in range(256)]
