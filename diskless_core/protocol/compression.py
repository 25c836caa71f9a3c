"""Compression of a record batch's records, and decompression with a bound on what comes out.

A few bytes may claim to be gigabytes. Codecs have Kafka's numbers, names and levels.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import lz4.frame
import zstandard
from kafka.codec import snappy_decode, snappy_encode

from diskless_core.protocol.varint import read_uvarint

MAX_DECOMPRESSED_BYTES = 64 << 20
"""Of one batch. What a batch of the largest usual size, 1 MiB, becomes with a ratio of 64."""

CODECS: Mapping[str, int] = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Kafka's number of each codec, by the name that `compression.type` has for it."""

_NONE, _GZIP, _SNAPPY, _LZ4, _ZSTD = CODECS.values()


class Levels(NamedTuple):
    """The levels of a codec: from `lowest` to `highest`, or `or_else`."""

    lowest: int
    highest: int
    default: int
    or_else: int | None = None


LEVELS: Mapping[int, Levels] = {
    _GZIP: Levels(1, 9, default=-1, or_else=-1),
    _LZ4: Levels(1, 17, default=9),
    _ZSTD: Levels(-(1 << 17), 22, default=3),
}
"""Those of the codecs that have any."""


class Codec(NamedTuple):
    """How to compress: Kafka's number of a codec, 0 for none, and a level where it has levels."""

    number: int
    level: int | None = None


_PIECE_BYTES = 1 << 20
_GZIP_FORMAT = 16 + zlib.MAX_WBITS
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16
_BLOCK_SIZE = struct.Struct(">i")

_STREAMS: dict[int, Callable[[io.BytesIO], Any]] = {
    _GZIP: lambda compressed: gzip.GzipFile(fileobj=compressed),
    _LZ4: lambda compressed: lz4.frame.LZ4FrameFile(compressed),
    _ZSTD: lambda compressed: zstandard.ZstdDecompressor().stream_reader(compressed, read_across_frames=True),
}


class DecompressionError(Exception):
    """The data is damaged, or becomes larger than allowed."""


class DecompressedSizeError(DecompressionError):
    """The data becomes larger than allowed."""


class UnknownCodecError(Exception):
    """Kafka has no such codec."""


def decompress(codec: int, compressed: bytes, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes | bytearray:
    """The records that `compressed` holds; `codec` is Kafka's number of 1 gzip, 2 snappy, 3 lz4 or 4 zstd.

    Raises:
        DecompressionError: it is damaged.
        DecompressedSizeError: there are more than `max_bytes` of them; not much more memory is taken.
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


def compress(codec: Codec, records: bytes | bytearray | memoryview) -> bytes | bytearray | memoryview:
    """The records in the form in which every Kafka client reads them: that of the Java client.

    Raises:
        UnknownCodecError: another codec.
    """
    levels = LEVELS.get(codec.number)
    level = codec.level if codec.level is not None or levels is None else levels.default
    match codec.number:
        case 0:
            return records
        case 1:
            packer = zlib.compressobj(level if level is not None else -1, zlib.DEFLATED, _GZIP_FORMAT)
            return packer.compress(records) + packer.flush()
        case 2:
            return bytes(snappy_encode(records))
        case 3:
            # As the Java client: the default level is the fast compressor, and readers want independent blocks.
            fast = level == LEVELS[_LZ4].default
            packed: bytes = lz4.frame.compress(
                records, compression_level=0 if fast else level, block_linked=False, store_size=False
            )
            return packed
        case 4:
            return zstandard.ZstdCompressor(level=level or 0).compress(records)
    raise UnknownCodecError(f"there is no compression codec {codec.number}")


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
        raise DecompressedSizeError(f"the records are larger than {max_bytes} bytes once decompressed")
