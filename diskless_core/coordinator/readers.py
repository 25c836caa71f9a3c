"""What a transaction is laid over: the committed state, or the speculative one completed from the store.

(KIP-1164, "How operations are performed", step 3.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from diskless_core.coordinator.tables import Key, State, Table, V


class Committed:
    """Reads as a follower's replay does: without what is pending."""

    def __init__(self, state: State) -> None:
        self._state = state

    def get(self, table: Table[V], key: Key) -> V | None:
        return self._state.committed(table, key)

    def keys(self, table: Table[Any], prefix: Key) -> Iterator[Key]:
        return iter(self._state.committed_keys(table, prefix))


class Prefetched:
    """The speculative state, completed by rows that were fetched from the store for this one command."""

    def __init__(self, state: State, rows: dict[tuple[Table[Any], Key], Any]) -> None:
        self._state = state
        self._rows = rows
        self._tables = {table for table, _ in rows}

    def get(self, table: Table[V], key: Key) -> V | None:
        if table in self._tables and (table, key) in self._rows and not self._state.knows(table, key):
            return cast("V | None", self._rows[table, key])
        return self._state.get(table, key)

    def keys(self, table: Table[Any], prefix: Key) -> Iterator[Key]:
        return self._state.keys(table, prefix)
