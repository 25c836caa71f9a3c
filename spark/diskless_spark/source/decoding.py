"""Record batches to Arrow, a column at a time: numpy finds the fields of many records at once. Pure.

The records of some batches are joined into one buffer. Where each record begins can only be found one after the other,
or for many at once where neighbours have the same size; everything else is done for all of them in a few passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from diskless_core.protocol import compression
from diskless_core.protocol.compression import DecompressionError, UnknownCodecError
from diskless_core.protocol.names import partition_name
from diskless_core.protocol.record_batch import (
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    Buffer,
    CorruptBatchError,
)

MAX_JOINED_BYTES = 1 << 30
"""Of the records that become one Arrow batch: Arrow's offsets into binary data have 31 bits."""

_PADDING = bytes(64)
"""Behind the last record: the fields in front of a record's key are read before it is known where it ends."""

_MAX_VARINT_BYTES = 10
_MAX_TIMESTAMP_MS = (2**63 - 1) // 1000
_STRETCH = 64
_RUN = 16

Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


class Place(NamedTuple):
    """A partition, as rows name it."""

    topic: str
    partition: int

    @property
    def name(self) -> str:
        return partition_name(self.topic, self.partition)


class PlainBatch(NamedTuple):
    """A batch whose records are not compressed (any more), of which those from `start` to before `end` are wanted."""

    place: Place
    start: int
    end: int
    header: BatchHeader
    records: Buffer


def wanted_offsets(start: int, end: int, header: BatchHeader) -> tuple[int, int]:
    """The first and the last, inclusive, of the offsets from `start` to before `end` that a batch has."""
    return max(start, header.base_offset), min(end - 1, header.last_offset)


def plain_batch(place: Place, start: int, end: int, header: BatchHeader, batch: memoryview) -> PlainBatch:
    """A batch, decompressed.

    Args:
        start, end: the offsets that are wanted of it.
        batch: all of it, the header included.

    Raises:
        CorruptBatchError: it is of another format, or its records cannot be decompressed.
    """
    if header.magic != MAGIC:
        raise CorruptBatchError(f"the batch at offset {header.base_offset} has magic {header.magic}, not {MAGIC}")
    records: Buffer = batch[HEADER_BYTES : header.size]
    if header.compression:
        try:
            records = compression.decompress(header.compression, bytes(records), MAX_JOINED_BYTES)
        except (DecompressionError, UnknownCodecError) as error:
            raise CorruptBatchError(f"the batch at offset {header.base_offset}: {error}") from error
    return PlainBatch(place, start, end, header, records)


class _Fields(NamedTuple):
    """What the records consist of, an element for each. Null keys and values have a negative size."""

    data: bytes
    timestamp_deltas: Integers
    offset_deltas: Integers
    key_at: Integers
    key_sizes: Integers
    value_at: Integers
    value_sizes: Integers
    header_counts: Integers
    headers_at: Integers
    ends: Integers


def decode(batches: Sequence[PlainBatch], schema: pa.Schema) -> pa.RecordBatch:
    """The wanted records of batches as rows, in order. `schema` has some of the columns of Spark's Kafka source.

    Raises:
        CorruptBatchError: a record is malformed, or there are not as many as a batch says.
    """
    fields = _fields(batches)
    columns = _Columns(batches, fields)
    rows = pa.RecordBatch.from_arrays([columns.of(field) for field in schema], schema=schema)
    wanted = columns.wanted()
    return rows if wanted.all() else rows.filter(pa.array(wanted))


def _fields(batches: Sequence[PlainBatch]) -> _Fields:
    data = b"".join([*(batch.records for batch in batches), _PADDING])
    if len(data) > MAX_JOINED_BYTES:
        raise CorruptBatchError(f"{len(data)} bytes of records are too many for one Arrow batch")
    view = np.frombuffer(data, np.uint8)
    found: list[Integers] = []
    begin = 0
    for batch in batches:
        end = begin + len(batch.records)
        try:
            found.append(_starts(data, view, begin, end, batch.header.record_count))
        except CorruptBatchError as error:
            raise CorruptBatchError(f"the batch at offset {batch.header.base_offset}: {error}") from None
        begin = end
    starts = np.concatenate(found) if found else np.zeros(0, np.int64)
    return _split(data, view, starts, np.append(starts[1:], begin))


def _split(data: bytes, view: Bytes, starts: Integers, ends: Integers) -> _Fields:
    lengths, at = _varints(view, starts)
    _require(lengths == ends - at)
    timestamp_deltas, at = _varints(view, at + 1)  # behind the attributes, which have no meaning yet
    offset_deltas, at = _varints(view, at)
    key_sizes, key_at = _varints(view, at)
    value_sizes, value_at = _varints(view, _behind(key_at, key_sizes, ends))
    header_counts, headers_at = _varints(view, _behind(value_at, value_sizes, ends))
    _require((headers_at == ends) | ((headers_at < ends) & (header_counts > 0)))
    _require((header_counts >= 0) & (header_counts <= ends - headers_at))
    return _Fields(
        data,
        timestamp_deltas,
        offset_deltas,
        key_at,
        key_sizes,
        value_at,
        value_sizes,
        header_counts,
        headers_at,
        ends,
    )


def _behind(at: Integers, sizes: Integers, ends: Integers) -> Integers:
    """Where the bytes end that begin at `at`."""
    _require((at <= ends) & (sizes <= ends - at))
    return at + np.maximum(sizes, 0)


def _require(holds: npt.NDArray[np.bool_]) -> None:
    if not holds.all():
        raise CorruptBatchError(f"a record, the number {int(np.argmin(holds))} of {len(holds)} read, is malformed")


def _starts(data: bytes, view: Bytes, begin: int, end: int, count: int) -> Integers:
    """Where the records of a batch begin, each with its length."""
    if not 0 <= count <= end - begin:
        raise CorruptBatchError(f"{count} records cannot be in {end - begin} bytes")
    found: list[Integers] = []
    at = begin
    try:
        while count:
            stretch = _run(data, view, at, end, count)
            if stretch is None:
                stretch, at = _one_by_one(data, at, min(count, _STRETCH))
            else:
                at = int(stretch[-1]) + _size(data, int(stretch[-1]))
            found.append(stretch)
            count -= len(stretch)
    except IndexError:
        at = -1
    if at != end:
        raise CorruptBatchError("its records do not fill it exactly")
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _run(data: bytes, view: Bytes, at: int, end: int, count: int) -> Integers | None:
    """The beginnings of the records from `at` on that are all of one size, unless they are few."""
    size = _size(data, at)
    following = at + size
    if following + size > end or data[following] != data[at]:
        return None
    lengths = min(count, (end - at) // size)
    same = np.ones(lengths, np.bool_)
    for place in range(_varint_bytes(data, at)):
        same &= view[at + place : at + place + (lengths - 1) * size + 1 : size] == data[at + place]
    run = lengths if same.all() else int(np.argmin(same))
    return np.arange(at, at + run * size, size, dtype=np.int64) if run >= _RUN else None


def _one_by_one(data: bytes, at: int, count: int) -> tuple[Integers, int]:
    starts: list[int] = []
    append = starts.append
    for _ in range(count):
        append(at)
        first = data[at]
        if first < 0x80:
            at += 1 + (first >> 1)
        elif (second := data[at + 1]) < 0x80:
            at += 2 + ((first & 0x7F | second << 7) >> 1)
        else:
            at += _size(data, at)
    return np.array(starts, np.int64), at


def _size(data: bytes, at: int) -> int:
    """Bytes of the record at `at`, its length included, if that is no negative one."""
    length = _varint_bytes(data, at)
    value = sum((data[at + place] & 0x7F) << (7 * place) for place in range(length))
    return length + (value >> 1)


def _varint_bytes(data: bytes, at: int) -> int:
    for place in range(_MAX_VARINT_BYTES):
        if data[at + place] < 0x80:
            return place + 1
    raise CorruptBatchError("a record's length takes too many bytes")


def _varints(view: Bytes, at: Integers) -> tuple[Integers, Integers]:
    """Kafka's signed varints at some positions, and the positions behind them."""
    first = view[at]
    values = (first & 0x7F).astype(np.uint64)
    behind = at + 1
    longer = np.flatnonzero(first >= 0x80)
    for place in range(1, _MAX_VARINT_BYTES):
        if not len(longer):
            break
        following = view[behind[longer]]
        values[longer] |= (following & 0x7F).astype(np.uint64) << np.uint64(7 * place)
        behind[longer] += 1
        longer = longer[following >= 0x80]
    if len(longer):
        raise CorruptBatchError("a number in a record takes too many bytes")
    signed = (values >> np.uint64(1)) ^ (np.uint64(0) - (values & np.uint64(1)))
    return signed.view(np.int64), behind


class _Columns:
    """Makes columns of what was found, only those that are asked for."""

    def __init__(self, batches: Sequence[PlainBatch], fields: _Fields) -> None:
        self._batches = batches
        self._headers = [batch.header for batch in batches]
        self._counts = np.array([header.record_count for header in self._headers], np.int64)
        self._fields = fields
        self._buffer = pa.py_buffer(fields.data)
        deltas = fields.offset_deltas
        _require((deltas >= 0) & (deltas <= self._each([header.last_offset_delta for header in self._headers])))
        self._offsets = self._each([header.base_offset for header in self._headers]) + deltas

    def wanted(self) -> npt.NDArray[np.bool_]:
        """Which rows are wanted."""
        starts, ends = ([batch.start for batch in self._batches], [batch.end for batch in self._batches])
        return (self._offsets >= self._each(starts)) & (self._offsets < self._each(ends))

    def of(self, field: pa.Field) -> pa.Array:
        fields = self._fields
        match field.name:
            case "key":
                return self._slices(pa.binary(), fields.key_at, fields.key_sizes)
            case "value":
                return self._slices(pa.binary(), fields.value_at, fields.value_sizes)
            case "topic":
                topics = sorted({batch.place.topic for batch in self._batches})
                positions = [topics.index(batch.place.topic) for batch in self._batches]
                return pa.array(topics, pa.string()).take(pa.array(self._each(positions)))
            case "partition":
                numbers = [batch.place.partition for batch in self._batches]
                return pa.array(self._each(numbers).astype(np.int32))
            case "offset":
                return pa.array(self._offsets)
            case "timestamp":
                return pa.array(self._timestamps_us()).cast(field.type)
            case "timestampType":
                types = [int(header.is_log_append_time) for header in self._headers]
                return pa.array(self._each(types).astype(np.int32))
            case "headers":
                return self._record_headers(field.type)
        raise ValueError(f"there is no column {field.name}")

    def _each(self, of_batches: Sequence[int]) -> Integers:
        """What a batch has, for each of its records."""
        return np.repeat(np.array(of_batches, np.int64), self._counts)

    def _timestamps_us(self) -> Integers:
        by_broker = [header.is_log_append_time for header in self._headers]
        bases = [
            header.max_timestamp if appended else header.base_timestamp
            for header, appended in zip(self._headers, by_broker, strict=True)
        ]
        deltas = self._fields.timestamp_deltas
        if any(by_broker):
            deltas = np.where(self._each(list(map(int, by_broker))) == 1, 0, deltas)
        found_ms = self._each(bases) + deltas
        if len(found_ms) and not -_MAX_TIMESTAMP_MS <= found_ms.min() <= found_ms.max() <= _MAX_TIMESTAMP_MS:
            raise CorruptBatchError("a record has a timestamp that Spark cannot show")
        return found_ms * 1000

    def _slices(self, kind: pa.DataType, at: Integers, sizes: Integers) -> pa.Array:
        """Parts of the buffer, which must be in order, as an array; null where the size is negative.

        Arrow gathers them: of an array whose elements are in turn what is wanted and what lies between.
        """
        if not (sizes >= 0).any():
            return pa.nulls(len(at), kind)
        edges = np.empty(2 * len(at), np.int32)
        edges[::2] = at
        edges[1::2] = at + np.maximum(sizes, 0)
        alternating = pa.Array.from_buffers(kind, len(edges) - 1, [None, pa.py_buffer(edges), self._buffer])
        wanted = np.arange(0, len(edges), 2, dtype=np.int32)
        return alternating.take(pa.array(wanted, mask=sizes < 0))

    def _record_headers(self, kind: pa.ListType) -> pa.Array:
        """Null where a record has none, as in Spark's Kafka source."""
        counts = self._fields.header_counts
        edges = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=edges[1:])
        parts = self._header_parts(edges[:-1], int(edges[-1]))
        struct = kind.value_type
        keys = self._texts(parts["key_at"], parts["key_sizes"])
        values = self._slices(pa.binary(), parts["value_at"], parts["value_sizes"])
        elements = pa.StructArray.from_arrays([keys, values], fields=list(struct))
        return pa.ListArray.from_arrays(
            pa.array(edges.astype(np.int32)), elements, type=kind, mask=pa.array(counts == 0)
        )

    def _header_parts(self, first: Integers, total: int) -> dict[str, Integers]:
        """Keys and values of all headers; those of a record from the position `first` on. The n-th of all at once."""
        names = ("key_at", "key_sizes", "value_at", "value_sizes")
        parts = {name: np.zeros(total, np.int64) for name in names}
        view = np.frombuffer(self._fields.data, np.uint8)
        at, ends, counts = self._fields.headers_at.copy(), self._fields.ends, self._fields.header_counts
        rows = np.flatnonzero(counts)
        number = 0
        while len(rows):
            limits = ends[rows]
            key_sizes, key_at = _varints(view, at[rows])
            _require(key_sizes >= 0)
            value_sizes, value_at = _varints(view, _behind(key_at, key_sizes, limits))
            at[rows] = _behind(value_at, value_sizes, limits)
            slots = first[rows] + number
            for name, found in zip(names, (key_at, key_sizes, value_at, value_sizes), strict=True):
                parts[name][slots] = found
            number += 1
            rows = rows[counts[rows] > number]
        _require(at == ends)
        return parts

    def _texts(self, at: Integers, sizes: Integers) -> pa.Array:
        """Texts in UTF-8; what is none in them is replaced, as Java does."""
        found = self._slices(pa.binary(), at, sizes)
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([value.decode("utf-8", "replace") for value in found.to_pylist()], pa.string())
