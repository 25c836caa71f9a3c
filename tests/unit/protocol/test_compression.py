"""Decompression gives back what was compressed, and never much more memory than is allowed."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import kafka.codec as stock
import pytest

from diskless_core.protocol import record_batch
from diskless_core.protocol.compression import (
    MAX_DECOMPRESSED_BYTES,
    DecompressionError,
    UnknownCodecError,
    Unpacker,
    decompress,
)
from diskless_core.protocol.record_batch import LargeRecordsError, RecordData
from diskless_core.protocol.varint import encode_uvarint

MIB = 1 << 20
ENCODERS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (1, stock.gzip_encode),
    "snappy in blocks": (2, stock.snappy_encode),
    "snappy as a whole": (2, lambda data: stock.snappy_encode(data, xerial_compatible=False)),
    "lz4": (3, stock.lz4_encode),
    "zstd": (4, stock.zstd_encode),
}


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("size", [1, 100_000, 3 * MIB])
def test_what_was_compressed_comes_back_up_to_the_last_byte_that_is_allowed(name: str, size: int) -> None:
    codec, encode = ENCODERS[name]
    data = bytes(range(251)) * (size // 251 + 1)
    compressed = bytes(encode(data[:size]))
    assert decompress(codec, compressed, max_bytes=size) == data[:size]
    with pytest.raises(DecompressionError, match="larger than"):
        decompress(codec, compressed, max_bytes=size - 1)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_bomb_takes_no_more_memory_than_a_piece_beyond_the_limit(name: str) -> None:
    codec, encode = ENCODERS[name]
    bomb = bytes(encode(bytes(64 * MIB)))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionError, match="larger than"):
            decompress(codec, bomb, max_bytes=MIB)
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


def test_a_few_bytes_of_snappy_that_claim_gigabytes_are_refused() -> None:
    claim = encode_uvarint(2**31 - 1) + b"\0a"
    for compressed in (claim, bytes(stock.snappy_encode(b"")) + len(claim).to_bytes(4, "big") + claim):
        with pytest.raises(DecompressionError, match="larger than"):
            decompress(2, compressed)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("damaged", [b"", b"\xff" * 40, b"\x82SNAPPY\0" + bytes(8) + b"\xff\xff\xff\xff"])
def test_whatever_is_no_compressed_data_is_an_error_or_nothing(codec: int, damaged: bytes) -> None:
    with suppress(DecompressionError):
        assert not decompress(codec, damaged)


@pytest.mark.parametrize("codec", [0, 5, 6, 7])
def test_a_codec_that_kafka_does_not_have_is_named(codec: int) -> None:
    with pytest.raises(UnknownCodecError, match=str(codec)):
        decompress(codec, b"")


def test_records_that_would_become_too_large_are_not_read_as_a_whole() -> None:
    bomb = record_batch.build([RecordData(None, bytes(MAX_DECOMPRESSED_BYTES))], timestamp_ms=5, compression=4)
    assert len(bomb) < MIB
    with pytest.raises(LargeRecordsError, match="larger than"):
        list(record_batch.records(bomb))


@pytest.mark.parametrize("name", ENCODERS)
def test_pieces_are_what_was_compressed_and_none_is_large(name: str) -> None:
    codec, encode = ENCODERS[name]
    data = bytes(range(251)) * (3 * MIB // 251)
    pieces = list(Unpacker().pieces(codec, memoryview(bytes(encode(data)))))
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= 64 << 10


def test_a_block_of_snappy_that_claims_more_than_it_can_become_is_not_unpacked() -> None:
    claim = encode_uvarint(2**31 - 1) + b"\0a"
    with pytest.raises(DecompressionError, match="cannot become 2147483647"):
        list(Unpacker().pieces(2, memoryview(claim)))
    zeros = bytes(stock.snappy_encode(bytes(64 * MIB), xerial_compatible=False))
    assert sum(map(len, Unpacker().pieces(2, memoryview(zeros)))) == 64 * MIB


EMPTY_BLOCK = (1).to_bytes(4, "big") + b"\0"
PARTS: dict[str, tuple[int, bytes, bytes, bytes]] = {
    "blocks of snappy": (2, stock.snappy_encode(b""), EMPTY_BLOCK, stock.snappy_encode(b"some")[16:]),
    "members of gzip": (1, b"", gzip.compress(b""), gzip.compress(b"some")),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_few_parts_without_content_are_passed_over_and_many_in_a_row_are_damage(name: str) -> None:
    codec, header, empty, part = PARTS[name]
    body = header + (empty * 4 + part) * 500
    assert decompress(codec, body) == b"some" * 500
    assert Unpacker().beginning(codec, memoryview(body), 26) == (b"some" * 7)[:26]
    for damaged in (header + empty * 5 + part, header + part + empty * 5, header + empty * 10_000):
        with pytest.raises(DecompressionError, match="more than 4 empty parts in a row"):
            decompress(codec, damaged)


@pytest.mark.parametrize(("codec", "encode"), [(1, stock.gzip_encode), (4, stock.zstd_encode)])
def test_members_of_gzip_and_frames_of_zstd_are_read_one_after_the_other(
    codec: int, encode: Callable[[bytes], bytes]
) -> None:
    parts = [bytes([number]) * number for number in range(1, 200)]
    body = b"".join(bytes(encode(part)) for part in parts)
    assert decompress(codec, body) == b"".join(parts)
    assert Unpacker().beginning(codec, memoryview(body), 26) == b"".join(parts)[:26]


@pytest.mark.parametrize("block", [b"\x05\x04ab", b"\0" * 40, b"\x64\x04ab"])
def test_a_block_of_snappy_that_holds_other_than_it_says_is_damage(block: bytes) -> None:
    for body in (block, bytes(stock.snappy_encode(b"")) + len(block).to_bytes(4, "big") + block):
        with pytest.raises(DecompressionError):
            Unpacker().beginning(2, memoryview(body), 26)
