"""Rows in groups are a dict of rows, and each group is found by what its keys have in common."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from diskless_core.coordinator.grouped_rows import GroupedRows

keys = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 3))
changes = st.lists(st.tuples(keys, st.one_of(st.none(), st.integers())))


@given(changes)
def test_they_are_a_dict_in_groups(changed: list[tuple[tuple[int, int, int], int | None]]) -> None:
    rows, expected = GroupedRows(), dict[tuple[int, int, int], int]()
    for key, value in changed:
        if value is None:
            assert rows.pop(key, None) == expected.pop(key, None)
        else:
            rows[key] = expected[key] = value
        assert (len(rows), rows.get(key), key in rows) == (len(expected), expected.get(key), key in expected)
    assert rows == expected
    groups = {group: dict(rows.group(group)) for group in rows.groups()}
    assert {(*group, last): value for group, members in groups.items() for last, value in members.items()} == expected
    assert all(groups.values())
    assert not rows.group((9, 9))
