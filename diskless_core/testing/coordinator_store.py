"""Contract suite of the noun `coordinator_store`: what every store plugin has to pass.

Subclass `CoordinatorStoreContract` in a test module and give it the fixture `make_store`; needs pytest and hypothesis.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import product

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from diskless_core.plugin.coordinator_store import (
    Column,
    ColumnType,
    CoordinatorStore,
    Key,
    Row,
    ShardStore,
    TableChanges,
    TableSpec,
)
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import DISKLESS, SHARD_KINDS
from diskless_core.testing.coordinator_store_crashes import MakeStore, StoreCrashContract
from diskless_core.testing.coordinator_store_failures import StoreFailureContract
from diskless_core.testing.coordinator_store_model import store_machine

SHARD = DISKLESS.shard(0)
OTHER_SHARD = DISKLESS.shard(1)

PAIRS = TableSpec(
    name="pairs",
    key=(Column("topic", ColumnType.BLOB), Column("offset", ColumnType.INTEGER)),
    values=(Column("order", ColumnType.TEXT), Column("data", ColumnType.BLOB), Column("count", ColumnType.INTEGER)),
)
"""A key of two columns, values of every type, and column names that SQL would like for itself."""

NAMES = TableSpec(name="names", key=(Column("name", ColumnType.TEXT),), values=(Column("number", ColumnType.INTEGER),))
KEYS_ONLY = TableSpec(
    name="keys_only",
    key=(Column("a", ColumnType.INTEGER), Column("b", ColumnType.TEXT), Column("c", ColumnType.BLOB)),
    values=(),
)
TABLES = (PAIRS, NAMES, KEYS_ONLY)

INTEGERS = (-(2**63), -(2**63) + 1, -(2**40), -1, 0, 1, 255, 256, 2**31, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1)
TEXTS = ("", "A", "Z", "a", "a\x00", "a\x00b", "ab", "z", "é", "你", "\ufffd", "\U0001f600")
BLOBS = (b"", b"\x00", b"\x00\x00", b"\x00\x01", b"\x01", b"a", b"a\x00", b"ab", b"\x7f", b"\x80", b"\xff", b"\xff\xff")

LONG_KEY_BYTES = 32 * 1024


def puts(*rows: Row) -> TableChanges:
    return TableChanges(put=list(rows))


def deletes(*keys: Key) -> TableChanges:
    return TableChanges(delete=list(keys))


def pair(topic: bytes, offset: int, *, text: str | None = "t", data: bytes | None = b"d", count: int | None = 1) -> Row:
    return (topic, offset, text, data, count)


class CoordinatorStoreContract(StoreCrashContract, StoreFailureContract):
    """A store plugin passes if a subclass with `make_store` and `StoreCrashContract`'s attributes overridden does.

    `make_unopenable_store` of `StoreFailureContract` may be given.
    """

    @pytest.fixture
    def store(self, make_store: MakeStore) -> Iterator[ShardStore]:
        with closing(make_store().open(SHARD, TABLES)) as store:
            yield store

    def test_a_new_store_is_empty_and_reaches_offset_zero(self, store: ShardStore) -> None:
        assert store.applied_offset() == 0
        assert [store.scan(spec.name) for spec in TABLES] == [[], [], []]
        assert store.get("names", ("absent",)) is None

    def test_a_row_that_was_put_is_found_by_its_whole_key_only(self, store: ShardStore) -> None:
        store.write({"pairs": puts(pair(b"t", 1, count=7), pair(b"t", 2, count=8))}, 1)
        assert store.get("pairs", (b"t", 2)) == pair(b"t", 2, count=8)
        assert store.get("pairs", (b"t", 3)) is None
        assert store.get("pairs", (b"T", 2)) is None

    def test_a_row_comes_back_with_all_columns_in_declared_order_and_with_their_types(self, store: ShardStore) -> None:
        row: Row = (b"\x00topic\xff", -5, "grüße \U0001f600", bytes(range(256)), -(2**63))
        store.write({"pairs": puts(row)}, 1)
        found = store.get("pairs", (b"\x00topic\xff", -5))
        assert found == row
        assert isinstance(found, tuple)
        assert [type(value) for value in found or ()] == [bytes, int, str, bytes, int]
        assert store.scan("pairs") == [row]

    def test_none_is_kept_apart_from_empty_and_zero(self, store: ShardStore) -> None:
        rows = [pair(b"n", 0, text=None, data=None, count=None), pair(b"n", 1, text="", data=b"", count=0)]
        store.write({"pairs": puts(*rows)}, 1)
        assert store.scan("pairs") == rows

    def test_integers_keep_all_of_their_64_bits(self, store: ShardStore) -> None:
        rows = [pair(b"i", number, count=number) for number in INTEGERS]
        store.write({"pairs": puts(*rows)}, 2**63 - 1)
        assert store.scan("pairs") == rows
        assert store.applied_offset() == 2**63 - 1

    def test_large_values_are_kept_whole(self, store: ShardStore) -> None:
        row = pair(b"large", 0, data=bytes(range(256)) * 4096, text="grüße\x00" * 100_000)
        store.write({"pairs": puts(row)}, 1)
        assert store.get("pairs", (b"large", 0)) == row
        assert store.scan("pairs") == [row]
        with store.snapshot() as view:
            assert (view.get("pairs", (b"large", 0)), view.scan("pairs")) == (row, [row])

    def test_long_keys_are_kept_whole_and_in_order(self, store: ShardStore) -> None:
        """A key may hold what a client sent, such as the id of a group: 32,767 bytes, or several such."""
        text, blob = "g" * LONG_KEY_BYTES, b"\xff" * LONG_KEY_BYTES
        keys: list[Key] = [
            (0, "", b"\x00" * LONG_KEY_BYTES),
            (0, "", b"\x00" * LONG_KEY_BYTES + b"\x01"),
            (0, "", blob),
        ]
        keys += [(0, text, b""), (0, text, b"b"), (0, text, blob[:-1] + b"a"), (0, text, blob), (0, text + "z", b"")]
        store.write({"keys_only": puts(*keys[::-1])}, 1)
        with store.snapshot() as snapshot:
            for view in (store, snapshot):
                assert view.scan("keys_only") == keys
                assert [view.get("keys_only", key) for key in keys] == keys
                assert view.get("keys_only", (0, text, blob[:-1])) is None
                assert view.scan("keys_only", (0, text), (0, text, blob)) == keys[3:6]
                assert view.scan("keys_only", keys[1], reverse=True, limit=2) == keys[:-3:-1]
            store.write({"keys_only": deletes(keys[5])}, 2)
        assert store.scan("keys_only", (0, text)) == [keys[3], keys[4], *keys[6:]]

    def test_a_put_replaces_the_row_of_the_same_key_and_no_other(self, store: ShardStore) -> None:
        store.write({"names": puts(("a", 1), ("b", 1))}, 1)
        store.write({"names": puts(("a", None))}, 2)
        assert store.scan("names") == [("a", None), ("b", 1)]

    def test_a_delete_removes_that_row_and_no_other(self, store: ShardStore) -> None:
        store.write({"pairs": puts(*(pair(b"t", offset) for offset in range(3)))}, 1)
        store.write({"pairs": deletes((b"t", 1))}, 2)
        assert [row[1] for row in store.scan("pairs")] == [0, 2]
        assert store.get("pairs", (b"t", 1)) is None

    def test_deleting_an_absent_key_is_no_error(self, store: ShardStore) -> None:
        store.write({"names": puts(("a", 1))}, 1)
        store.write({"names": deletes(("absent",))}, 2)
        assert store.scan("names") == [("a", 1)]
        assert store.applied_offset() == 2

    def test_one_write_changes_several_tables_and_mixes_puts_and_deletes(self, store: ShardStore) -> None:
        store.write({"names": puts(("old", 1)), "keys_only": puts((1, "x", b""))}, 1)
        store.write(
            {
                "names": TableChanges(put=[("new", 2)], delete=[("old",)]),
                "keys_only": deletes((1, "x", b"")),
                "pairs": puts(pair(b"p", 0)),
            },
            2,
        )
        assert store.scan("names") == [("new", 2)]
        assert store.scan("keys_only") == []
        assert store.scan("pairs") == [pair(b"p", 0)]

    def test_every_write_moves_the_applied_offset_even_an_empty_one(self, store: ShardStore) -> None:
        store.write({"names": puts(("a", 1))}, 7)
        assert store.applied_offset() == 7
        store.write({}, 2**40)
        assert store.applied_offset() == 2**40

    def test_a_table_of_key_columns_only_works(self, store: ShardStore) -> None:
        rows: list[Row] = [(1, "b", b"2"), (1, "a", b"1")]
        store.write({"keys_only": puts(*rows)}, 1)
        store.write({"keys_only": puts(rows[0])}, 2)
        assert store.scan("keys_only") == sorted(rows)
        assert store.get("keys_only", (1, "b", b"2")) == (1, "b", b"2")

    def test_a_write_of_many_rows_works(self, store: ShardStore) -> None:
        rows = [(f"name-{number:05}", number) for number in range(5000)]
        store.write({"names": puts(*reversed(rows))}, 1)
        assert store.scan("names") == rows

    def test_tables_do_not_mix(self, store: ShardStore) -> None:
        store.write({"names": puts(("a", 1)), "keys_only": puts((1, "a", b"a"))}, 1)
        assert store.scan("names") == [("a", 1)]
        assert store.scan("pairs") == []

    @pytest.mark.parametrize(
        ("table", "keys"),
        [
            ("pairs", [(b"t", offset) for offset in INTEGERS]),
            ("names", [(text,) for text in TEXTS]),
            ("pairs", [(blob, 0) for blob in BLOBS]),
        ],
        ids=["signed integers", "text by its UTF-8 bytes", "blobs by their bytes"],
    )
    def test_keys_are_ordered(self, store: ShardStore, table: str, keys: list[Key]) -> None:
        rows = [key + (None,) * (3 if table == "pairs" else 1) for key in keys]
        store.write({table: puts(*rows[::2], *rows[1::2][::-1])}, 1)
        assert store.scan(table) == rows
        assert store.scan(table, reverse=True) == rows[::-1]
        for position, key in enumerate(keys):
            assert store.get(table, key) == rows[position]
            assert store.scan(table, start=key) == rows[position:]
            assert store.scan(table, end=key) == rows[:position]

    def test_a_composite_key_is_ordered_column_by_column(self, store: ShardStore) -> None:
        keys = sorted(product((-1, 0, 256), ("", "a", "aa", "b"), (b"", b"\x00", b"\xff")))
        store.write({"keys_only": puts(*keys[::-1])}, 1)
        assert store.scan("keys_only") == keys

    def test_scan_bounds_compare_as_tuples_do(self, store: ShardStore) -> None:
        keys = sorted(product((-1, 0, 1), ("", "a", "b"), (b"", b"\x00", b"\xff")))
        store.write({"keys_only": puts(*keys)}, 1)
        bounds: list[Key] = [(), (-2,), (0,), (1,), (2,), (0, ""), (0, "a"), (0, "aa"), (0, "c")]
        bounds += [(0, "a", b""), (0, "a", b"\x01"), (1, "b", b"\xff"), (1, "b", b"\xff\xff")]
        for start, end in product(bounds, [None, *bounds]):
            expected = [key for key in keys if start <= key and (end is None or key < end)]
            assert store.scan("keys_only", start, end) == expected, (start, end)
            assert store.scan("keys_only", start, end, reverse=True) == expected[::-1], (start, end)

    def test_limit_gives_the_first_rows_or_with_reverse_the_last_ones_backwards(self, store: ShardStore) -> None:
        rows = [pair(b"t", offset) for offset in range(10)]
        store.write({"pairs": puts(pair(b"s", 99), *rows, pair(b"u", 0))}, 1)
        start, end = (b"t",), (b"u",)
        for limit in (0, 1, 3, 10, 11):
            assert store.scan("pairs", start, end, limit=limit) == rows[:limit]
            assert store.scan("pairs", start, end, limit=limit, reverse=True) == rows[::-1][:limit]
        assert store.scan("pairs", (b"t", 4), (b"t", 8), limit=2, reverse=True) == [rows[7], rows[6]]

    def test_a_snapshot_shows_what_was_there_when_it_was_taken(self, store: ShardStore) -> None:
        store.write({"names": puts(("a", 1), ("b", 1)), "pairs": puts(pair(b"p", 0))}, 5)
        snapshot = store.snapshot()
        store.write({"names": TableChanges(put=[("a", 2), ("c", 2)], delete=[("b",)])}, 6)
        with snapshot as view:
            store.write({"pairs": deletes((b"p", 0))}, 7)
            assert view.applied_offset() == 5
            assert view.scan("names") == [("a", 1), ("b", 1)]
            assert view.get("names", ("c",)) is None
            assert view.get("pairs", (b"p", 0)) == pair(b"p", 0)
        assert store.scan("names") == [("a", 2), ("c", 2)]
        assert store.applied_offset() == 7

    def test_a_snapshot_outlives_a_clear_and_two_may_exist(self, store: ShardStore) -> None:
        store.write({"names": puts(("a", 1))}, 1)
        with store.snapshot() as first:
            store.write({"names": puts(("b", 2))}, 2)
            with store.snapshot() as second:
                store.clear()
                assert second.scan("names") == [("a", 1), ("b", 2)]
            assert first.scan("names") == [("a", 1)]
            assert first.applied_offset() == 1

    def test_a_snapshot_is_read_by_another_thread_while_writes_go_on(self, store: ShardStore) -> None:
        rows: list[Row] = [(f"{number:04}", 0) for number in range(500)]
        store.write({"names": puts(*rows)}, 1)
        wrote = threading.Event()

        def read_all() -> list[tuple[int, list[Row]]]:
            with snapshot as view:
                seen = [(view.applied_offset(), view.scan("names"))]
                wrote.wait(30)
                return [*seen, (view.applied_offset(), view.scan("names"))]

        snapshot = store.snapshot()
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read_all)
            for offset in range(2, 30):
                store.write({"names": puts(*((name, offset) for name, _ in rows))}, offset)
            wrote.set()
            assert reading.result(30) == [(1, rows)] * 2

    def test_a_snapshot_of_an_empty_store_stays_empty(self, store: ShardStore) -> None:
        with store.snapshot() as view:
            store.write({"names": puts(("a", 1))}, 1)
            assert view.applied_offset() == 0
            assert view.scan("names") == []

    def test_clear_drops_all_rows_and_the_applied_offset_and_the_store_goes_on(self, store: ShardStore) -> None:
        store.write({"names": puts(("a", 1)), "pairs": puts(pair(b"p", 0))}, 9)
        store.clear()
        assert store.applied_offset() == 0
        assert [store.scan(spec.name) for spec in TABLES] == [[], [], []]
        store.write({"names": puts(("b", 2))}, 3)
        assert store.scan("names") == [("b", 2)]
        assert store.applied_offset() == 3

    def test_close_may_be_called_twice(self, make_store: MakeStore) -> None:
        store = make_store().open(SHARD, TABLES)
        store.close()
        store.close()

    def test_shards_know_nothing_of_each_other(self, make_store: MakeStore) -> None:
        backend = make_store()
        with closing(backend.open(SHARD, TABLES)) as one, closing(backend.open(OTHER_SHARD, TABLES)) as other:
            one.write({"names": puts(("one", 1))}, 1)
            other.write({"names": puts(("other", 2))}, 2)
            one.clear()
            assert other.scan("names") == [("other", 2)]
            assert (one.applied_offset(), other.applied_offset()) == (0, 2)

    def test_shards_of_one_index_and_different_kinds_do_not_mix(self, make_store: MakeStore) -> None:
        backend = make_store()
        with self.opened(backend, *(kind.shard(0) for kind in SHARD_KINDS)) as stores:
            for number, store in enumerate(stores):
                store.write({"names": puts(("number", number))}, number)
            assert [store.scan("names") for store in stores] == [[("number", n)] for n in range(len(stores))]

    def test_different_shards_are_written_from_different_threads_at_once(self, make_store: MakeStore) -> None:
        backend, all_there = make_store(), threading.Barrier(4, timeout=30)

        def fill(index: int) -> list[Row]:
            all_there.wait()
            with closing(backend.open(DISKLESS.shard(index), TABLES)) as store:
                for offset in range(1, 30):
                    store.write({"names": puts((f"{offset:02}", index))}, offset)
                return store.scan("names")

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(fill, range(4)))
        assert found == [[(f"{offset:02}", index) for offset in range(1, 30)] for index in range(4)]

    def test_content_and_offset_are_there_after_reopening(self, make_store: MakeStore) -> None:
        self.require_reopen()
        rows = [pair(b"t", offset, data=None) for offset in range(300)]
        with closing(make_store().open(SHARD, TABLES)) as store:
            store.write({"pairs": puts(*rows), "names": puts(("gone", 1))}, 41)
            store.write({"names": deletes(("gone",))}, 42)
        with closing(make_store().open(SHARD, TABLES)) as store:
            assert store.applied_offset() == 42
            assert store.scan("pairs") == rows
            assert store.scan("names") == []

    def test_a_cleared_store_is_empty_after_reopening(self, make_store: MakeStore) -> None:
        with closing(make_store().open(SHARD, TABLES)) as store:
            store.write({"names": puts(("a", 1))}, 1)
            store.clear()
        with closing(make_store().open(SHARD, TABLES)) as store:
            assert store.applied_offset() == 0
            assert store.scan("names") == []

    def test_the_order_in_which_tables_are_declared_does_not_matter(self, make_store: MakeStore) -> None:
        self.require_reopen()
        with closing(make_store().open(SHARD, TABLES)) as store:
            store.write({"names": puts(("a", 1))}, 1)
        with closing(make_store().open(SHARD, TABLES[::-1])) as store:
            assert store.scan("names") == [("a", 1)]

    @pytest.mark.parametrize(
        "changed",
        [
            [table for table in TABLES if table is not NAMES],
            (PAIRS, KEYS_ONLY, TableSpec(name="names", key=NAMES.key, values=())),
            (PAIRS, KEYS_ONLY, TableSpec(name="names", key=(Column("name", ColumnType.BLOB),), values=NAMES.values)),
            (PAIRS, KEYS_ONLY, TableSpec(name="names", key=NAMES.key + NAMES.values, values=())),
            (PAIRS, KEYS_ONLY, TableSpec(name="names", key=(Column("title", ColumnType.TEXT),), values=NAMES.values)),
        ],
        ids=["table with rows gone", "column gone", "other type", "value became key", "column renamed"],
    )
    def test_a_store_with_other_tables_starts_empty_and_works(
        self, make_store: MakeStore, changed: Sequence[TableSpec]
    ) -> None:
        with closing(make_store().open(SHARD, TABLES)) as store:
            store.write({"names": puts(("a", 1)), "pairs": puts(pair(b"p", 0))}, 8)
        with closing(make_store().open(SHARD, changed)) as store:
            assert store.applied_offset() == 0
            assert all(store.scan(spec.name) == [] for spec in changed)
            store.write({"pairs": puts(pair(b"p", 1))}, 1)
            assert store.scan("pairs") == [pair(b"p", 1)]

    def test_tables_without_rows_come_and_go_without_the_others_being_lost(self, make_store: MakeStore) -> None:
        self.require_reopen()
        more = TableSpec(name="more", key=NAMES.key, values=())
        with closing(make_store().open(SHARD, TABLES)) as store:
            store.write({"names": puts(("a", 1))}, 8)
        with closing(make_store().open(SHARD, (*TABLES, more))) as store:
            assert (store.applied_offset(), store.scan("names"), store.scan("more")) == (8, [("a", 1)], [])
        with closing(make_store().open(SHARD, TABLES)) as store:
            assert (store.applied_offset(), store.scan("names")) == (8, [("a", 1)])
        with closing(make_store().open(SHARD, (*TABLES, more))) as store:
            store.write({"more": puts(("b",))}, 9)
        with closing(make_store().open(SHARD, (*TABLES, more))) as store:
            assert (store.applied_offset(), store.scan("more")) == (9, [("b",)])

    def test_it_behaves_as_a_sorted_dictionary_does(self, make_store: MakeStore) -> None:
        few = settings(
            max_examples=20,
            stateful_step_count=15,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(store_machine(make_store, keeps=self.survives_reopen), settings=few)

    @staticmethod
    @contextmanager
    def opened(backend: CoordinatorStore, *shards: ShardId) -> Iterator[list[ShardStore]]:
        stores = [backend.open(shard, TABLES) for shard in shards]
        try:
            yield stores
        finally:
            for store in stores:
                store.close()
