"""Deals the rows of some shards out to another number of shards, while they move from one log to another. Pure.

The states in which the old shards ended are dealt out, so it comes to the same however often it is done.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import ACCEPTANCE
from diskless_core.coordinator.feature_level import FEATURE_LEVELS
from diskless_core.coordinator.log_identity import LOG_NAME_KEY, LOG_NAMES, LogName
from diskless_core.coordinator.state_machine import StateMachine
from diskless_core.plugin.coordinator_store import Key, Row, StoreView, TableSpec
from diskless_core.plugin.shard import ShardId

Rows = Mapping[str, Sequence[Row]]
"""Of all tables of a shard, by the table's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrouping:
    """How shards become others.

    Attributes:
        old: all that there are on the old log.
        new: those that take their place, by index.
        machine: of all of them.
        place: to which of the new ones a row belongs, by the first column of its key.
    """

    old: Sequence[ShardId]
    new: Sequence[ShardId]
    machine: StateMachine[Any]
    place: Callable[[Any], int]

    @property
    def tables(self) -> Sequence[TableSpec]:
        """All tables of each of the shards."""
        return [table.spec for table in entries.tables_of(self.machine)]

    def dealt(self, states: Sequence[Rows]) -> Sequence[Rows]:
        """The rows of each new shard, but for its log's name. Each is written at the highest level of the old ones."""
        levels = max((list(state[FEATURE_LEVELS.name]) for state in states), default=[])
        dealt: list[dict[str, list[Row]]] = [{FEATURE_LEVELS.name: list(levels)} for _ in self.new]
        for table in self.machine.tables:
            for state in states:
                for row in state.get(table.name, ()):
                    dealt[self.place(row[0])].setdefault(table.name, []).append(row)
        return dealt


class RowsView(StoreView):
    """Rows in memory, as those with which a shard begins on a log."""

    def __init__(self, tables: Sequence[TableSpec], rows: Rows, name: LogName) -> None:
        self._widths = {table.name: len(table.key) for table in tables}
        self._rows: dict[str, list[Row]] = {table.name: [] for table in tables}
        for table, found in rows.items():
            self._rows[table] = sorted(found, key=partial(_key, self._widths[table]))
        self._rows[ACCEPTANCE.name] = []
        self._rows[LOG_NAMES.name] = [(*LOG_NAME_KEY, *LOG_NAMES.encode(name))]

    def applied_offset(self) -> int:
        return 0

    def get(self, table: str, key: Key) -> Row | None:
        found = self.scan(table, key, limit=1)
        return found[0] if found and found[0][: len(key)] == key else None

    def scan(
        self,
        table: str,
        start: Key = (),
        end: Key | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        rows, key_of = self._rows[table], partial(_key, self._widths[table])
        first = bisect_left(rows, start, key=key_of)
        last = bisect_left(rows, end, key=key_of) if end is not None else len(rows)
        found = rows[first:last]
        return (found[::-1] if reverse else found)[:limit]


def _key(width: int, row: Row) -> Key:
    return row[:width]
