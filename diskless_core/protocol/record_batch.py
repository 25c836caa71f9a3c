"""Kafka's v2 record batch: its header read and patched in place, batches built and their records read.

The 61-byte header is read with `struct` where it lies; nothing is copied and nothing decompressed unless records are
asked for. Offsets are absolute, timestamps in milliseconds since the epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c
from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from diskless_core.protocol import compression
from diskless_core.protocol.compression import Codec, DecompressedSizeError, DecompressionError, UnknownCodecError

HEADER_BYTES = 61
LENGTH_PREFIX_BYTES = 12
"""Bytes of a batch that its own length field does not count: base offset and the length itself."""

MAGIC = 2

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_BATCH_LENGTH = struct.Struct(">i")
_BATCH_LENGTH_AT = 8
_LEADER_EPOCH_AT = 12
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_UNLIMITED_BYTES = 2**31 - 1

Buffer = bytes | bytearray | memoryview
WritableBuffer = bytearray | memoryview


class CorruptBatchError(Exception):
    """The bytes are no whole, well-formed v2 record batch."""


class TornBatchError(CorruptBatchError):
    """The bytes end before the batch does."""


class LargeRecordsError(CorruptBatchError):
    """The records of a batch are larger than allowed once they are decompressed."""


class UnsupportedCompressionError(Exception):
    """The batch is compressed with a codec that does not exist or whose package is not installed."""


class BatchHeader(NamedTuple):
    """The fixed part of a batch, field for field."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def compression(self) -> int:
        """Codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether the maximum timestamp, set by the broker, holds for every record."""
        return bool(self.attributes & LOG_APPEND_TIME_MASK)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def last_offset(self) -> int:
        """Offset of the last record, inclusive."""
        return self.base_offset + self.last_offset_delta


class RecordData(NamedTuple):
    """A record to be written. Without a timestamp it gets that of its batch. Headers are (str, bytes or None)."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None


class Record(NamedTuple):
    """A record as read."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_header(buf: Buffer, pos: int = 0, limit: int | None = None) -> BatchHeader:
    """Read the header of the batch that starts at `pos`. Magic and CRC are not checked.

    Args:
        buf: has the whole batch, or with a `limit` at least its header.
        pos: where the batch starts.
        limit: where it has to end at the latest, counted as `pos` is; the end of `buf` by default.

    Raises:
        CorruptBatchError: fewer than 61 bytes are left, or the batch's length does not fit what is left.
    """
    return _read_header(buf, pos, len(buf) if limit is None else limit)


def walk(buf: Buffer, start: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch in `buf[start:end]`, which whole batches have to fill exactly.

    Raises:
        CorruptBatchError: a batch is torn, at its turn; those before it have been yielded.
    """
    pos = start
    limit = len(buf) if end is None else end
    while pos < limit:
        header = _read_header(buf, pos, limit)
        yield pos, header
        pos += header.size


def _read_header(buf: Buffer, pos: int, limit: int) -> BatchHeader:
    if limit - pos < HEADER_BYTES:
        raise TornBatchError(f"{limit - pos} bytes are too few for the header of a record batch")
    header = BatchHeader._make(_HEADER.unpack_from(buf, pos))
    if not HEADER_BYTES <= header.size <= limit - pos:
        problem = TornBatchError if header.size > limit - pos else CorruptBatchError
        raise problem(f"a record batch claims {header.size} bytes where {limit - pos} are left")
    return header


def max_timestamp_of(buf: Buffer) -> int:
    """The maximum timestamp in the header of a whole batch, and nothing else of it."""
    timestamp_ms: int = _MAX_TIMESTAMP.unpack_from(buf, _MAX_TIMESTAMP_AT)[0]
    return timestamp_ms


def crc_is_valid(buf: Buffer, pos: int, header: BatchHeader) -> bool:
    """Whether the CRC-32C of the batch at `pos`, from the attributes to its end, is the one in its header."""
    return _checksum(buf, pos, header.size) == header.crc


def _checksum(buf: Buffer, pos: int, size: int) -> int:
    return int(crc32c(memoryview(buf)[pos + _ATTRIBUTES_AT : pos + size]))


def patch_base_offset(buf: WritableBuffer, pos: int, base_offset: int, leader_epoch: int = 0) -> None:
    """Write base offset and leader epoch into the batch at `pos`. The CRC covers neither."""
    _BASE_OFFSET.pack_into(buf, pos, base_offset)
    _LEADER_EPOCH.pack_into(buf, pos + _LEADER_EPOCH_AT, leader_epoch)


def patch_log_append_time(buf: WritableBuffer, pos: int, timestamp_ms: int) -> None:
    """Turn the batch at `pos` into one with LogAppendTime: attribute, maximum timestamp and a new CRC.

    Raises:
        CorruptBatchError: no whole batch lies at `pos`.
    """
    header = read_header(buf, pos)
    _ATTRIBUTES.pack_into(buf, pos + _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_MASK)
    _MAX_TIMESTAMP.pack_into(buf, pos + _MAX_TIMESTAMP_AT, timestamp_ms)
    _CRC.pack_into(buf, pos + _CRC_AT, _checksum(buf, pos, header.size))


def patch_max_timestamp(buf: WritableBuffer, pos: int, timestamp_ms: int) -> None:
    """Write the latest timestamp into the batch at `pos`, and a new CRC.

    Raises:
        CorruptBatchError: no whole batch lies at `pos`.
    """
    header = read_header(buf, pos)
    _MAX_TIMESTAMP.pack_into(buf, pos + _MAX_TIMESTAMP_AT, timestamp_ms)
    _CRC.pack_into(buf, pos + _CRC_AT, _checksum(buf, pos, header.size))


def plain_records(batch: Buffer, max_bytes: int) -> Buffer:
    """The records of the one batch that `batch` consists of, as bytes without compression, at most `max_bytes`.

    Raises:
        CorruptBatchError: header or compressed data is malformed. The CRC is not checked.
        LargeRecordsError: the records are larger than that; no more memory is taken.
        UnsupportedCompressionError: the codec that it comes with is unknown.
    """
    return _plain_records(batch, read_header(batch), max_bytes)


def recompressed(batch: Buffer, plain: Buffer, codec: Codec) -> bytearray:
    """The one batch that `batch` consists of, its records, which are `plain`, compressed with `codec`.

    Nothing else of it changes; the checksum follows.

    Raises:
        CorruptBatchError: the header is malformed.
    """
    header = read_header(batch)
    packed = compression.compress(codec, plain)
    changed = bytearray(memoryview(batch)[:HEADER_BYTES])
    changed += packed
    _BATCH_LENGTH.pack_into(changed, _BATCH_LENGTH_AT, len(changed) - LENGTH_PREFIX_BYTES)
    _ATTRIBUTES.pack_into(changed, _ATTRIBUTES_AT, header.attributes & ~COMPRESSION_MASK | codec.number)
    _CRC.pack_into(changed, _CRC_AT, _checksum(changed, 0, len(changed)))
    return changed


def build(
    records: Sequence[RecordData],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    compression: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """One batch of `records` with consecutive offsets from `base_offset`, and CreateTime timestamps.

    A batch that compression would not shrink is left uncompressed.

    Raises:
        ValueError: there are no records.
        UnsupportedCompressionError: the codec is unknown or its package is not installed.
    """
    if not records:
        raise ValueError("a record batch holds at least one record")
    builder = DefaultRecordBatchBuilder(
        magic=MAGIC,
        compression_type=compression,
        is_transactional=False,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        batch_size=_UNLIMITED_BYTES,
    )
    for delta, (key, value, headers, timestamp) in enumerate(records):
        builder.append(delta, timestamp_ms if timestamp is None else timestamp, key, value, headers)
    try:
        batch: bytearray = builder.build()
    except UnsupportedCodecError as error:
        raise UnsupportedCompressionError(str(error)) from error
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    return bytes(batch)


def records(batch: Buffer, max_bytes: int = compression.MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """Yield the records of the one batch that `batch` consists of, decompressed, in order. Takes control batches too.

    Raises:
        CorruptBatchError: header, compressed data or a record is malformed, or the records are larger than `max_bytes`
            once they are decompressed. The CRC is not checked.
        UnsupportedCompressionError: the codec is unknown or its package is not installed.
    """
    parsed = _parse(batch, max_bytes)
    try:
        for record in parsed:
            yield Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
    except (CorruptRecordError, TypeError, struct.error) as error:
        raise CorruptBatchError(f"a record is malformed: {error}") from error


def _parse(batch: Buffer, max_bytes: int) -> DefaultRecordBatch:
    header = read_header(batch)
    if header.magic != MAGIC or header.size != len(batch):
        raise CorruptBatchError(f"{len(batch)} bytes are not one batch of magic 2")
    if not header.compression:
        return iter(DefaultRecordBatch(batch))
    plain = _plain_records(batch, header, max_bytes)
    whole = bytearray(memoryview(batch)[:HEADER_BYTES])
    _ATTRIBUTES.pack_into(whole, _ATTRIBUTES_AT, header.attributes & ~COMPRESSION_MASK)
    whole += plain
    return iter(DefaultRecordBatch(whole))


def _plain_records(batch: Buffer, header: BatchHeader, max_bytes: int) -> Buffer:
    records = memoryview(batch)[HEADER_BYTES:]
    if not header.compression:
        return records
    try:
        return compression.decompress(header.compression, bytes(records), max_bytes)
    except UnknownCodecError as error:
        raise UnsupportedCompressionError(str(error)) from error
    except DecompressedSizeError as error:
        raise LargeRecordsError(str(error)) from error
    except DecompressionError as error:
        raise CorruptBatchError(str(error)) from error
