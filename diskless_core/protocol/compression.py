"""Decompression of a record batch's records, with a bound on what comes out: a few bytes may claim to be gigabytes."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Callable
from typing import Any

import lz4.frame
import zstandard
from kafka.codec import snappy_decode

from diskless_core.protocol.varint import read_uvarint

MAX_DECOMPRESSED_BYTES = 64 << 20
"""Of one batch. What a batch of the largest usual size, 1 MiB, becomes with a ratio of 64."""

_PIECE_BYTES = 1 << 20
_SNAPPY = 2
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16
_BLOCK_SIZE = struct.Struct(">i")

_STREAMS: dict[int, Callable[[io.BytesIO], Any]] = {
    1: lambda compressed: gzip.GzipFile(fileobj=compressed),
    3: lambda compressed: lz4.frame.LZ4FrameFile(compressed),
    4: lambda compressed: zstandard.ZstdDecompressor().stream_reader(compressed, read_across_frames=True),
}


class DecompressionError(Exception):
    """The data is damaged, or becomes larger than allowed."""


class UnknownCodecError(Exception):
    """Kafka has no such codec."""


def decompress(codec: int, compressed: bytes, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes | bytearray:
    """The records that `compressed` holds; `codec` is Kafka's number of 1 gzip, 2 snappy, 3 lz4 or 4 zstd.

    Raises:
        DecompressionError: it is damaged, or there are more than `max_bytes` of them; not much more memory is taken.
        UnknownCodecError: another codec.
    """
    if codec != _SNAPPY and codec not in _STREAMS:
        raise UnknownCodecError(f"there is no compression codec {codec}")
    try:
        return _snappy(compressed, max_bytes) if codec == _SNAPPY else _stream(codec, compressed, max_bytes)
    except DecompressionError:
        raise
    except Exception as error:  # the codec packages share no base class of their errors
        raise DecompressionError(f"the records can't be decompressed: {error}") from error


def _stream(codec: int, compressed: bytes, max_bytes: int) -> bytearray:
    stream = _STREAMS[codec](io.BytesIO(compressed))
    found = bytearray()
    while piece := stream.read(_PIECE_BYTES):
        found += piece
        _check_size(len(found), max_bytes)
    return found


def _snappy(compressed: bytes, max_bytes: int) -> bytes:
    """Snappy's own format says at the start of each block how much it becomes, and that much memory is taken."""
    _check_size(_claimed_by_snappy(compressed), max_bytes)
    found: bytes = snappy_decode(compressed)
    return found


def _claimed_by_snappy(compressed: bytes) -> int:
    view = memoryview(compressed)
    if not compressed.startswith(_XERIAL_MAGIC):
        return read_uvarint(view, 0)[0]
    claimed, pos = 0, _XERIAL_HEADER_BYTES
    while pos < len(view):
        size = _BLOCK_SIZE.unpack_from(view, pos)[0]
        if size <= 0:
            raise DecompressionError(f"a block of {size} bytes")
        pos += _BLOCK_SIZE.size
        claimed += read_uvarint(view, pos)[0]
        pos += size
    return claimed


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise DecompressionError(f"the records are larger than {max_bytes} bytes once decompressed")
