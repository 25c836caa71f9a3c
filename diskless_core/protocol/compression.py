"""Compression of a record batch's records, and decompression with a bound on what comes out.

A few bytes may claim to be gigabytes. Codecs have Kafka's numbers, names and levels. `decompress` returns everything at
once; an `Unpacker` takes only as much as is asked for.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import lz4.frame
import snappy
import zstandard
from kafka.codec import snappy_encode

from diskless_core.protocol.varint import VarintError, read_uvarint

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


_PIECE_BYTES = 64 << 10
_PACKED_PART_BYTES = 16 << 10
_CUT = "the compressed records are cut off"
_GZIP_MAX_RATIO = 1032
_LZ4_MAX_RATIO = 255
_ZSTD_BLOCK_BYTES = 128 << 10
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_HEADER_BYTES = 3
_ZSTD_REPEATED_BYTE = 1
_ZSTD_MAX_RATIO = 43_691
"""By how much a codec can shrink at most. Of zstd's, a block of 128 KiB takes three bytes and its content."""

_SNAPPY_MAX_RATIO = 22
_SNAPPY_MAX_GROWTH = 6
"""Bytes that a block can take for each byte of its content, beyond the varint of its size."""

_SIZE_VARINT_BYTES = 5
_MAX_EMPTY_IN_A_ROW = 4
"""Blocks of snappy or members of gzip without content. No Kafka client writes any."""

_LITERAL, _NEAR_COPY, _COPY = 0, 1, 2
_GZIP_FORMAT = 16 + zlib.MAX_WBITS
_GZIP_MAGIC = b"\x1f\x8b"
_HEADERS_BYTES = 32
"""At least what the headers of a frame of lz4 and of its first block take."""

_LZ4_FLAGS_AT = 4
_LZ4_BLOCK_SIZE_AT = 5
_LZ4_INDEPENDENT_BLOCKS = 0x20
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16
_BLOCK_SIZE = struct.Struct(">i")


class DecompressionError(Exception):
    """The data is damaged, or becomes larger than allowed."""


class DecompressedSizeError(DecompressionError):
    """The data becomes larger than allowed."""


class UnknownCodecError(Exception):
    """Kafka has no such codec."""


def decompress(codec: int, compressed: bytes, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytearray:
    """The records that `compressed` holds; `codec` is Kafka's number of 1 gzip, 2 snappy, 3 lz4 or 4 zstd.

    Raises:
        DecompressionError: it is damaged.
        DecompressedSizeError: there are more than `max_bytes` of them; not much more memory is taken.
        UnknownCodecError: another codec.
    """
    found = bytearray()
    if codec == _SNAPPY:  # unpacks whole blocks, each of which says at its start how much it becomes
        _check_size(_claimed_by_snappy(memoryview(compressed)), max_bytes)
    for piece in Unpacker().pieces(codec, memoryview(compressed)):
        found += piece
        _check_size(len(found), max_bytes)
    return found


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise DecompressedSizeError(f"the records are larger than {max_bytes} bytes once decompressed")


def check_frame(codec: int, compressed: memoryview) -> None:
    """Check that the Java client reads such a frame at all: of lz4, one whose blocks do not refer to each other.

    Raises:
        DecompressionError: it does not.
    """
    if codec == _LZ4 and len(compressed) > _LZ4_FLAGS_AT and not compressed[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT_BLOCKS:
        raise DecompressionError("the blocks of the lz4 frame depend on each other: the Java client does not read them")


def first_block_bytes(codec: int, compressed: memoryview) -> int:
    """At most how many bytes are unpacked to get the first one: a block of zstd, or one of lz4, which says its size."""
    if codec == _LZ4 and len(compressed) > _LZ4_BLOCK_SIZE_AT:
        return 1 << 8 + 2 * (compressed[_LZ4_BLOCK_SIZE_AT] >> 4 & 7)
    return _ZSTD_BLOCK_BYTES


class Unpacker:
    """Decompresses a batch's records piece by piece, and no more of them than the caller takes. For one thread.

    Reads what the Java client reads: of lz4 one frame, of the other codecs all, and passes over bytes behind the last
    one that do not begin another. Many empty blocks of snappy or members of gzip in a row are damage: passing over
    them takes time and yields nothing. Every method takes Kafka's number of a codec other than 0.

    Raises:
        DecompressionError: the data is damaged, as far as it was read.
        UnknownCodecError: there is no such codec.
    """

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor()

    def pieces(self, codec: int, compressed: memoryview) -> Iterator[bytes]:
        """Yield the records in pieces of at most 64 KiB, none of them empty. Snappy's blocks are unpacked whole."""
        try:
            yield from self._pieces(codec, compressed)
        except (DecompressionError, UnknownCodecError):
            raise
        except Exception as error:  # the codec packages share no base class of their errors
            raise DecompressionError(f"the records can't be decompressed: {error}") from error

    def beginning(self, codec: int, compressed: memoryview, wanted_bytes: int) -> bytes:
        """The first `wanted_bytes` of the records, or all of them if there are fewer."""
        found = self.quick_beginning(codec, compressed, wanted_bytes)
        if len(found) >= wanted_bytes:
            return found
        # All there is, or there are several frames, of which the quick way reads one.
        everything = bytearray()
        for piece in self.pieces(codec, compressed):
            everything += piece
            if len(everything) >= wanted_bytes:
                break
        return bytes(everything[:wanted_bytes])

    def quick_beginning(self, codec: int, compressed: memoryview, wanted_bytes: int) -> bytes:
        """The first `wanted_bytes` of the records, or fewer of them than there are.

        Unpacks no more than the first block, as `first_block_bytes` has it, whatever the size of `compressed`.
        """
        try:
            return self._quick_beginning(codec, compressed, wanted_bytes)[:wanted_bytes]
        except (DecompressionError, UnknownCodecError):
            raise
        except Exception as error:
            raise DecompressionError(f"the records can't be decompressed: {error}") from error

    def holds(self, codec: int, compressed: memoryview, needed_bytes: int) -> bool:
        """Whether there may be so many bytes of records. Decompresses only what neither bound nor frame can tell.

        Records that take no more bytes than their compressed form are taken to be there: no codec expands them.
        """
        known = self.quickly_holds(codec, compressed, needed_bytes)
        if known is not None:
            return known
        if codec == _SNAPPY:
            return needed_bytes <= _claimed_by_snappy(compressed)
        found = 0
        for piece in self.pieces(codec, compressed):
            found += len(piece)
            if found >= needed_bytes:
                return True
        return False

    def quickly_holds(self, codec: int, compressed: memoryview, needed_bytes: int) -> bool | None:
        """What `holds` returns, or None where more than the beginning of `compressed` has to be looked at."""
        size = len(compressed)
        if needed_bytes <= size:
            return True
        ratio = {_GZIP: _GZIP_MAX_RATIO, _SNAPPY: _SNAPPY_MAX_RATIO, _LZ4: _LZ4_MAX_RATIO}.get(codec, _ZSTD_MAX_RATIO)
        if needed_bytes > size * ratio:
            return False
        if codec == _SNAPPY and not _is_in_blocks(compressed):
            return needed_bytes <= _claimed_by_block(compressed)
        if codec == _ZSTD and self._claimed_by_zstd(compressed) >= needed_bytes:
            return True
        return None

    def _pieces(self, codec: int, compressed: memoryview) -> Iterator[bytes]:
        match codec:
            case 1:
                return _unpacked_by_gzip(compressed)
            case 2:
                return _unpacked_by_snappy(compressed)
            case 3:
                return _unpacked_by_lz4(compressed)
            case 4:
                stream = self._zstd.stream_reader(compressed, read_across_frames=True)
                return iter(lambda: stream.read(_PIECE_BYTES), b"")
        raise UnknownCodecError(f"there is no compression codec {codec}")

    def _quick_beginning(self, codec: int, compressed: memoryview, wanted_bytes: int) -> bytes:
        match codec:
            case 1:
                return zlib.decompressobj(_GZIP_FORMAT).decompress(compressed[:_PACKED_PART_BYTES], wanted_bytes)
            case 2:
                return _beginning_by_snappy(compressed, wanted_bytes)
            case 3:
                first_block = compressed[: first_block_bytes(codec, compressed) + _HEADERS_BYTES]
                found: bytes = lz4.frame.LZ4FrameDecompressor().decompress(first_block, wanted_bytes)
                return found
            case 4:
                return self._zstd.stream_reader(_first_zstd_block(compressed)).read(wanted_bytes)
        raise UnknownCodecError(f"there is no compression codec {codec}")

    @staticmethod
    def _claimed_by_zstd(compressed: memoryview) -> int:
        try:
            return zstandard.frame_content_size(compressed)
        except zstandard.ZstdError as error:
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


def _claimed_by_snappy(compressed: memoryview) -> int:
    return sum(claimed for _, claimed in _snappy_blocks(compressed))


def _claimed_by_block(block: memoryview) -> int:
    try:
        return read_uvarint(block, 0)[0]
    except (VarintError, IndexError) as error:
        raise DecompressionError("a block of snappy does not say its size") from error


def _is_in_blocks(compressed: memoryview) -> bool:
    return bytes(compressed[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC


def _snappy_blocks(compressed: memoryview) -> Iterator[tuple[memoryview, int]]:
    """The blocks of the Java library's format, or the one block that there is without it, and what each claims."""
    if not _is_in_blocks(compressed):
        yield compressed, _claimed_by_block(compressed)
        return
    pos = _XERIAL_HEADER_BYTES
    empty_in_a_row = 0
    while pos + _BLOCK_SIZE.size <= len(compressed):
        size = _BLOCK_SIZE.unpack_from(compressed, pos)[0]
        pos += _BLOCK_SIZE.size
        if not 0 < size <= len(compressed) - pos:
            raise DecompressionError(f"a block of {size} bytes, where {len(compressed) - pos} are left")
        block = compressed[pos : pos + size]
        claimed = _claimed_by_block(block)
        empty_in_a_row = 0 if claimed else _one_more_empty(empty_in_a_row)
        yield block, claimed
        pos += size


def _one_more_empty(in_a_row: int) -> int:
    if in_a_row == _MAX_EMPTY_IN_A_ROW:
        raise DecompressionError(f"the compressed records have more than {_MAX_EMPTY_IN_A_ROW} empty parts in a row")
    return in_a_row + 1


def _unpacked_by_gzip(compressed: memoryview) -> Iterator[bytes]:
    pos = empty_in_a_row = 0
    while True:
        member, is_empty = zlib.decompressobj(_GZIP_FORMAT), True
        while not member.eof:
            # In small parts, since what is not used yet of a part is copied for each piece.
            part: memoryview | bytes = compressed[pos : pos + _PACKED_PART_BYTES]
            if not part:
                raise DecompressionError(_CUT)
            pos += len(part)
            while part and not member.eof:
                if piece := member.decompress(part, _PIECE_BYTES):
                    is_empty = False
                    yield piece
                part = member.unconsumed_tail
        empty_in_a_row = _one_more_empty(empty_in_a_row) if is_empty else 0
        pos -= len(member.unused_data)
        if bytes(compressed[pos : pos + len(_GZIP_MAGIC)]) != _GZIP_MAGIC:
            return


def _first_zstd_block(compressed: memoryview) -> memoryview:
    """A frame up to the end of its first block. Nothing of a frame to skip: the library would go on to the next ones.

    RFC 8878, section 3.1.1: a block's header has in little-endian order a bit for the last block, two for its type, and
    its size.
    """
    if bytes(compressed[: len(_ZSTD_MAGIC)]) != _ZSTD_MAGIC:
        return compressed[:0]
    content_at = zstandard.frame_header_size(compressed) + _ZSTD_BLOCK_HEADER_BYTES
    header = int.from_bytes(compressed[content_at - _ZSTD_BLOCK_HEADER_BYTES : content_at], "little")
    size = 1 if header >> 1 & 3 == _ZSTD_REPEATED_BYTE else min(header >> 3, _ZSTD_BLOCK_BYTES)
    return compressed[: content_at + size]


def _unpacked_by_lz4(compressed: memoryview) -> Iterator[bytes]:
    frame = lz4.frame.LZ4FrameDecompressor()
    pos = 0
    while not frame.eof:
        part = b""
        if frame.needs_input:
            part = bytes(compressed[pos : pos + _PACKED_PART_BYTES])
            if not part:
                raise DecompressionError(_CUT)
            pos += len(part)
        if piece := frame.decompress(part, _PIECE_BYTES):
            yield piece


def _unpacked_by_snappy(compressed: memoryview) -> Iterator[bytes]:
    for block, claimed in _snappy_blocks(compressed):
        found = _unpacked_block(block, claimed)
        for at in range(0, len(found), _PIECE_BYTES):
            yield found[at : at + _PIECE_BYTES]


def _unpacked_block(block: memoryview, claimed: int) -> bytes:
    size = len(block)
    if claimed > size * _SNAPPY_MAX_RATIO or size > _SIZE_VARINT_BYTES + claimed * _SNAPPY_MAX_GROWTH:
        raise DecompressionError(f"{size} bytes of snappy cannot become {claimed}")
    found: bytes = snappy.uncompress(bytes(block))
    return found


def _beginning_by_snappy(compressed: memoryview, wanted_bytes: int) -> bytes:
    found = b""
    for block, claimed in _snappy_blocks(compressed):
        left = wanted_bytes - len(found)
        found += _unpacked_block(block, claimed) if claimed <= left else _beginning_of_block(block, left)
        if len(found) >= wanted_bytes:
            break
    return found


def _beginning_of_block(block: memoryview, wanted_bytes: int) -> bytes:
    """The first bytes of a block. The library decompresses whole blocks only, and a block may be the whole batch."""
    _, pos = read_uvarint(block, 0)
    found = bytearray()
    while pos < len(block) and len(found) < wanted_bytes:
        tag = block[pos]
        kind, length = tag & 3, tag >> 2
        pos += 1
        if kind == _LITERAL:
            if length >= 60:
                width = length - 59
                length = int.from_bytes(block[pos : pos + width], "little")
                pos += width
            found += block[pos : pos + min(length + 1, wanted_bytes)]
            pos += length + 1
            continue
        if kind == _NEAR_COPY:
            distance = (tag >> 5) << 8 | block[pos]
            length = (length & 7) + 3
            pos += 1
        else:
            width = 2 if kind == _COPY else 4
            distance = int.from_bytes(block[pos : pos + width], "little")
            pos += width
        if not 0 < distance <= len(found):
            raise DecompressionError("a block of snappy refers to what is not there")
        for _ in range(length + 1):
            found.append(found[-distance])
    if len(found) < wanted_bytes:
        raise DecompressionError("a block of snappy has fewer bytes than it says")
    return bytes(found[:wanted_bytes])
