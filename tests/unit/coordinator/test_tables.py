"""State in layers: what is pending, what is committed, what the store has not got yet."""

from __future__ import annotations

import pytest

from diskless_core.coordinator.tables import State, Table, Transaction
from diskless_core.plugin.coordinator_store import Column, ColumnType, TableChanges, TableSpec


def table(name: str, *, resident: bool) -> Table[int]:
    return Table(
        spec=TableSpec(
            name=name,
            key=(Column("kind", ColumnType.TEXT), Column("id", ColumnType.INTEGER)),
            values=(Column("value", ColumnType.INTEGER),),
        ),
        encode=lambda value: (value,),
        decode=lambda row: row[2],
        resident=resident,
    )


HOME = table("home", resident=True)
AWAY = table("away", resident=False)
A, B = ("a", 1), ("b", 1)


@pytest.fixture
def state() -> State:
    return State((HOME, AWAY))


def test_a_proposal_is_seen_by_commands_and_not_by_clients(state: State) -> None:
    state.propose(0, {HOME: {A: 1}})
    assert (state.get(HOME, A), state.committed(HOME, A)) == (1, None)
    state.commit({HOME: {A: 1}}, 0)
    assert (state.get(HOME, A), state.committed(HOME, A)) == (1, 1)


def test_a_later_proposal_stays_visible_when_an_earlier_one_commits(state: State) -> None:
    state.propose(0, {HOME: {A: 1}})
    state.propose(1, {HOME: {A: 2, B: 3}})
    state.commit({HOME: {A: 1}}, 0)
    assert (state.get(HOME, A), state.committed(HOME, A)) == (2, 1)
    state.forget_pending()
    assert (state.get(HOME, A), state.get(HOME, B)) == (1, None)


def test_a_proposed_deletion_hides_what_is_committed(state: State) -> None:
    state.commit({HOME: {A: 1, B: 2}})
    state.propose(0, {HOME: {A: None}})
    assert state.get(HOME, A) is None
    assert list(state.keys(HOME, ())) == [B]
    assert dict(state.rows(HOME)) == {A: 1, B: 2}
    state.commit({HOME: {A: None}}, 0)
    assert dict(state.rows(HOME)) == {B: 2}


def test_keys_are_found_by_their_beginning(state: State) -> None:
    state.commit({HOME: {A: 1, B: 2}})
    state.propose(0, {HOME: {("a", 2): 3}})
    tx = Transaction(state)
    tx.put(HOME, ("a", 3), 4)
    tx.delete(HOME, A)
    assert sorted(tx.keys(HOME, ("a",))) == [("a", 2), ("a", 3)]
    for key in tx.keys(HOME, ()):
        tx.delete(HOME, key)
    assert list(tx.keys(HOME, ())) == []


def test_rows_whose_values_are_one_object_are_encoded_once_and_stored_each() -> None:
    encoded = list[tuple[int, ...]]()

    def encode(value: tuple[int, ...]) -> tuple[int, ...]:
        encoded.append(value)
        return value

    many: Table[tuple[int, ...]] = Table(spec=HOME.spec, encode=encode, decode=lambda row: row[2:])
    state = State((many,))
    alike = (7,)
    state.commit({many: {A: alike, B: alike, ("c", 1): None, ("d", 1): alike, ("e", 1): (8,), ("f", 1): alike}})
    changes = state.close_page(1).changes()["home"]
    assert changes.put == [(*A, 7), (*B, 7), ("d", 1, 7), ("e", 1, 8), ("f", 1, 7)]
    assert changes.delete == [("c", 1)]
    assert encoded == [(7,), (8,), (7,)]


def test_what_is_flushed_stays_in_memory_until_the_store_has_it(state: State) -> None:
    state.commit({AWAY: {A: 1}, HOME: {B: 2}})
    assert state.oldest_page() is None
    page = state.close_page(7)
    assert state.oldest_page() is page
    assert page.applied_offset == 7
    assert page.changes() == {"home": TableChanges(put=[(*B, 2)]), "away": TableChanges(put=[(*A, 1)])}
    assert state.unstored_rows == 2
    assert state.in_memory(AWAY, A) == (True, 1)
    state.page_stored()
    assert state.unstored_rows == 0
    assert state.in_memory(AWAY, A) == (False, None)
    assert state.committed(HOME, B) == 2
    assert state.close_page(7).changes() == {}


def test_pages_are_handed_out_one_after_the_other_and_again_until_the_store_has_them(state: State) -> None:
    state.commit({AWAY: {A: 1, B: 1}}, size_bytes=10)
    first = state.close_page(1)
    state.commit({AWAY: {A: None, ("c", 1): 3}}, size_bytes=5)
    second = state.close_page(2)
    state.commit({AWAY: {B: 4}}, size_bytes=1)
    assert (state.unstored_rows, state.unstored_bytes) == (5, 16)
    assert state.in_memory(AWAY, A) == (True, None)
    assert state.in_memory(AWAY, B) == (True, 4)
    assert state.oldest_page() is state.oldest_page() is first
    assert first.changes() == {"away": TableChanges(put=[(*A, 1), (*B, 1)])}
    state.page_stored()
    assert state.oldest_page() is second
    assert second.changes() == {"away": TableChanges(put=[("c", 1, 3)], delete=[A])}
    state.page_stored()
    assert state.in_memory(AWAY, A) == (False, None)
    assert state.in_memory(AWAY, B) == (True, 4)
    assert (state.unstored_rows, state.unstored_bytes) == (1, 1)
    assert state.oldest_page() is None


def test_memory_knows_of_a_row_what_the_store_may_not(state: State) -> None:
    assert not state.knows(AWAY, A)
    state.propose(0, {AWAY: {A: None}})
    assert state.knows(AWAY, A)
    state.forget_pending()
    state.commit({AWAY: {A: None}})
    assert state.knows(AWAY, A)
    state.close_page(1)
    state.page_stored()
    assert not state.knows(AWAY, A)


def test_rows_are_counted_once_however_often_they_change(state: State) -> None:
    for value in range(3):
        state.commit({HOME: {A: value}})
    assert state.unstored_rows == 1
