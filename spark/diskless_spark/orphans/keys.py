"""Keys of WAL objects as numbers, many at a time: 24 bytes each, and nothing of the key is lost. Pure.

What it takes for a key and what it makes of it is `wal.format.object_key`'s, to the letter.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diskless_core.wal.format import object_key

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]

_SAMPLE = object_key("", 0, uuid.UUID(int=0))
_SPREAD = slice(_SAMPLE.index("/") + 1, _SAMPLE.rindex("/"))
_TIME = slice(_SAMPLE.rindex("/") + 1, _SAMPLE.index("-"))
_ID = slice(_SAMPLE.index("-") + 1, len(_SAMPLE))
_FIXED = [position for position, character in enumerate(_SAMPLE) if character != "0"]
"""Where every key has the same '/' or '-'."""

_DIGITS = [position for position in range(_ID.start, _ID.stop) if position not in _FIXED]
_POWERS = 10 ** np.arange(_TIME.stop - _TIME.start - 1, -1, -1, dtype=np.int64)
_NO_DIGIT = 255
_VALUES = np.full(256, _NO_DIGIT, dtype=np.uint8)
_VALUES[np.frombuffer(b"0123456789abcdef", dtype=np.uint8)] = np.arange(16, dtype=np.uint8)
_LOW_MASK = (1 << 64) - 1


class WalKeys(NamedTuple):
    """Arrays of one length: creation times, both halves of the UUIDs, and where in the input each key was."""

    created_ms: Numbers
    high: Numbers
    low: Numbers
    positions: Numbers


def parse(keys: pa.Array, prefix: str) -> WalKeys:
    """Those of the keys that are a WAL object's, with `prefix` before them, which has no '/' at its end."""
    start = prefix.encode()
    size = len(start) + len(_SAMPLE)
    has_size = pc.fill_null(pc.equal(pc.binary_length(keys), size), False)
    positions = np.flatnonzero(np.asarray(has_size))
    text = _bytes_of(keys.take(pa.array(positions)), size)
    name = text[:, len(start) :]
    digits = _VALUES[name[:, _DIGITS]]
    time = _VALUES[name[:, _TIME]]
    is_key = (
        (text[:, : len(start)] == np.frombuffer(start, dtype=np.uint8)).all(axis=1)
        & (name[:, _FIXED] == np.frombuffer(_SAMPLE.encode(), dtype=np.uint8)[_FIXED]).all(axis=1)
        & (name[:, _SPREAD] == name[:, _DIGITS[: _SPREAD.stop - _SPREAD.start]]).all(axis=1)
        & (digits != _NO_DIGIT).all(axis=1)
        & (time < len("0123456789")).all(axis=1)
    )
    digits, time = digits[is_key], time[is_key]
    halves = (digits[:, ::2] << 4 | digits[:, 1::2]).view(">i8").astype(np.int64)
    return WalKeys(time.astype(np.int64) @ _POWERS, halves[:, 0], halves[:, 1], positions[is_key])


def texts(prefix: str, created_ms: Numbers, high: Numbers, low: Numbers) -> Iterator[str]:
    """The keys that these numbers are."""
    for time, first, last in zip(created_ms.tolist(), high.tolist(), low.tolist(), strict=True):
        yield object_key(prefix, time, uuid.UUID(int=(first & _LOW_MASK) << 64 | last & _LOW_MASK))


def _bytes_of(keys: pa.Array, size: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Keys of one size as a matrix, a row each."""
    fixed: Any = keys.cast(pa.binary()).cast(pa.binary(size))
    data = fixed.buffers()[1]
    if not len(fixed):
        return np.empty((0, size), dtype=np.uint8)
    return np.frombuffer(data, dtype=np.uint8)[fixed.offset * size :][: len(fixed) * size].reshape(-1, size)
