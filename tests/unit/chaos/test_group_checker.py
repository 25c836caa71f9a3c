"""The checker of a chaos run finds every broken promise of a consumer group, and nothing in a history that is right."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from tests.chaos.group_checker import group_violations
from tests.chaos.history import Commit, Final, Found, GroupHistory, GroupRead, Place, Polled, Sent

RECORDS = 12


def a_right_history() -> tuple[GroupHistory, Final]:
    """A member reads to 6 and commits 4; another one goes on there, and to the end."""
    final = {0: [Polled(Place(0, offset), Sent(1, offset)) for offset in range(RECORDS)]}
    history = GroupHistory()
    for offset in range(6):
        history.reads.append(read("first", offset, at_s=float(offset), assigned_s=-1.0 if offset == 0 else None))
    history.commits.append(Commit(Place(0, 4), begun_s=6.0, ended_s=7.0))
    for offset in range(4, RECORDS):
        history.reads.append(read("second", offset, at_s=10.0 + offset, assigned_s=8.0 if offset == 4 else None))
    history.commits.append(Commit(Place(0, 8), begun_s=30.0, ended_s=inf))
    history.commits.append(Commit(Place(0, RECORDS), begun_s=31.0, ended_s=32.0))
    history.found.append(Found(Place(0, RECORDS), 33.0, 34.0, "the observer"))
    return history, final


def read(member: str, offset: int, *, at_s: float, assigned_s: float | None = None) -> GroupRead:
    return GroupRead(member, Place(0, offset), Sent(1, offset), at_s, assigned_s)


def violations(history: GroupHistory, final: Final) -> list[str]:
    return list(group_violations("g", history, final))


def test_a_right_history_breaks_no_promise() -> None:
    assert violations(*a_right_history()) == []


def test_a_commit_without_an_answer_may_be_found_or_not() -> None:
    history, final = a_right_history()
    history.found.append(Found(Place(0, 8), 33.0, 34.0, "the observer"))
    assert violations(history, final) == []


def test_while_a_commit_is_under_way_the_one_before_may_be_found() -> None:
    history, final = a_right_history()
    history.found.append(Found(Place(0, 4), 31.5, 31.6, "the observer"))
    assert violations(history, final) == []


def _skip(history: GroupHistory) -> None:
    del history.reads[8]


def _skip_at_an_assignment(history: GroupHistory) -> None:
    del history.reads[6:9]
    history.reads[6] = history.reads[6]._replace(assigned_s=8.0)


def _end_early(history: GroupHistory) -> None:
    history.reads.pop()


def _go_back(history: GroupHistory) -> None:
    history.reads.append(read("second", 5, at_s=50.0))


def _begin_again(history: GroupHistory) -> None:
    history.reads.append(read("third", 0, at_s=50.0, assigned_s=49.0))


def _lose_a_commit(history: GroupHistory) -> None:
    history.found.append(Found(Place(0, 4), 33.0, 34.0, "the observer"))


def _lose_all_commits(history: GroupHistory) -> None:
    history.found.append(Found(Place(0, 0), 33.0, 34.0, "the observer"))


def _find_what_nobody_committed(history: GroupHistory) -> None:
    history.found.append(Found(Place(0, 5), 8.0, 34.0, "the observer"))


def _find_what_comes_later(history: GroupHistory) -> None:
    history.found.append(Found(Place(0, RECORDS), 8.0, 9.0, "the observer"))


def _read_something_else(history: GroupHistory) -> None:
    history.reads[7] = history.reads[7]._replace(sent=Sent(2, 0))


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (_skip, "then at 0@7, with no assignment"),
        (_skip_at_an_assignment, "nobody read 0@6"),
        (_end_early, "never reads 0@11"),
        (_go_back, "then at 0@5, with no assignment"),
        (_begin_again, "finds 0@0 committed"),
        (_lose_a_commit, "finds 0@4 committed, after 12"),
        (_lose_all_commits, "finds 0@0 committed"),
        (_find_what_nobody_committed, "finds 0@5 committed"),
        (_find_what_comes_later, "finds 0@12 committed"),
        (_read_something_else, "record 0 of producer 2 at 0@5"),
    ],
)
def test_every_broken_promise_is_found(breaks: Callable[[GroupHistory], None], says: str) -> None:
    history, final = a_right_history()
    breaks(history)
    assert any(says in one for one in violations(history, final)), violations(history, final)
