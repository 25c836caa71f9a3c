"""A state machine that compares a store with a dictionary, for Hypothesis to drive. Part of the contract suite."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from diskless_core.plugin.coordinator_store import (
    Column,
    ColumnType,
    CoordinatorStore,
    Key,
    Row,
    StoreView,
    TableChanges,
    TableSpec,
)
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import DISKLESS

TABLE = TableSpec(
    name="modelled",
    key=(Column("name", ColumnType.TEXT), Column("number", ColumnType.INTEGER)),
    values=(Column("data", ColumnType.BLOB),),
)

FIRST_SHARD = 1000
"""Shards from this index on belong to the state machine: each run takes a fresh one."""

_names = st.sampled_from(["", "a", "a\x00", "ab", "é", "\U0001f600"])
_numbers = st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])
_keys = st.tuples(_names, _numbers)
_bounds = st.one_of(st.just(()), st.tuples(_names), _keys)
_data = st.none() | st.binary(max_size=4)


class StoreMachine(RuleBasedStateMachine):
    """Does to a store and to a dictionary the same."""

    def __init__(self, make_store: Callable[[], CoordinatorStore], shard: ShardId, *, keeps: bool) -> None:
        super().__init__()
        self.make_store = make_store
        self.shard = shard
        self.keeps = keeps
        self.rows: dict[Key, Row] = {}
        self.applied_offset = 0
        self.snapshot: tuple[AbstractContextManager[StoreView], list[Row], int] | None = None

    @initialize()
    def open(self) -> None:
        self.store = self.make_store().open(self.shard, (TABLE,))

    @rule(puts=st.dictionaries(_keys, _data, max_size=6), deletes=st.sets(_keys, max_size=4))
    def write(self, puts: dict[tuple[str, int], bytes | None], deletes: set[tuple[str, int]]) -> None:
        changes = TableChanges(
            put=[(*key, data) for key, data in puts.items()], delete=[key for key in deletes if key not in puts]
        )
        self.applied_offset += 1
        self.store.write({TABLE.name: changes}, self.applied_offset)
        for key in changes.delete:
            self.rows.pop(key, None)
        self.rows |= {row[:2]: row for row in changes.put}

    @rule(key=_keys)
    def get(self, key: Key) -> None:
        assert self.store.get(TABLE.name, key) == self.rows.get(key)

    @rule(start=_bounds, end=st.none() | _bounds, limit=st.none() | st.integers(0, 5), reverse=st.booleans())
    def scan(self, start: Key, end: Key | None, limit: int | None, reverse: bool) -> None:
        found = self.store.scan(TABLE.name, start, end, limit=limit, reverse=reverse)
        expected = [row for row in self.sorted_rows() if start <= row[:2] and (end is None or row[:2] < end)]
        assert found == (expected[::-1] if reverse else expected)[:limit]

    @rule()
    def clear(self) -> None:
        self.store.clear()
        self.rows.clear()
        self.applied_offset = 0

    @precondition(lambda self: self.keeps and self.snapshot is None)
    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.open()

    @precondition(lambda self: self.snapshot is None)
    @rule()
    def take_snapshot(self) -> None:
        self.snapshot = (self.store.snapshot(), self.sorted_rows(), self.applied_offset)

    @precondition(lambda self: self.snapshot is not None)
    @rule()
    def read_snapshot(self) -> None:
        assert self.snapshot is not None
        (manager, rows, applied_offset), self.snapshot = self.snapshot, None
        with manager as view:
            assert view.applied_offset() == applied_offset
            assert view.scan(TABLE.name) == rows

    @invariant()
    def reaches_the_offset_of_the_last_write(self) -> None:
        assert self.store.applied_offset() == self.applied_offset

    def teardown(self) -> None:
        if self.snapshot is not None:
            self.read_snapshot()
        self.store.close()

    def sorted_rows(self) -> list[Row]:
        return [self.rows[key] for key in sorted(self.rows)]


def store_machine(make_store: Callable[[], CoordinatorStore], *, keeps: bool) -> type[RuleBasedStateMachine]:
    """A state machine over `make_store`; `keeps` says whether a closed store keeps its content."""
    shards = count(FIRST_SHARD)

    class OwnShardMachine(StoreMachine):
        def __init__(self) -> None:
            super().__init__(make_store, DISKLESS.shard(next(shards)), keeps=keeps)

    return OwnShardMachine
