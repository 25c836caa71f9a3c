"""One log entry: a record batch whose first record says under which term and sequence the rest was written.

Acceptance is a pure function of the log's prefix: an entry counts when its term is the latest claim's offset
and its sequence is the next one. Everything else in the log is ignored by every replica alike. (In the place of
KIP-1164's "Leadership and deployment"; see docs/adr/0001.)
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from diskless_core.coordinator.feature_level import FEATURE_LEVELS
from diskless_core.coordinator.log_identity import LOG_NAMES
from diskless_core.coordinator.slices import Pace, Slices, at_once
from diskless_core.coordinator.state_machine import StateMachine
from diskless_core.coordinator.tables import Table
from diskless_core.plugin.coordinator_log import LogBatch
from diskless_core.plugin.coordinator_store import Column, ColumnType, StoreView, TableSpec
from diskless_core.protocol import messages, record_batch, record_frames
from diskless_core.protocol.record_batch import MAGIC, CorruptBatchError, RecordData, UnsupportedCompressionError
from diskless_core.protocol.record_frames import RecordFormatError, UnknownRecordError

NO_TERM = -1

NO_DIGEST = b""
"""The digest of a log without a claim."""

UNPATCHED = 16
"""Logs may rewrite base offset and leader epoch (bytes 0-7, 12-15); from here on an entry comes back as it went."""

_HEADS = tuple(
    record_frames.record_prefix(kind)[:-1]
    for kind in (messages.CoordinatorEntryRecord, messages.CoordinatorClaimRecord)
)
"""What the first record of an entry begins with: frame version and kind, without the record's version."""

_DIGEST_BYTES = 16
_OFFSET = struct.Struct(">q")

NO_OP = RecordData(key=None, value=record_frames.encode_record(messages.CoordinatorNoOpRecord()))
"""What an entry says that is there only to be read back."""


@dataclass(frozen=True, slots=True)
class Position:
    """Whose entries count at an offset: what every reader of one log has to agree on."""

    offset: int = 0
    term: int = NO_TERM
    next_sequence: int = 0


class ReadBack(NamedTuple):
    """How far the leader had read an entry's term when it wrote the entry, and what it had found by then.

    What it says has to be in the log before the entry: so a reader of the log can tell whether it is all there.

    Attributes:
        next_sequence: of the entry that the leader had to read next.
        digest: of all claims and accepted entries before that one; see `chained`.
    """

    next_sequence: int
    digest: bytes


_NOT_SAID = ReadBack(-1, NO_DIGEST)


@dataclass(frozen=True, slots=True)
class Claim:
    """A node's claim to lead. Its offset in the log is the term of what the node writes from then on.

    Attributes:
        read: how far the node had read when it claimed, and what it found there.
    """

    node_id: int
    claim_id: uuid.UUID
    read: Position = Position()


@dataclass(frozen=True, slots=True)
class Entry:
    """One command's records as they stand in the log.

    Attributes:
        log_id: of the log that it was written to; None where that had none yet.
        read_back: None where the entry does not say it.
    """

    term: int
    sequence: int
    records: Sequence[RecordData]
    log_id: uuid.UUID | None = None
    read_back: ReadBack | None = None


FOREIGN = Entry(term=NO_TERM, sequence=-1, records=())
"""What a batch is taken for that no coordinator wrote. No replica ever accepts it."""

MALFORMED = Entry(term=NO_TERM, sequence=-2, records=())
"""The same, of a batch that begins like an entry. Its checksum is right, so it is what somebody wrote: no leader can
have read it back and acknowledged it, and every replica ignores it."""


class DamagedEntryError(RecordFormatError):
    """What the log gave is a part of a record batch, or one whose checksum is wrong.

    It may have been an entry that was acknowledged, so it is not ignored.
    """


def chained(digest: bytes, batch: LogBatch) -> bytes:
    """The digest of the claims and accepted entries that `digest` stands for, and of `batch` after them.

    It covers each entry's offset and its bytes from `UNPATCHED` on. All readers of a log get the same bytes there, so
    replicas that have taken the same entries have the same digest.
    """
    chain = blake2b(digest + _OFFSET.pack(batch.offset), digest_size=_DIGEST_BYTES)
    chain.update(memoryview(batch.data)[UNPATCHED:])
    return chain.digest()


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Whose entries count: the latest claim's, in sequence.

    Attributes:
        digest: of all claims and accepted entries so far: see `chained`.
        last_offset: of the latest of them; -1 before the first, and where that is not known.
        before: the digest without the latest. With it a reader can tell whether a log still has what was read.
    """

    term: int = NO_TERM
    next_sequence: int = 0
    digest: bytes = NO_DIGEST
    last_offset: int = field(default=-1, compare=False)
    before: bytes = field(default=NO_DIGEST, compare=False)

    def claimed(self, offset: int, digest: bytes) -> Acceptance:
        """After a claim at `offset`, with which the chain has come to `digest`."""
        return Acceptance(term=offset, next_sequence=0, digest=digest, last_offset=offset, before=self.digest)

    def accepts(self, entry: Entry) -> bool:
        return entry.term == self.term and entry.sequence == self.next_sequence

    def read_back(self) -> ReadBack:
        """What an entry of this term says that is written now."""
        return ReadBack(self.next_sequence, self.digest)

    def at(self, offset: int) -> Position:
        return Position(offset, self.term, self.next_sequence)

    def after(self, entry: Claim | Entry, batch: LogBatch) -> Acceptance:
        """After the next entry of the log, whether it counts or not."""
        if isinstance(entry, Claim):
            return self.claimed(batch.offset, chained(self.digest, batch))
        return self.advanced(batch.offset, chained(self.digest, batch)) if self.accepts(entry) else self

    def advanced(self, offset: int, digest: bytes) -> Acceptance:
        """After an accepted entry at `offset`, with which the chain has come to `digest`."""
        return Acceptance(
            term=self.term,
            next_sequence=self.next_sequence + 1,
            digest=digest,
            last_offset=offset,
            before=self.digest,
        )


ACCEPTANCE: Table[Acceptance] = Table(
    spec=TableSpec(
        name="acceptance",
        key=(Column("id", ColumnType.INTEGER),),
        values=(
            Column("term", ColumnType.INTEGER),
            Column("next_sequence", ColumnType.INTEGER),
            Column("digest", ColumnType.BLOB),
            Column("last_offset", ColumnType.INTEGER),
            Column("before", ColumnType.BLOB),
        ),
    ),
    encode=lambda value: (value.term, value.next_sequence, value.digest, value.last_offset, value.before),
    decode=lambda row: Acceptance(*row[1:]),
)


def stored_acceptance(view: StoreView) -> Acceptance:
    """Whose entries count where a store's content ends."""
    row = view.get(ACCEPTANCE.name, (0,))
    return ACCEPTANCE.decode(row) if row is not None else Acceptance()


def tables_of(machine: StateMachine[Any]) -> tuple[Table[Any], ...]:
    """All tables of a shard: its machine's, whose entries count, the level that it is written at, and its log's id."""
    return (*machine.tables, ACCEPTANCE, FEATURE_LEVELS, LOG_NAMES)


def encode_claim(claim: Claim, timestamp_ms: int) -> bytes:
    record = messages.CoordinatorClaimRecord(
        broker_id=claim.node_id,
        claim_id=claim.claim_id,
        read_offset=claim.read.offset,
        read_term=claim.read.term,
        read_sequence=claim.read.next_sequence,
    )
    return record_batch.build(
        [RecordData(key=None, value=record_frames.encode_record(record))], timestamp_ms=timestamp_ms
    )


def encode_entry(
    term: int,
    sequence: int,
    records: Sequence[RecordData],
    timestamp_ms: int,
    log_id: uuid.UUID | None = None,
    read_back: ReadBack | None = None,
) -> bytes:
    said = read_back or _NOT_SAID
    header = messages.CoordinatorEntryRecord(
        term=term, sequence=sequence, log_id=log_id, read_sequence=said.next_sequence, read_digest=said.digest
    )
    head = RecordData(key=None, value=record_frames.encode_record(header))
    return record_batch.build([head, *records], timestamp_ms=timestamp_ms)


def encode_probe(timestamp_ms: int) -> bytes:
    """An entry that is there only to be read back, by a node that need not lead: no replica ever accepts it."""
    return encode_entry(FOREIGN.term, FOREIGN.sequence, [NO_OP], timestamp_ms)


def decode(batch: bytes) -> Claim | Entry:
    """Read one entry back. What no coordinator wrote is `FOREIGN` or `MALFORMED`.

    Raises:
        UnknownRecordError: it is an entry of a version that is not known.
        DamagedEntryError: it was a record batch once, maybe an entry.
        UnsupportedCompressionError: the log compressed it, and the codec's package is not installed.
    """
    return at_once(decode_in_slices(batch))


def decode_or_ignore(batch: bytes) -> Claim | Entry:
    """The same as `decode`. What cannot be read is `FOREIGN`: for readers that leave it to replay to judge it."""
    try:
        return decode(batch)
    except (RecordFormatError, UnsupportedCompressionError):
        return FOREIGN


def decode_in_slices(batch: bytes) -> Slices[Claim | Entry]:
    """The same as `decode`, in slices."""
    if len(batch) <= UNPATCHED or batch[UNPATCHED] != MAGIC:
        return FOREIGN
    _require_intact(batch)
    found, pace = list[RecordData](), Pace()
    try:
        for record in record_batch.records(batch):
            found.append(RecordData(key=record.key, value=record.value))
            if len(found) == 1 and not _is_head(found[0]):
                return FOREIGN
            if pace.is_over_after(1):
                yield
    except CorruptBatchError:
        return MALFORMED if found else FOREIGN
    if not found:
        return FOREIGN
    try:
        return _under_head(found[0].value or b"", found[1:])
    except UnknownRecordError:
        raise
    except RecordFormatError:
        return MALFORMED


def _require_intact(batch: bytes) -> None:
    """Refuse what looks like a record batch, and is not the whole of one with the right checksum."""
    try:
        header = record_batch.read_header(batch)
    except CorruptBatchError as error:
        raise DamagedEntryError(f"the log is damaged here: {error}") from error
    if header.size != len(batch):
        raise DamagedEntryError(f"the log is damaged here: an entry of {header.size} bytes has {len(batch)} bytes")
    if not record_batch.crc_is_valid(batch, 0, header):
        raise DamagedEntryError(f"the log is damaged here: the checksum of {len(batch)} bytes is wrong")


def _under_head(value: bytes, records: Sequence[RecordData]) -> Claim | Entry:
    head = record_frames.decode_record(value)
    if isinstance(head, messages.CoordinatorClaimRecord):
        return Claim(
            node_id=head.broker_id,
            claim_id=record_frames.required_id(head.claim_id),
            read=Position(head.read_offset, head.read_term, head.read_sequence),
        )
    said = ReadBack(head.read_sequence, bytes(head.read_digest))
    return Entry(
        term=head.term,
        sequence=head.sequence,
        records=records,
        log_id=head.log_id,
        read_back=said if said != _NOT_SAID else None,
    )


def _is_head(record: RecordData) -> bool:
    """Whether an entry begins so. What follows the kind's number is not looked at: it may be a later version's."""
    return record.key is None and record.value is not None and record.value.startswith(_HEADS)
