"""What stands in a shard's log, record by record, for people: terms, sequences, and fields by their schema's names.

It needs no state machine, so it shows entries that replay would ignore or choke on, and says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import NO_DIGEST, Acceptance, Claim, Entry
from diskless_core.plugin.coordinator_log import LogBatch
from diskless_core.protocol import messages, record_batch, record_frames
from diskless_core.protocol.codec import CompiledRecord
from diskless_core.protocol.names import uuid_text
from diskless_core.protocol.record_batch import CorruptBatchError, RecordData, UnsupportedCompressionError
from diskless_core.protocol.record_frames import KeyedRecords, RecordFormatError, UnknownRecordError

UNREADABLE = "unreadable"
"""In place of the type of a record that cannot be decoded; its data says why."""

IGNORABLE = "ignorable"
"""In place of the type of a record that only a later version knows, and that every replica passes over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedRecord:
    """One record of the log.

    Attributes:
        offset: its own offset in the log.
        timestamp: of its entry, in milliseconds since the epoch.
        term: the offset of the claim that it was written under; a claim's is its own offset.
        sequence: of its entry within the term; None for a claim.
        accepted: whether replicas apply it; None where the claim before it was not seen.
        type: name of the record's schema; of a record with a key, of the value's or the key's.
        data: fields by name, ids as Kafka writes them and other bytes in hexadecimal; or `key` and `value`.
    """

    offset: int
    timestamp: int
    term: int | None
    sequence: int | None
    accepted: bool | None
    type: str
    data: Mapping[str, Any]

    @property
    def is_readable(self) -> bool:
        return self.type != UNREADABLE


class LogDescriber:
    """Describes a log's entries in order, from any offset on.

    Args:
        from_start: whether that is where the log began.
        keyed_records: those that may stand in the log; None where none of its records has a key.
    """

    def __init__(self, *, from_start: bool, keyed_records: KeyedRecords | None = None) -> None:
        self._keyed_records = keyed_records
        self._acceptance = Acceptance() if from_start else None

    def describe(self, batch: LogBatch) -> Sequence[DescribedRecord]:
        """The entry's records, without the one that says under which term and sequence they were written."""
        try:
            timestamp = record_batch.read_header(batch.data).base_timestamp
        except CorruptBatchError as error:
            return [_unreadable(batch.offset, -1, str(error))]
        try:
            entry = entries.decode(batch.data)
        except (RecordFormatError, CorruptBatchError, UnsupportedCompressionError) as error:
            return [_unreadable(batch.offset, timestamp, str(error))]
        if entry in (entries.FOREIGN, entries.MALFORMED):
            return [_unreadable(batch.offset, timestamp, "no coordinator wrote this; every broker ignores it")]
        if isinstance(entry, Claim):
            return [self._claim(entry, batch.offset, timestamp)]
        return self._entry(entry, batch.offset, timestamp)

    def _claim(self, claim: Claim, offset: int, timestamp: int) -> DescribedRecord:
        self._acceptance = Acceptance().claimed(offset, NO_DIGEST)
        return DescribedRecord(
            offset=offset,
            timestamp=timestamp,
            term=offset,
            sequence=None,
            accepted=True,
            type=messages.CoordinatorClaimRecord.__name__,
            data={
                "broker_id": claim.node_id,
                "claim_id": uuid_text(claim.claim_id),
                "read_offset": claim.read.offset,
                "read_term": claim.read.term,
                "read_sequence": claim.read.next_sequence,
            },
        )

    def _entry(self, entry: Entry, offset: int, timestamp: int) -> list[DescribedRecord]:
        accepted = self._acceptance.accepts(entry) if self._acceptance is not None else None
        if self._acceptance is not None and accepted:
            self._acceptance = self._acceptance.advanced(offset, NO_DIGEST)
        described = []
        for position, record in enumerate(entry.records, start=offset + 1):
            kind, data = self._content(record)
            described.append(
                DescribedRecord(
                    offset=position,
                    timestamp=timestamp,
                    term=entry.term,
                    sequence=entry.sequence,
                    accepted=accepted,
                    type=kind,
                    data=data,
                )
            )
        return described

    def _content(self, record: RecordData) -> tuple[str, dict[str, Any]]:
        try:
            return self._with_key(record.key, record.value) if record.key is not None else _without_key(record.value)
        except RecordFormatError as error:
            return UNREADABLE, {"error": str(error)}

    def _with_key(self, key_data: bytes, value_data: bytes | None) -> tuple[str, dict[str, Any]]:
        if self._keyed_records is None:
            raise RecordFormatError("a record of this log has no key")
        key = self._keyed_records.decode_key(key_data)
        value = self._keyed_records.decode_value(key, value_data) if value_data is not None else None
        kind = type(value) if value is not None else type(key)
        return kind.__name__, {"key": _fields(key), "value": _fields(value) if value is not None else None}


def _unreadable(offset: int, timestamp: int, reason: str) -> DescribedRecord:
    return DescribedRecord(
        offset=offset,
        timestamp=timestamp,
        term=None,
        sequence=None,
        accepted=None,
        type=UNREADABLE,
        data={"error": reason},
    )


def _without_key(value: bytes | None) -> tuple[str, dict[str, Any]]:
    if value is None:
        raise RecordFormatError("a record has neither key nor value")
    try:
        message: CompiledRecord = record_frames.read_record(value)
    except UnknownRecordError as error:
        frame = record_frames.read_frame(value)
        if frame.frame_version != record_frames.IGNORABLE_FRAME_VERSION:
            raise
        return IGNORABLE, {"api_key": frame.api_key, "version": frame.version, "note": str(error)}
    return type(message).__name__, _fields(message)


def _fields(message: CompiledRecord) -> dict[str, Any]:
    fields: dict[str, Any] = _plain(message.to_dict(json=False))
    return fields


def _plain(value: Any) -> Any:
    match value:
        case uuid.UUID():
            return uuid_text(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case dict():
            return {name: _plain(field) for name, field in value.items()}
        case list() | tuple():
            return [_plain(element) for element in value]
    return value
