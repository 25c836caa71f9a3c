"""A build of Diskless whose feature level is one higher: the cluster shard has one more record and one more table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar
from unittest import mock

from diskless_core.cluster import shard as cluster_shard
from diskless_core.cluster.state_machine import ClusterMachine
from diskless_core.coordinator.tables import Table, Transaction
from diskless_core.plugin.coordinator_store import Column, ColumnType, TableSpec
from diskless_core.protocol.feature_levels import RECORDS_OF_LEVELS, FeatureLevels
from diskless_core.protocol.record_batch import RecordData
from diskless_core.protocol.varint import encode_uvarint

NEXT_LEVEL = max(RECORDS_OF_LEVELS) + 1
NOTE_KEY = 5_000

_PREFIX = encode_uvarint(1) + encode_uvarint(NOTE_KEY) + encode_uvarint(0)
_IGNORABLE_PREFIX = encode_uvarint(2) + _PREFIX[1:]


class NoteRecord:
    """Stands for the schema of the new record."""

    json: ClassVar = {"apiKey": NOTE_KEY}


_new_record: Any = NoteRecord
NEXT_LEVELS = FeatureLevels({**RECORDS_OF_LEVELS, NEXT_LEVEL: {_new_record: (0,)}})


@dataclass(frozen=True, slots=True)
class Note:
    """Says something to those who know such records."""

    text: str


NOTES: Table[int] = Table(
    spec=TableSpec(
        name="notes",
        key=(Column("text", ColumnType.TEXT),),
        values=(Column("count", ColumnType.INTEGER),),
        level=NEXT_LEVEL,
    ),
    encode=lambda count: (count,),
    decode=lambda row: row[1],
)


def note(text: str) -> RecordData:
    """The new record in the log."""
    return RecordData(key=None, value=_PREFIX + text.encode())


def ignorable_note(text: str) -> RecordData:
    """The same, in a frame that says that it may be ignored."""
    return RecordData(key=None, value=_IGNORABLE_PREFIX + text.encode())


class NextClusterMachine(ClusterMachine):
    """The cluster shard of the next build."""

    tables = (*ClusterMachine.tables, NOTES)

    def encode(self, record: Any) -> RecordData:
        return note(record.text) if isinstance(record, Note) else super().encode(record)

    def decode(self, data: RecordData) -> Any:
        if data.value is not None and data.value.startswith(_PREFIX):
            return Note(data.value[len(_PREFIX) :].decode())
        return super().decode(data)

    def replay(self, record: Any, tx: Transaction) -> None:
        if isinstance(record, Note):
            tx.put(NOTES, (record.text,), (tx.get(NOTES, (record.text,)) or 0) + 1)
        else:
            super().replay(record, tx)


@contextmanager
def next_build() -> Iterator[FeatureLevels]:
    """Cluster shards that are made meanwhile are the next build's. The levels to give their brokers."""
    with mock.patch.object(cluster_shard, "ClusterMachine", NextClusterMachine):
        yield NEXT_LEVELS
