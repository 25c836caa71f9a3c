"""Kafka's producer snapshot: what idempotent producers had written when a log reached an offset. Pure.

Layout as Apache Kafka's ProducerSnapshot.json, version 1: int16 version, uint32 CRC-32C of all that follows it, then
the producers. States are folded from batches in order; partial states of adjacent ranges are merged without reading
anything twice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from crc32c import crc32c

from diskless_core.protocol.record_batch import NO_PRODUCER_ID, BatchHeader

SUFFIX = ".snapshot"
VERSION = 1

_HEADER = struct.Struct(">hIi")
_CHECKED_FROM = 6
_ENTRY = struct.Struct(">qhiqiqiq")
_NO_COORDINATOR_EPOCH = -1
_NO_TRANSACTION = -1
_SEQUENCES = 2**31


class CorruptSnapshotError(Exception):
    """The bytes are no producer snapshot."""


class ProducerEntry(NamedTuple):
    """A producer's last batch. `offset_delta` is its number of records less one; `timestamp` its greatest."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int = _NO_COORDINATOR_EPOCH
    current_txn_first_offset: int = _NO_TRANSACTION


ProducerState = dict[int, ProducerEntry]
"""Entries by producer id."""


def note(state: ProducerState, header: BatchHeader) -> None:
    """Fold one batch, the next one of its partition, into a state."""
    if header.producer_id != NO_PRODUCER_ID:
        state[header.producer_id] = ProducerEntry(
            producer_id=header.producer_id,
            epoch=header.producer_epoch,
            last_sequence=(header.base_sequence + header.last_offset_delta) % _SEQUENCES,
            last_offset=header.last_offset,
            offset_delta=header.last_offset_delta,
            timestamp=header.max_timestamp,
        )


def merge(earlier: Mapping[int, ProducerEntry], later: Mapping[int, ProducerEntry]) -> ProducerState:
    """The state after two adjacent ranges, each folded by itself."""
    return {**earlier, **later}


def without_expired(state: Mapping[int, ProducerEntry], now_ms: int, expiration_ms: int) -> ProducerState:
    """Without producers whose last batch is older than `expiration_ms` at `now_ms`."""
    return {key: entry for key, entry in state.items() if now_ms - entry.timestamp < expiration_ms}


def encode(producers: Iterable[ProducerEntry]) -> bytes:
    """The file, entries in order of their ids."""
    ordered = sorted(producers)
    data = bytearray(_HEADER.pack(VERSION, 0, len(ordered)))
    for entry in ordered:
        data += _ENTRY.pack(*entry)
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[_CHECKED_FROM:]))
    return bytes(data)


def decode(data: bytes) -> ProducerState:
    """The state back.

    Raises:
        CorruptSnapshotError: the bytes are damaged, not complete, or of another version.
    """
    try:
        version, checksum, count = _HEADER.unpack_from(data)
        entries = [ProducerEntry._make(fields) for fields in _ENTRY.iter_unpack(memoryview(data)[_HEADER.size :])]
    except struct.error as error:
        raise CorruptSnapshotError(f"not a producer snapshot: {error}") from error
    if version != VERSION:
        raise CorruptSnapshotError(f"a producer snapshot of version {version}, not {VERSION}")
    if crc32c(memoryview(data)[_CHECKED_FROM:]) != checksum or count != len(entries):
        raise CorruptSnapshotError("the checksum of a producer snapshot is wrong")
    return {entry.producer_id: entry for entry in entries}
