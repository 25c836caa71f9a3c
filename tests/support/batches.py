"""Record batches for tests: good ones, ones with a header that lies, and how to read what a broker returned."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c
from kafka.record import MemoryRecords

from diskless_core.clock import SystemClock
from diskless_core.protocol.record_batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, RecordData, build

_FIELDS = {
    "base_offset": (0, ">q"),
    "batch_length": (8, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}
_CRC_AT, _ATTRIBUTES_AT = 17, 21

NOW_MS = SystemClock().now_ms() - 60_000
"""A time for records where none matters: recent, so that retention leaves them."""


def batch_of(*values: bytes, timestamp_ms: int = NOW_MS, compression: int = 0, **header: int) -> bytes:
    """One good batch with these values; `header` sets fields of it, and the checksum follows."""
    records = [RecordData(None, value) for value in values]
    batch = build(records, timestamp_ms=timestamp_ms, compression=compression)
    return with_header(batch, **header) if header else batch


def timed_batch(*timestamps: int, compression: int = 0) -> bytes:
    """One good batch whose records have these timestamps, in milliseconds."""
    records = [RecordData(None, b"at %d" % timestamp, (), timestamp) for timestamp in timestamps]
    return build(records, timestamp_ms=0, compression=compression)


def with_header(batch: bytes, *, crc: int | None = None, **fields: int) -> bytes:
    """The batch with other header fields, and a checksum that fits unless `crc` says otherwise."""
    changed = bytearray(batch)
    for name, value in fields.items():
        position, layout = _FIELDS[name]
        struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, _CRC_AT, crc32c(changed[_ATTRIBUTES_AT:]) if crc is None else crc)
    return bytes(changed)


def read_records(data: bytes | None) -> list[Any]:
    """All records in a Fetch answer, as kafka-python reads them; checksums are checked."""
    found = []
    for batch in _batches(data):
        assert batch.validate_crc()
        found += list(batch)
    return found


def read_values(data: bytes | None) -> list[bytes]:
    return [record.value for record in read_records(data)]


def batch_ranges(data: bytes | None) -> list[tuple[int, int]]:
    """First and last offset of each batch in a Fetch answer."""
    return [(batch.base_offset, batch.last_offset) for batch in _batches(data)]


def _batches(data: bytes | None) -> Sequence[Any]:
    if not data:
        return []
    memory = MemoryRecords(bytes(data))
    batches = []
    while memory.has_next():
        batches.append(memory.next_batch())
    return batches


def with_body(batch: bytes, body: bytes, **fields: int) -> bytes:
    """The batch with other bytes behind its header; length and checksum follow."""
    changed = batch[:HEADER_BYTES] + body
    return with_header(changed, batch_length=len(changed) - LENGTH_PREFIX_BYTES, **fields)


def counting(batch: bytes, count: int) -> bytes:
    """The batch with a header that counts so many records."""
    return with_header(batch, record_count=count, last_offset_delta=count - 1)
