"""The part of the `coordinator_store` contract about what a store refuses, and what a closed one leaves behind."""

from __future__ import annotations

from contextlib import closing

import pytest

from diskless_core.plugin.coordinator_store import (
    Column,
    ColumnType,
    CoordinatorStoreError,
    Row,
    TableChanges,
    TableSpec,
)
from diskless_core.shards import DISKLESS
from diskless_core.testing.coordinator_store_crashes import MakeStore
from diskless_core.testing.leaks import assert_leaves_nothing

SHARD = DISKLESS.shard(0)
FIRST = TableSpec(name="a_first", key=(Column("name", ColumnType.TEXT),), values=(Column("n", ColumnType.INTEGER),))
LAST = TableSpec(name="z_last", key=(Column("name", ColumnType.TEXT),), values=(Column("n", ColumnType.INTEGER),))
TABLES = (FIRST, LAST)

TOO_LARGE = (2**63, -(2**63) - 1, 2**64 + 1)


def _changes(first: Row, last: Row) -> dict[str, TableChanges]:
    return {FIRST.name: TableChanges(put=[first]), LAST.name: TableChanges(put=[last])}


class StoreFailureContract:
    """What may fail, and how; `CoordinatorStoreContract` includes it."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """As that of `StoreCrashContract`."""
        raise NotImplementedError("give this fixture in the subclass")

    @pytest.fixture
    def make_unopenable_store(self) -> MakeStore | None:
        """Makes the backend on a place that it cannot open, such as a folder that is a file; None skips the test."""
        return None

    @pytest.mark.parametrize("value", TOO_LARGE)
    def test_an_integer_of_more_than_64_bits_is_kept_whole_or_refused(self, make_store: MakeStore, value: int) -> None:
        """The core writes none. A store that took one and changed it would give another state than the log has."""
        with closing(make_store().open(SHARD, TABLES)) as store:
            try:
                store.write(_changes(("a", value), ("a", 1)), 1)
            except CoordinatorStoreError:
                assert store.scan(FIRST.name) == [], "a write that was refused has changed something"
            else:
                assert store.get(FIRST.name, ("a",)) == ("a", value), "an integer was changed without a word"

    def test_a_write_that_is_refused_changes_nothing_and_is_the_stores_own_error(self, make_store: MakeStore) -> None:
        """All changes and the applied offset move in one transaction, also where some of them cannot be done."""
        with closing(make_store().open(SHARD, TABLES)) as store:
            store.write(_changes(("a", 1), ("a", 1)), 1)
            try:
                store.write(_changes(("a", 2), ("a", 2**63)), 2)
            except CoordinatorStoreError:
                assert store.scan(FIRST.name) == [("a", 1)], "a table was changed by a write that was refused"
                assert store.scan(LAST.name) == [("a", 1)], "a table was changed by a write that was refused"
                assert store.applied_offset() == 1, "the applied offset was moved by a write that was refused"
            except Exception as error:
                raise AssertionError(f"a store raises CoordinatorStoreError, and not {error!r}") from error
            store.write(_changes(("a", 3), ("a", 3)), 3)
            assert (store.scan(FIRST.name), store.scan(LAST.name)) == ([("a", 3)], [("a", 3)])

    def test_a_read_shows_what_the_last_write_left(self, make_store: MakeStore) -> None:
        with closing(make_store().open(SHARD, TABLES)) as store:
            assert store.get(FIRST.name, ("a",)) is None
            for number in range(1, 6):
                store.write(_changes(("a", number), (f"{number}", number)), number)
                assert store.get(FIRST.name, ("a",)) == ("a", number), "a read shows an older row"
                assert len(store.scan(LAST.name)) == number, "a scan does not show the last write"
                assert store.applied_offset() == number, "the applied offset is that of an older write"
            store.write({FIRST.name: TableChanges(delete=[("a",)])}, 6)
            assert store.get(FIRST.name, ("a",)) is None, "a read shows a row that was deleted"

    def test_a_store_that_cannot_be_opened_says_so(self, make_unopenable_store: MakeStore | None) -> None:
        if make_unopenable_store is None:
            pytest.skip("no place is known that this store cannot open")
        with pytest.raises(Exception) as failed:  # noqa: PT011 - which one it is, is looked at
            make_unopenable_store().open(SHARD, TABLES).close()
        assert isinstance(failed.value, CoordinatorStoreError), f"the store's own error, and not {failed.value!r}"
        assert str(failed.value), "the message says what to do"

    def test_a_closed_store_leaves_no_thread_and_no_file_open(self, make_store: MakeStore) -> None:
        backend = make_store()

        def use() -> None:
            with closing(backend.open(SHARD, TABLES)) as store:
                store.write(_changes(("a", 1), ("a", 1)), 1)
                with store.snapshot() as view:
                    view.scan(FIRST.name)

        assert_leaves_nothing("a closed store leaves no thread and no file open", use)
