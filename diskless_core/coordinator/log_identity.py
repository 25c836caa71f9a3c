"""Which log a shard is on. Each has an id, which stands in the log itself, in stores and in snapshots. Pure.

The id tells a store or a snapshot of one log from those of another, where offsets alone cannot: a shard that was moved
begins at offset 0 again.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from diskless_core.coordinator.tables import Reader, Table, Transaction
from diskless_core.plugin.coordinator_store import Column, ColumnType, StoreView, TableSpec
from diskless_core.protocol import messages, record_frames
from diskless_core.protocol.record_batch import RecordData


@dataclass(frozen=True, slots=True)
class LogName:
    """Which log it is.

    Attributes:
        moved_from: the id of the log that it took the place of; None where it was the first, or is not known.
    """

    log_id: uuid.UUID
    moved_from: uuid.UUID | None = None


LOG_NAMES: Table[LogName] = Table(
    spec=TableSpec(
        name="log_name",
        key=(Column("id", ColumnType.INTEGER),),
        values=(Column("log_id", ColumnType.BLOB), Column("moved_from", ColumnType.BLOB)),
    ),
    encode=lambda name: (name.log_id.bytes, name.moved_from.bytes if name.moved_from is not None else b""),
    decode=lambda row: LogName(uuid.UUID(bytes=row[1]), uuid.UUID(bytes=row[2]) if row[2] else None),
)
LOG_NAME_KEY = (0,)


class LogIdentityError(Exception):
    """The log is not the one that the shard is on. Nothing was changed."""


class OtherLogError(LogIdentityError):
    """The log has another id than the store or the snapshot that the shard began from."""

    @classmethod
    def between(cls, one: str, one_id: uuid.UUID, other: str, other_id: uuid.UUID) -> OtherLogError:
        """That two things are of different logs."""
        return cls(
            f"{one} has the log id {one_id}, and {other} has {other_id}: they do not belong together. Check "
            "coordinator_log, log.dirs and diskless.wal.object.prefix; if `diskless migrate-log` was interrupted, run "
            "it again"
        )


class LogMovedError(LogIdentityError):
    """The shard goes on, on another log."""

    def __init__(self, destination: str) -> None:
        super().__init__(
            f"this log was moved to {destination} and ends here: start the broker with coordinator_log={destination}"
        )


def log_name_of(state: Reader) -> LogName | None:
    """The log that a shard in this state is on; None before it has an id."""
    return state.get(LOG_NAMES, LOG_NAME_KEY)


def stored_name(view: StoreView) -> LogName | None:
    """The log that a store's content comes from; None for an empty store."""
    row = view.get(LOG_NAMES.name, LOG_NAME_KEY)
    return LOG_NAMES.decode(row) if row is not None else None


def encode_name(name: LogName) -> RecordData:
    """The record that gives a log its id."""
    return _framed(messages.LogNamedRecord(log_id=name.log_id, moved_from=name.moved_from))


def decode_name(message: messages.LogNamedRecord) -> LogName:
    """The same as `encode_name`, back."""
    return LogName(record_frames.required_id(message.log_id), message.moved_from)


def encode_move(log_id: uuid.UUID, destination: str) -> RecordData:
    """The record that ends a log."""
    return _framed(messages.LogMovedRecord(log_id=log_id, destination=destination))


def replay_name(message: messages.LogNamedRecord, tx: Transaction) -> None:
    """Take the log's id.

    Raises:
        OtherLogError: the shard is on another log.
        LogIdentityError: the log goes on where another one ended, and the shard does not have what that one said.
    """
    found, known = decode_name(message), log_name_of(tx)
    if known is not None and known.log_id != found.log_id:
        raise OtherLogError.between("the log", found.log_id, "the store or its snapshot", known.log_id)
    if known is None and found.moved_from is not None:
        raise LogIdentityError(
            f"the log {found.log_id} took the place of {found.moved_from}, and the snapshot with which it begins was "
            "not loaded: check diskless.wal.object.prefix and wal_object_store, and start the broker again"
        )
    tx.put(LOG_NAMES, LOG_NAME_KEY, found)


def _framed(message: messages.LogNamedRecord | messages.LogMovedRecord) -> RecordData:
    return RecordData(key=None, value=record_frames.encode_record(message))
