"""The state of the groups shard, and the only code that changes it: `replay`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diskless_core.coordinator.state_machine import StateMachine
from diskless_core.coordinator.tables import Table, Transaction
from diskless_core.groups import records
from diskless_core.groups.consumer.records import ConsumerGroupRecord, replayed
from diskless_core.groups.records import GroupRecord, GroupsRecord
from diskless_core.groups.tables import CONSUMER_GROUPS, GROUP_OFFSETS, GROUPS
from diskless_core.protocol.record_batch import RecordData


class GroupsMachine(StateMachine[GroupsRecord]):
    """A shard of `__consumer_offsets`."""

    tables: Sequence[Table[Any]] = (GROUP_OFFSETS, GROUPS, CONSUMER_GROUPS)

    def encode(self, record: GroupsRecord) -> RecordData:
        return records.encode(record)

    def decode(self, data: RecordData) -> GroupsRecord:
        return records.decode(data)

    def replay(self, record: GroupsRecord, tx: Transaction) -> None:
        """Put, change or delete the record's row."""
        if isinstance(record, ConsumerGroupRecord):
            _replay_consumers(record, tx)
            return
        table: Table[Any] = GROUPS if isinstance(record, GroupRecord) else GROUP_OFFSETS
        if record.value is None:
            tx.delete(table, record.table_key)
        else:
            tx.put(table, record.table_key, record.value)


def _replay_consumers(record: ConsumerGroupRecord, tx: Transaction) -> None:
    key = (record.group_id,)
    group = replayed(tx.get(CONSUMER_GROUPS, key), record)
    if group is None:
        tx.delete(CONSUMER_GROUPS, key)
    else:
        tx.put(CONSUMER_GROUPS, key, group)
