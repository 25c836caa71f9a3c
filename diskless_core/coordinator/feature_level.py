"""The level of `diskless.version` that a shard is written at.

The level is a row of each shard, set by a record in the shard's own log. So every replica knows it at the same offset,
and stores and snapshots have it. The cluster shard's is the cluster's; leaders of the others follow it. Pure.
"""

from __future__ import annotations

from diskless_core.coordinator.tables import Reader, Table, Transaction
from diskless_core.plugin.coordinator_store import Column, ColumnType, StoreView, TableSpec
from diskless_core.protocol import messages, record_frames
from diskless_core.protocol.feature_levels import FEATURE, FIRST_LEVEL, LevelRange
from diskless_core.protocol.record_batch import RecordData
from diskless_core.protocol.record_frames import UnknownRecordError

FEATURE_LEVELS: Table[int] = Table(
    spec=TableSpec(
        name="feature_levels",
        key=(Column("name", ColumnType.TEXT),),
        values=(Column("level", ColumnType.INTEGER),),
    ),
    encode=lambda level: (level,),
    decode=lambda row: row[1],
)
LEVEL_KEY = (FEATURE,)


def level_of(state: Reader) -> int:
    """The level that a shard in this state is written at."""
    return state.get(FEATURE_LEVELS, LEVEL_KEY) or FIRST_LEVEL


def stored_level(view: StoreView) -> int:
    """The level that a store's content is written at."""
    row = view.get(FEATURE_LEVELS.name, LEVEL_KEY)
    return FEATURE_LEVELS.decode(row) if row is not None else FIRST_LEVEL


def too_new(level: int, supported: LevelRange) -> str | None:
    """What to say to a level that this build does not know yet; None for any other."""
    if level <= supported.newest:
        return None
    return f"it is of {FEATURE} {level}, and this version of Diskless supports {supported}"


def encode_level(level: int) -> RecordData:
    """The record by which a shard is at this level from its entry on."""
    record = messages.FeatureLevelRecord(name=FEATURE, feature_level=level)
    return RecordData(key=None, value=record_frames.encode_record(record))


def replay_level(message: messages.FeatureLevelRecord, tx: Transaction, supported: LevelRange) -> None:
    """Set the level.

    Raises:
        UnknownRecordError: only a later version of Diskless can read the log from here on.
    """
    if message.name != FEATURE:
        raise UnknownRecordError(f"this version of Diskless does not know the feature {message.name}")
    problem = too_new(message.feature_level, supported)
    if problem is not None:
        raise UnknownRecordError(f"the log goes on with something newer: {problem}")
    tx.put(FEATURE_LEVELS, LEVEL_KEY, message.feature_level)
