"""Which log a shard is on. Each has an id, which stands in the log itself, in stores and in snapshots. Pure.

The id tells a store or a snapshot of one log from those of another, where offsets alone cannot: a shard that was moved
begins at offset 0 again.
"""

from __future__ import annotations

import uuid

from diskless_core.coordinator.tables import Reader, Table, Transaction
from diskless_core.plugin.coordinator_store import Column, ColumnType, StoreView, TableSpec
from diskless_core.protocol import messages, record_frames
from diskless_core.protocol.record_batch import RecordData

LOG_IDS: Table[uuid.UUID] = Table(
    spec=TableSpec(
        name="log_id",
        key=(Column("id", ColumnType.INTEGER),),
        values=(Column("log_id", ColumnType.BLOB),),
    ),
    encode=lambda log_id: (log_id.bytes,),
    decode=lambda row: uuid.UUID(bytes=row[1]),
)
LOG_ID_KEY = (0,)


class LogIdentityError(Exception):
    """The log is not the one that the shard is on. Nothing was changed."""


class OtherLogError(LogIdentityError):
    """The log has another id than the store or the snapshot that the shard began from."""


class LogMovedError(LogIdentityError):
    """The shard goes on, on another log.

    Attributes:
        log_id: of that one.
    """

    def __init__(self, message: str, log_id: uuid.UUID) -> None:
        super().__init__(message)
        self.log_id = log_id


def log_id_of(state: Reader) -> uuid.UUID | None:
    """The id of the log that a shard in this state is on; None before it has one."""
    return state.get(LOG_IDS, LOG_ID_KEY)


def stored_log_id(view: StoreView) -> uuid.UUID | None:
    """The id of the log that a store's content comes from; None for an empty store."""
    row = view.get(LOG_IDS.name, LOG_ID_KEY)
    return LOG_IDS.decode(row) if row is not None else None


def encode_name(log_id: uuid.UUID, moved_from: uuid.UUID | None = None) -> RecordData:
    """The record that gives a log its id."""
    return _framed(messages.LogNamedRecord(log_id=log_id, moved_from=moved_from))


def encode_move(log_id: uuid.UUID, destination: str) -> RecordData:
    """The record that ends a log."""
    return _framed(messages.LogMovedRecord(log_id=log_id, destination=destination))


def replay_name(message: messages.LogNamedRecord, tx: Transaction) -> None:
    """Take the log's id.

    Raises:
        OtherLogError: the shard is on another log.
    """
    found, known = record_frames.required_id(message.log_id), log_id_of(tx)
    refuse_other("the log", found, "the store, or the snapshot that it was filled from,", known)
    tx.put(LOG_IDS, LOG_ID_KEY, found)


def replay_move(message: messages.LogMovedRecord) -> None:
    """End the shard here.

    Raises:
        LogMovedError: always.
    """
    raise LogMovedError(
        f"this log was moved to {message.destination} and ends here: start the broker with coordinator_log="
        f"{message.destination}",
        record_frames.required_id(message.log_id),
    )


def refuse_other(one: str, one_id: uuid.UUID | None, other: str, other_id: uuid.UUID | None) -> None:
    """Refuse two things that are of different logs. What has no id fits anything.

    Raises:
        OtherLogError: they are.
    """
    if one_id is not None and other_id is not None and one_id != other_id:
        raise OtherLogError(
            f"{one} has the log id {one_id}, and {other} has {other_id}: they do not belong together. Check "
            "coordinator_log, log.dirs and diskless.wal.object.prefix; if `diskless migrate-log` was interrupted, run "
            "it again"
        )


def _framed(message: messages.LogNamedRecord | messages.LogMovedRecord) -> RecordData:
    return RecordData(key=None, value=record_frames.encode_record(message))
