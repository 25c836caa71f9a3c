"""What makes a kind of shard: its tables, its records, and how a record changes the tables. Pure.

(KIP-1164, "Local state machine".)
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from diskless_core.coordinator.feature_level import FEATURE_LEVELS, LEVEL_KEY, encode_level, level_of
from diskless_core.coordinator.log_identity import (
    LOG_NAME_KEY,
    LOG_NAMES,
    LogName,
    encode_move,
    encode_name,
    log_name_of,
)
from diskless_core.coordinator.slices import Slices
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
            UnknownRecordError: only a later version of Diskless knows it.
            RecordFormatError: it is none of this kind's.
        """
        ...

    def replay(self, record: RecordT, tx: Transaction) -> None:
        """The only mutator: change the tables as the record says. It reads resident tables only and never refuses."""
        ...

    def replay_in_slices(self, record: RecordT, tx: Transaction) -> Slices[None]:
        """The same as `replay`, in slices. For kinds with large records; others inherit this one, which has one slice.

        Between slices `tx` has a part of the change, and nobody else sees it.
        """
        self.replay(record, tx)
        yield from ()


@dataclass(slots=True)
class Command(Generic[RecordT]):
    """What an operation works with: the speculative state, the commit clock, and a place for its records.

    Attributes:
        effects: what is done beside the shard's state, see `then`.
        common: records that stand in the logs of shards of every kind, before those of its own.
    """

    machine: StateMachine[RecordT]
    tx: Transaction
    now_ms: int
    records: list[RecordT] = field(default_factory=list)
    effects: list[Callable[[], None]] = field(default_factory=list)
    common: list[RecordData] = field(default_factory=list)

    @property
    def writes_something(self) -> bool:
        """Whether there is anything for the log."""
        return bool(self.records or self.common)

    @property
    def level(self) -> int:
        """The level of `diskless.version` that the shard is written at.

        A record that needs more than this is refused, so an operation that has two ways to say something looks here.
        """
        return level_of(self.tx)

    def raise_level(self, level: int) -> None:
        """Write at this level from this command on. Levels only grow: the caller has compared it with `level`."""
        self.common.append(encode_level(level))
        self.tx.put(FEATURE_LEVELS, LEVEL_KEY, level)

    def name_log(self, log_id: uuid.UUID) -> None:
        """Give the shard's log an id, unless it has one."""
        if log_name_of(self.tx) is None:
            name = LogName(log_id)
            self.common.append(encode_name(name))
            self.tx.put(LOG_NAMES, LOG_NAME_KEY, name)

    def end_log(self, successor: uuid.UUID, destination: str) -> None:
        """End the shard's log: it goes on where its successor is. Every replica stops at this command."""
        self.common.append(encode_move(successor, destination))

    def get(self, table: Table[V], key: Key) -> V | None:
        """The value that it will have when everything before this command has committed."""
        return self.tx.get(table, key)

    def emit(self, record: RecordT) -> None:
        """Write a record. What follows in the same command sees its effect."""
        self.records.append(record)
        self.machine.replay(record, self.tx)

    def then(self, effect: Callable[[], None]) -> None:
        """Call `effect` when the records are on their way, before the next command is judged.

        An operation changes nothing beside the shard's state by itself: its records may still be refused, where the
        store is too far behind, or the term or the caller's patience is over.
        """
        self.effects.append(effect)

    def emit_in_slices(self, record: RecordT) -> Slices[None]:
        """The same as `emit`, for a command that is judged in slices."""
        self.records.append(record)
        yield from self.machine.replay_in_slices(record, self.tx)
