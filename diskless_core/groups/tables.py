"""The tables of the groups shard and what their rows hold. All of them are resident."""

from __future__ import annotations

import uuid
from typing import Any

from diskless_core.coordinator.tables import Table
from diskless_core.groups.consumer import codec
from diskless_core.groups.consumer.model import ConsumerGroup
from diskless_core.groups.model import CommittedOffset, PersistedGroup
from diskless_core.groups.records import decode_group, encode_group
from diskless_core.plugin.coordinator_store import Column, ColumnType, TableSpec, Value


def _offset_columns(value: CommittedOffset) -> tuple[Value, ...]:
    return (
        value.topic_id.bytes if value.topic_id is not None else None,
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp_ms,
        value.expire_timestamp_ms,
    )


def _offset_from_row(row: tuple[Any, ...]) -> CommittedOffset:
    topic_id, offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms = row[3:]
    return CommittedOffset(
        topic_id=uuid.UUID(bytes=topic_id) if topic_id is not None else None,
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp_ms=commit_timestamp_ms,
        expire_timestamp_ms=expire_timestamp_ms,
    )


GROUP_OFFSETS: Table[CommittedOffset] = Table(
    spec=TableSpec(
        name="group_offsets",
        key=(
            Column("group_id", ColumnType.TEXT),
            Column("topic", ColumnType.TEXT),
            Column("partition", ColumnType.INTEGER),
        ),
        values=(
            Column("topic_id", ColumnType.BLOB),
            Column("offset", ColumnType.INTEGER),
            Column("leader_epoch", ColumnType.INTEGER),
            Column("metadata", ColumnType.TEXT),
            Column("commit_timestamp", ColumnType.INTEGER),
            Column("expire_timestamp", ColumnType.INTEGER),
        ),
    ),
    encode=_offset_columns,
    decode=_offset_from_row,
)
"""Committed offsets by group, topic and partition."""

GROUPS: Table[PersistedGroup] = Table(
    spec=TableSpec(
        name="groups",
        key=(Column("group_id", ColumnType.TEXT),),
        values=(Column("metadata", ColumnType.BLOB),),
    ),
    encode=lambda value: (encode_group(value),),
    decode=lambda row: decode_group(row[1]),
)
"""Groups by id. `metadata` is a GroupMetadataValue with its version in front."""

CONSUMER_GROUPS: Table[ConsumerGroup] = Table(
    spec=TableSpec(
        name="consumer_groups",
        key=(Column("group_id", ColumnType.TEXT),),
        values=(Column("records", ColumnType.BLOB),),
    ),
    encode=lambda value: (codec.encode_group(value),),
    decode=lambda row: codec.decode_group(row[1]),
)
"""Groups of the consumer protocol by id. No group has a row here and in `GROUPS`."""
