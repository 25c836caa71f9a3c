"""Compressed records are unpacked as far as they are asked for, and to what the whole would be; noise is one error."""

from __future__ import annotations

import random
from collections.abc import Callable

import kafka.codec as stock
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.protocol.compression import DecompressionError, Unpacker, decompress

CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (1, stock.gzip_encode),
    "snappy in blocks": (2, stock.snappy_encode),
    "snappy as a whole": (2, lambda data: stock.snappy_encode(data, xerial_compatible=False)),
    "lz4": (3, stock.lz4_encode),
    "zstd": (4, stock.zstd_encode),
}
DATA = st.lists(st.tuples(st.binary(max_size=12), st.sampled_from([1, 1, 2, 9, 3_000, 40_000])), max_size=8).map(
    lambda parts: b"".join(part * times for part, times in parts)
)
NAMES = st.sampled_from(list(CODECS))


@given(data=DATA, name=NAMES, wanted=st.integers(1, 200))
def test_what_is_asked_for_is_what_the_whole_begins_with(data: bytes, name: str, wanted: int) -> None:
    codec, encode = CODECS[name]
    unpacker, packed = Unpacker(), memoryview(bytes(encode(data)))
    assert unpacker.beginning(codec, packed, wanted) == data[:wanted]
    found = list(unpacker.pieces(codec, packed))
    assert b"".join(found) == data
    assert all(0 < len(piece) <= 64 << 10 for piece in found)
    for needed in (1, len(data) - 1, len(data)):
        assert unpacker.holds(codec, packed, needed)
    beyond = max(len(data), len(packed)) + 1
    assert not unpacker.holds(codec, packed, beyond)


@given(data=DATA, name=NAMES, wanted=st.integers(1, 60), seed=st.integers(0, 2**32))
def test_damaged_data_is_the_one_error_or_begins_as_the_whole_does(
    data: bytes, name: str, wanted: int, seed: int
) -> None:
    codec, encode = CODECS[name]
    chance, packed = random.Random(seed), bytearray(encode(data))
    for _ in range(chance.choice((1, 1, 2))):
        at = chance.randrange(len(packed) + 1)
        packed[at : at + chance.choice((0, 1, 4))] = chance.randbytes(chance.choice((0, 1, 1, 4)))
    view = memoryview(bytes(packed))
    beginning: bytes | None
    try:
        beginning = Unpacker().beginning(codec, view, wanted)
    except DecompressionError:
        beginning = None
    try:
        whole = decompress(codec, bytes(packed), 1 << 22)
    except DecompressionError:
        whole = None
    if whole is not None:
        assert beginning == whole[:wanted]
    for needed in (1, 100, 10**6):
        try:
            Unpacker().holds(codec, view, needed)
        except DecompressionError:
            continue


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@given(noise=st.binary(max_size=60))
def test_noise_is_the_one_error_or_little(codec: int, noise: bytes) -> None:
    try:
        assert len(Unpacker().beginning(codec, memoryview(noise), 26)) <= 26
    except DecompressionError:
        return
