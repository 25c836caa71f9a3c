"""What makes a kind of shard: its tables, its records, and how a record changes the tables. Pure.

(KIP-1164, "Local state machine".)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from diskless_core.coordinator.tables import Key, Table, Transaction, V
from diskless_core.protocol.record_batch import RecordData

RecordT = TypeVar("RecordT")


class StateMachine(Protocol[RecordT]):
    """A kind of shard. Pure: no I/O, no clock; the same records give the same tables on every node."""

    @property
    def tables(self) -> Sequence[Table[Any]]:
        """All tables of the kind, for the store to create."""
        ...

    def encode(self, record: RecordT) -> RecordData:
        """The record as key and value of a Kafka record."""
        ...

    def decode(self, data: RecordData) -> RecordT:
        """The record back.

        Raises:
            RecordFormatError: it is none of this kind's.
        """
        ...

    def replay(self, record: RecordT, tx: Transaction) -> None:
        """The only mutator: change the tables as the record says. It reads resident tables only and never refuses."""
        ...


@dataclass(slots=True)
class Command(Generic[RecordT]):
    """What an operation works with: the speculative state, the commit clock, and a place for its records."""

    machine: StateMachine[RecordT]
    tx: Transaction
    now_ms: int
    records: list[RecordT] = field(default_factory=list)

    def get(self, table: Table[V], key: Key) -> V | None:
        """The value that it will have when everything before this command has committed."""
        return self.tx.get(table, key)

    def emit(self, record: RecordT) -> None:
        """Write a record. What follows in the same command sees its effect."""
        self.records.append(record)
        self.machine.replay(record, self.tx)
