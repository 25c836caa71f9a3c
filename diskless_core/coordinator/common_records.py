"""The records that stand in the logs of shards of every kind: the feature level, the log's id, its end. Pure."""

from __future__ import annotations

from diskless_core.coordinator.feature_level import replay_level
from diskless_core.coordinator.log_identity import LogMovedError, replay_name
from diskless_core.coordinator.tables import Transaction
from diskless_core.protocol import messages, record_frames
from diskless_core.protocol.feature_levels import LevelRange
from diskless_core.protocol.record_batch import RecordData
from diskless_core.protocol.record_frames import IgnorableRecordError, RecordFormatError


def replay_common(data: RecordData, error: RecordFormatError, tx: Transaction, supported: LevelRange) -> None:
    """Replay such a record, and pass over one that may be ignored.

    Args:
        error: why the shard's state machine cannot decode the record.

    Raises:
        UnknownRecordError: only a later version of Diskless can read the log from here on.
        LogIdentityError: the log is not the one that the shard is on.
        RecordFormatError: `error`, where the record is none of these.
    """
    if data.key is not None or data.value is None:
        raise error
    try:
        message = record_frames.decode_record(data.value)
    except IgnorableRecordError:
        return
    match message:
        case messages.FeatureLevelRecord():
            replay_level(message, tx, supported)
        case messages.LogNamedRecord():
            replay_name(message, tx)
        case messages.LogMovedRecord():
            raise LogMovedError(message.destination)
        case _:
            raise error
