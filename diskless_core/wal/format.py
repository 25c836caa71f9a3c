"""The WAL object: a header, Kafka v2 batches sorted by partition and arrival, and an index so that a tool can read it.

    header    magic "DSKLSWAL", format version u16, reserved u16, reserved u32
    batches   raw v2 record batches, as the producers sent them (their base offsets mean nothing here)
    index     one entry for each partition, see `IndexEntry`
    trailer   position of the index u64, entries u32, CRC-32C of the index u32, magic

All numbers are big-endian. Brokers do not read the index: the coordinator knows where each batch is.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Sequence
from typing import NamedTuple

import crc32c

MAGIC = b"DSKLSWAL"
VERSION = 1

_HEADER = struct.Struct(">8sHHI")
_ENTRY = struct.Struct(">16siqqiq")
_TRAILER = struct.Struct(">QII8s")

HEADER = _HEADER.pack(MAGIC, VERSION, 0, 0)
HEADER_BYTES = len(HEADER)
TRAILER_BYTES = _TRAILER.size

_TIME_DIGITS = 13
"""Of the creation time in a key: milliseconds since the epoch until the year 2286."""

SLOTS = 1 << 12
"""Into which the ids of objects fall; far more than a rack has brokers."""

_SLOT_SHIFT = 128 - 12

_AFTER_PREFIX = re.compile(
    rf"/([0-9a-f]{{2}})/[0-9]{{{_TIME_DIGITS}}}-\1[0-9a-f]{{6}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}"
)
"""What `object_key` puts behind its prefix."""


class WalFormatError(Exception):
    """These bytes are no WAL object, or a damaged one."""


class IndexEntry(NamedTuple):
    """One partition's adjacent batches. `byte_offset` counts from the object's first byte."""

    topic_id: bytes
    partition: int
    byte_offset: int
    size: int
    batch_count: int
    record_count: int


def encode_footer(entries: Sequence[IndexEntry], position: int) -> bytes:
    """Index and trailer for an object whose index begins at the byte `position`."""
    index = b"".join(_ENTRY.pack(*entry) for entry in entries)
    return index + _TRAILER.pack(position, len(entries), crc32c.crc32c(index), MAGIC)


class Trailer(NamedTuple):
    """The object's last bytes: where the index begins, counted from the object's first byte, and what it has to be."""

    index_position: int
    entry_count: int
    index_checksum: int

    @property
    def index_bytes(self) -> int:
        """Size of the index. The trailer follows at once."""
        return self.entry_count * _ENTRY.size


def read_index(data: bytes | bytearray | memoryview) -> list[IndexEntry]:
    """The index of a whole object.

    Raises:
        WalFormatError: wrong magic, an unknown version, or damaged.
    """
    check_header(data)
    trailer = read_trailer(data, len(data))
    return decode_index(memoryview(data)[trailer.index_position : len(data) - TRAILER_BYTES], trailer)


def check_header(data: bytes | bytearray | memoryview) -> None:
    """Check that an object may begin with `data`, of which `HEADER_BYTES` are looked at.

    Raises:
        WalFormatError: it is no WAL object, or one of another version.
    """
    if len(data) < HEADER_BYTES:
        raise WalFormatError(f"{len(data)} bytes are too few for a WAL object")
    magic, version, _, _ = _HEADER.unpack_from(data, 0)
    if magic != MAGIC:
        raise WalFormatError("this is no WAL object: it does not begin with the magic")
    if version != VERSION:
        raise WalFormatError(f"WAL format version {version} is not known here, only {VERSION}")


def read_trailer(data: bytes | bytearray | memoryview, object_size: int) -> Trailer:
    """The trailer of an object of `object_size` bytes that ends with `data`.

    Raises:
        WalFormatError: it is no WAL object, or a truncated one.
    """
    if object_size < HEADER_BYTES + TRAILER_BYTES or len(data) < TRAILER_BYTES:
        raise WalFormatError(f"{object_size} bytes are too few for a WAL object")
    *fields, magic = _TRAILER.unpack_from(data, len(data) - TRAILER_BYTES)
    if magic != MAGIC:
        raise WalFormatError("this is no whole WAL object: it does not end with the magic")
    trailer = Trailer(*fields)
    if trailer.index_position + trailer.index_bytes + TRAILER_BYTES != object_size:
        raise WalFormatError("the index does not fit into the object")
    return trailer


def decode_index(index: bytes | bytearray | memoryview, trailer: Trailer) -> list[IndexEntry]:
    """The entries of the bytes that `trailer` speaks of.

    Raises:
        WalFormatError: they are damaged.
    """
    if len(index) != trailer.index_bytes or crc32c.crc32c(index) != trailer.index_checksum:
        raise WalFormatError("the index is damaged: its checksum is wrong")
    return [IndexEntry._make(entry) for entry in _ENTRY.iter_unpack(index)]


def object_key(prefix: str, created_ms: int, object_id: uuid.UUID) -> str:
    """Prefix, two characters that spread the keys, creation time, id. Sorting by name sorts by time in each spread."""
    spread = object_id.hex[:2]
    return f"{prefix}/{spread}/{created_ms:0{_TIME_DIGITS}d}-{object_id}"


def slot_of(object_id: uuid.UUID) -> int:
    """A number from 0 to `SLOTS` - 1 that an object's id, drawn at random, gives it."""
    return object_id.int >> _SLOT_SHIFT


def slot_of_key(key: str) -> int:
    """`slot_of` the id in a key.

    Raises:
        WalFormatError: the key is not one of `object_key`'s.
    """
    try:
        return slot_of(uuid.UUID(key.rsplit("/", 1)[-1].partition("-")[2]))
    except ValueError:
        raise WalFormatError(f"{key!r} is not the key of a WAL object") from None


def is_object_key(prefix: str, key: str) -> bool:
    """Whether `object_key` makes such a key with that prefix."""
    return key.startswith(prefix) and _AFTER_PREFIX.fullmatch(key, len(prefix)) is not None


def spreads(prefix: str) -> list[str]:
    """What the keys of one prefix begin with, in parts that are about equal: each is in one of them."""
    return [f"{prefix}/{spread:02x}/" for spread in range(256)]


def end_of_spread(key: str) -> str:
    """What sorts behind all keys that begin with the same prefix and the same two characters.

    Raises:
        WalFormatError: the key is not one of `object_key`'s.
    """
    spread, separator, name = key.rpartition("/")
    if not separator or name.find("-") != _TIME_DIGITS:
        raise WalFormatError(f"{key!r} is not the key of a WAL object")
    return spread + chr(ord(separator) + 1)


def created_ms_of(key: str) -> int:
    """When the object of this key was created.

    Raises:
        WalFormatError: the key is not one of `object_key`'s.
    """
    name = key.rsplit("/", 1)[-1]
    created, separator, rest = name.partition("-")
    if not (separator and rest and created.isdecimal()):
        raise WalFormatError(f"{key!r} is not the key of a WAL object")
    return int(created)


def is_older(key: str, than_ms: int) -> bool:
    """Whether the object was created before, by its key. One with another kind of key never is."""
    try:
        return created_ms_of(key) < than_ms
    except WalFormatError:
        return False
