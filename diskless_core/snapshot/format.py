"""A shard's snapshot as objects: parts with its rows, and a manifest that names them (KIP-1164; KIP-630).

A part is a sequence of v2 record batches. Each has one record: its key is a table's name, its value a MessagePack array
of rows, which any store can load. The manifest is a batch with one `CoordinatorSnapshotRecord`. Pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack
from crc32c import crc32c

from diskless_core.plugin.coordinator_store import Row, StoreView, TableSpec
from diskless_core.protocol import messages, record_batch, record_frames
from diskless_core.protocol.feature_levels import BUILD_LEVELS, FEATURE, FIRST_LEVEL, LevelRange
from diskless_core.protocol.record_batch import CorruptBatchError, RecordData

PART_BYTES = 8 << 20
"""A part ends with the batch that makes it larger than this."""

BATCH_ROWS = 1_000
_ZSTD = 4


class SnapshotError(Exception):
    """A snapshot is damaged, or of other tables than this version has."""


class SnapshotTooNewError(SnapshotError):
    """Only a later version of Diskless can read the snapshot. An older one must not take its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One object of rows. `crc` is the CRC-32C of its `size` bytes."""

    key: str
    size: int
    crc: int


class Accepted(NamedTuple):
    """What counts in the log from where a snapshot ends, and the digests of what has counted up to there.

    The fields are those of the coordinator's row that says so.
    """

    term: int = -1
    next_sequence: int = 0
    digest: bytes = b""
    last_offset: int = -1
    before: bytes = b""


NOTHING_ACCEPTED = Accepted()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One snapshot.

    Attributes:
        applied_offset: every log entry below it is in.
        taken_at: when it was begun, in milliseconds since the epoch: it lacks what came later, however long it took.
        level: the level of `diskless.version` that it is written at.
        log_id: of the log that `applied_offset` belongs to.
        moved_from: the id of the log that this one took the place of, if it did.
        accepted: by it a log can be told from one that has other entries at the same offsets.
    """

    applied_offset: int
    taken_at: int
    tables: Mapping[str, Sequence[str]]
    parts: Sequence[Part]
    level: int = FIRST_LEVEL
    log_id: uuid.UUID
    moved_from: uuid.UUID | None = None
    accepted: Accepted = NOTHING_ACCEPTED

    @property
    def size_bytes(self) -> int:
        """Of all rows, as they are stored."""
        return sum(part.size for part in self.parts)


def tables_at(level: int, tables: Sequence[TableSpec]) -> list[TableSpec]:
    """Those that a snapshot of this level has."""
    return [spec for spec in tables if spec.level <= level]


def require_supported(level: int, supported: LevelRange = BUILD_LEVELS.supported) -> None:
    """Refuse the level of a snapshot that this build cannot read.

    Raises:
        SnapshotTooNewError: it is newer.
        SnapshotError: it is too old.
    """
    if level > supported.newest:
        raise SnapshotTooNewError(
            f"the snapshot is of {FEATURE} {level}, and this version of Diskless reads {supported}: upgrade it"
        )
    if level < supported.oldest:
        raise SnapshotError(f"the snapshot is of {FEATURE} {level}, and this version of Diskless reads {supported}")


def declared(tables: Sequence[TableSpec]) -> dict[str, list[str]]:
    """Tables as a manifest names them."""
    return {spec.name: [f"{column.name}:{column.type.value}" for column in spec.columns] for spec in tables}


def encode_manifest(manifest: Manifest) -> bytes:
    record = messages.CoordinatorSnapshotRecord
    message = record(
        level=manifest.level,
        log_id=manifest.log_id,
        moved_from=manifest.moved_from,
        applied_offset=manifest.applied_offset,
        term=manifest.accepted.term,
        next_sequence=manifest.accepted.next_sequence,
        digest=manifest.accepted.digest,
        last_offset=manifest.accepted.last_offset,
        digest_before=manifest.accepted.before,
        taken_at=manifest.taken_at,
        tables=[record.SnapshotTable(name=name, columns=list(columns)) for name, columns in manifest.tables.items()],
        parts=[record.SnapshotPart(key=part.key, size=part.size, crc=part.crc) for part in manifest.parts],
    )
    data = RecordData(key=None, value=record_frames.encode_record(message))
    return record_batch.build([data], timestamp_ms=manifest.taken_at)


def decode_manifest(data: bytes | bytearray | memoryview) -> Manifest:
    """Read a manifest back.

    Raises:
        SnapshotTooNewError: only a later version of Diskless knows such manifests.
        SnapshotError: these bytes are no whole manifest.
    """
    try:
        ((_, value),) = _records(data)
        found = record_frames.decode_record(value)
        if not isinstance(found, messages.CoordinatorSnapshotRecord):
            raise SnapshotError(f"a manifest cannot hold a {type(found).__name__}")
        log_id = record_frames.required_id(found.log_id)
    except record_frames.UnknownRecordError as error:
        raise SnapshotTooNewError(f"the snapshot is too new: {error}. Upgrade it") from error
    except (ValueError, record_frames.RecordFormatError) as error:
        raise SnapshotError(f"the manifest is damaged: {error}") from error
    return Manifest(
        applied_offset=found.applied_offset,
        taken_at=found.taken_at,
        tables={table.name: list(table.columns) for table in found.tables},
        parts=[Part(key=part.key, size=part.size, crc=part.crc) for part in found.parts],
        level=found.level,
        log_id=log_id,
        moved_from=found.moved_from,
        accepted=Accepted(
            found.term, found.next_sequence, bytes(found.digest), found.last_offset, bytes(found.digest_before)
        ),
    )


def encode_parts(view: StoreView, tables: Sequence[TableSpec]) -> Iterator[bytes]:
    """All rows of a view, a part at a time; memory holds one part."""
    part = bytearray()
    for spec in tables:
        for rows in pages(view, spec):
            value = msgpack.packb(rows, use_bin_type=True)
            record = RecordData(key=spec.name.encode(), value=value)
            part += record_batch.build([record], timestamp_ms=0, compression=_ZSTD)
            if len(part) > PART_BYTES:
                yield bytes(part)
                part.clear()
    if part:
        yield bytes(part)


def is_intact(part: Part, data: bytes | bytearray | memoryview) -> bool:
    """Whether these are the bytes that the manifest speaks of."""
    return len(data) == part.size and crc32c(data) == part.crc


def decode_part(
    part: Part, data: bytes | bytearray | memoryview, tables: Collection[str] | None = None
) -> Iterator[tuple[str, list[Row]]]:
    """A part's rows with the names of their tables, a batch of rows at a time; only of `tables`, or of all.

    Raises:
        SnapshotError: these are not the bytes that the manifest speaks of.
    """
    if not is_intact(part, data):
        raise SnapshotError(f"the part {part.key} of a snapshot is damaged: its size or checksum is wrong")
    for key, value in _records(data):
        table = str(key, "utf-8")
        if tables is None or table in tables:
            yield table, [tuple(row) for row in msgpack.unpackb(value)]


def positions(tables: Mapping[str, Sequence[str]], table: str, columns: Sequence[str]) -> tuple[int, ...]:
    """Where a manifest's `tables` have some columns of a table in its rows.

    Raises:
        SnapshotError: the table or one of the columns is not there.
    """
    names = [declared_column.partition(":")[0] for declared_column in tables.get(table, ())]
    absent = [column for column in columns if column not in names]
    if absent:
        raise SnapshotError(f"the snapshot is of another version: its table {table} has no {', '.join(absent)}")
    return tuple(map(names.index, columns))


def pages(view: StoreView, spec: TableSpec) -> Iterator[list[Row]]:
    """All rows of a table in the order of their keys, some at a time."""
    width = len(spec.key)
    after: tuple[Any, ...] = ()
    while True:
        found = view.scan(spec.name, after, limit=BATCH_ROWS + 1)
        page = [row for row in found if row[:width] != after]
        if page:
            yield page
        if len(found) <= BATCH_ROWS:
            return
        after = found[-1][:width]


def _records(data: bytes | bytearray | memoryview) -> Iterator[tuple[bytes, bytes]]:
    whole = memoryview(data)
    try:
        for position, header in record_batch.walk(whole):
            if not record_batch.crc_is_valid(whole, position, header):
                raise SnapshotError("a batch of a snapshot is damaged: its checksum is wrong")
            for record in record_batch.records(whole[position : position + header.size]):
                yield record.key or b"", record.value or b""
    except CorruptBatchError as error:
        raise SnapshotError(f"a batch of a snapshot is damaged: {error}") from error
