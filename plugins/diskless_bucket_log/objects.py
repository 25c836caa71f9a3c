"""The objects of a shard's log and where they lie: numbered entries, and the log start. Bytes and names, no I/O.

An entry object is a header, the shard's name, and the raw v2 batches of one append. The header's checksum covers all of
it, and the digest of the header is what the following object names as its predecessor: so an object that was cut short,
changed, or put in the place of another one is found by whoever reads it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from crc32c import crc32c

from diskless_core.plugin.coordinator_log import LogBatch
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.protocol.record_batch import CorruptBatchError, read_header

MAX_OBJECT_BYTES = 4 << 20
"""Of one entry object: a single-part PUT everywhere."""

NONCE_BYTES = 16
DIGEST_BYTES = 32
NO_DIGEST = bytes(DIGEST_BYTES)
"""Stands for the predecessor of number 0."""

_DIGITS = 20
_START = "start"
_LEASE = "lease"

_ENTRY_MAGIC = b"DSKLSENT"
_START_MAGIC = b"DSKLSBEG"
_VERSION = 1
_MAGIC = struct.Struct(">8sH")
_ENTRY = struct.Struct(f">8sHHQqq{NONCE_BYTES}s{DIGEST_BYTES}sI")
_LOG_START = struct.Struct(f">8sHHQq{DIGEST_BYTES}s{NONCE_BYTES}s")
_CRC = struct.Struct(">I")
_MAX_SHARD_NAME_BYTES = 512

HEADER_BYTES = _ENTRY.size + _CRC.size + _MAX_SHARD_NAME_BYTES
"""The beginning of an entry object that holds all that `read_entry_header` needs."""

MAX_ENTRY_BYTES = MAX_OBJECT_BYTES - HEADER_BYTES
"""The largest batch that fits into an entry object."""


class DamagedObjectError(Exception):
    """An object is not what its name says. The message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryHeader:
    """What an entry object says of itself.

    Attributes:
        number: its place in the log; the numbers of a shard have no gaps.
        base_offset: offset of its first record.
        next_offset: offset of its last record + 1.
        nonce: random, made anew for each object; the same in each attempt to put it.
        predecessor: the digest of the object with the number before; NO_DIGEST for number 0.
        digest: of this header.
    """

    number: int
    base_offset: int
    next_offset: int
    nonce: bytes
    predecessor: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class EntryObject:
    """An entry object as it was read: its header and its batches."""

    header: EntryHeader
    batches: tuple[LogBatch, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """The log start object: what lies below its number does not count, whatever is found there.

    Attributes:
        number: the first number that counts.
        offset: base offset of that number.
        predecessor: digest of the object before it, which may be gone.
    """

    number: int
    offset: int
    predecessor: bytes


FIRST_START = LogStart(number=0, offset=0, predecessor=NO_DIGEST)
"""Of a log of which nothing was pruned."""


@dataclass(frozen=True, slots=True)
class Names:
    """The keys of one shard's objects, below `prefix`."""

    prefix: str
    shard: ShardId

    @property
    def folder(self) -> str:
        return f"{self.prefix}/{self.shard}/"

    @property
    def start(self) -> str:
        return f"{self.folder}{_START}"

    @property
    def lease(self) -> str:
        return f"{self.folder}{_LEASE}"

    def entry(self, number: int) -> str:
        return f"{self.folder}{number:0{_DIGITS}d}"

    def number_of(self, key: str) -> int | None:
        """The number of an entry object's key; None for any other key."""
        name = key.removeprefix(self.folder)
        is_number = name != key and len(name) == _DIGITS and name.isascii() and name.isdigit()
        return int(name) if is_number else None


def encode_entry(
    shard: ShardId, number: int, base_offset: int, nonce: bytes, predecessor: bytes, batches: Sequence[bytes]
) -> tuple[EntryHeader, bytes]:
    """An entry object for batches that are whole, and its header."""
    payload = b"".join(batches)
    next_offset = base_offset + sum(read_header(batch).record_count for batch in batches)
    name = str(shard).encode("ascii")
    head = _ENTRY.pack(
        _ENTRY_MAGIC, _VERSION, len(name), number, base_offset, next_offset, nonce, predecessor, len(payload)
    )
    crc = _CRC.pack(crc32c(payload, crc32c(name, crc32c(head))))
    header = EntryHeader(
        number=number,
        base_offset=base_offset,
        next_offset=next_offset,
        nonce=nonce,
        predecessor=predecessor,
        digest=_digest(head, crc),
    )
    return header, b"".join((head, crc, name, payload))


def read_entry_header(names: Names, number: int, data: ObjectData) -> EntryHeader:
    """The header of an entry object, from its first HEADER_BYTES. The checksum, which covers all, is not compared.

    Raises:
        DamagedObjectError: it is no header of that number of that shard.
    """
    key, view = names.entry(number), memoryview(data)
    _require_magic(key, view, _ENTRY_MAGIC, _ENTRY.size + _CRC.size)
    _, _, name_bytes, stated, base_offset, next_offset, nonce, predecessor, _ = _ENTRY.unpack_from(view)
    at = _ENTRY.size + _CRC.size
    _require_place(key, names.shard, bytes(view[at : at + name_bytes]), number, stated)
    if not 0 <= base_offset < next_offset:
        raise DamagedObjectError(f"the object {key!r} says that it has the offsets {base_offset} to {next_offset}")
    return EntryHeader(
        number=number,
        base_offset=base_offset,
        next_offset=next_offset,
        nonce=nonce,
        predecessor=predecessor,
        digest=_digest(view[: _ENTRY.size], view[_ENTRY.size : at]),
    )


def read_entry(names: Names, number: int, data: ObjectData) -> EntryObject:
    """A whole entry object.

    Raises:
        DamagedObjectError: it was cut short, was changed, or is another number's or another shard's.
    """
    key, view = names.entry(number), memoryview(data)
    header = read_entry_header(names, number, view)
    *_, name_bytes, _, _, _, _, _, payload_bytes = _ENTRY.unpack_from(view)
    payload_at = _ENTRY.size + _CRC.size + name_bytes
    if len(view) != payload_at + payload_bytes:
        raise DamagedObjectError(
            f"the object {key!r} has {len(view)} bytes and says that it has {payload_at + payload_bytes}"
        )
    (crc,) = _CRC.unpack_from(view, _ENTRY.size)
    if crc != crc32c(view[_ENTRY.size + _CRC.size :], crc32c(view[: _ENTRY.size])):
        raise DamagedObjectError(f"the checksum of the object {key!r} does not match its content")
    return EntryObject(header, tuple(_batches(key, header, view[payload_at:])), len(view))


def encode_start(shard: ShardId, start: LogStart, nonce: bytes) -> bytes:
    """A log start object. The nonce makes its version new even on a store whose versions are made of the bytes."""
    name = str(shard).encode("ascii")
    head = _LOG_START.pack(_START_MAGIC, _VERSION, len(name), start.number, start.offset, start.predecessor, nonce)
    return b"".join((head, _CRC.pack(crc32c(name, crc32c(head))), name))


def read_start(names: Names, data: ObjectData) -> LogStart:
    """A log start object.

    Raises:
        DamagedObjectError: it was cut short, was changed, or is another shard's.
    """
    view = memoryview(data)
    _require_magic(names.start, view, _START_MAGIC, _LOG_START.size + _CRC.size)
    _, _, name_bytes, number, offset, predecessor, _ = _LOG_START.unpack_from(view)
    name_at = _LOG_START.size + _CRC.size
    (crc,) = _CRC.unpack_from(view, _LOG_START.size)
    if len(view) != name_at + name_bytes or crc != crc32c(view[name_at:], crc32c(view[: _LOG_START.size])):
        raise DamagedObjectError(f"the checksum of the object {names.start!r} does not match its content")
    _require_place(names.start, names.shard, bytes(view[name_at:]), number, number)
    return LogStart(number=number, offset=offset, predecessor=predecessor)


def _batches(key: str, header: EntryHeader, payload: memoryview) -> list[LogBatch]:
    found, position, offset = list[LogBatch](), 0, header.base_offset
    while position < len(payload):
        try:
            batch = read_header(payload, position)
        except CorruptBatchError as error:
            raise DamagedObjectError(f"the object {key!r} has no batch at byte {position} of them: {error}") from error
        end = position + batch.size
        found.append(LogBatch(offset, offset + batch.record_count, bytes(payload[position:end])))
        position, offset = end, offset + batch.record_count
    if offset != header.next_offset:
        raise DamagedObjectError(
            f"the batches of the object {key!r} end at offset {offset}, its header says {header.next_offset}"
        )
    return found


def _require_magic(key: str, view: memoryview, magic: bytes, least_bytes: int) -> None:
    if len(view) < least_bytes:
        raise DamagedObjectError(f"the object {key!r} was cut short: it has {len(view)} bytes")
    found, version = _MAGIC.unpack_from(view)
    if found != magic:
        raise DamagedObjectError(f"the object {key!r} is none of this log: it begins with {found!r}")
    if version != _VERSION:
        raise DamagedObjectError(
            f"the object {key!r} has version {version} of the format, and this broker reads {_VERSION}: upgrade it"
        )


def _require_place(key: str, shard: ShardId, name: bytes, number: int, stated: int) -> None:
    if name != str(shard).encode("ascii") or number != stated:
        said = f"number {stated} of {name.decode('ascii', 'backslashreplace')}"
        raise DamagedObjectError(f"the object {key!r} is in the wrong place: it says that it is {said}")


def _digest(head: bytes | memoryview, crc: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(head)
    digest.update(crc)
    return digest.digest()
