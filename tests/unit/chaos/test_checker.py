"""The checker of a chaos run finds every kind of broken promise, and nothing in a history that is right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.checker import longest_gap_s, violations
from tests.chaos.history import Acknowledged, Final, History, Place, Polled, Sent


def a_right_history() -> tuple[History, dict[int, list[Polled]]]:
    """Two producers, two partitions, one consumer that has read half of it."""
    final: dict[int, list[Polled]] = {0: [], 1: []}
    history = History()
    for number in range(20):
        for producer in (1, 2):
            partition = (number + producer) % 2
            one = Polled(Place(partition, len(final[partition])), Sent(producer, number))
            final[partition].append(one)
            history.acknowledge(Acknowledged(one.sent, one.place, at_s=float(number)))
    for records in final.values():
        for one in records[:10]:
            history.poll(7, one)
    return history, final


def test_a_right_history_breaks_no_promise() -> None:
    assert violations(*a_right_history()) == []


def test_a_record_without_an_acknowledgement_may_be_there() -> None:
    history, final = a_right_history()
    del history.acknowledged[-1]
    assert violations(history, final) == []


def test_a_client_may_not_know_where_its_record_is() -> None:
    history, final = a_right_history()
    history.acknowledged[5] = history.acknowledged[5]._replace(place=Place(1, -1))
    assert violations(history, final) == []


def _lose_the_last(_: History, final: dict[int, list[Polled]]) -> None:
    final[0].pop()


def _repeat(_: History, final: dict[int, list[Polled]]) -> None:
    final[0].append(Polled(Place(0, len(final[0])), final[0][3].sent))


def _swap(history: History, final: dict[int, list[Polled]]) -> None:
    history.acknowledged.clear()
    history.polled.clear()
    first, third = final[0][0], final[0][2]
    assert first.sent.producer == third.sent.producer
    final[0][0], final[0][2] = Polled(first.place, third.sent), Polled(third.place, first.sent)


def _leave_a_gap(history: History, final: dict[int, list[Polled]]) -> None:
    history.acknowledged.clear()
    history.polled.clear()
    del final[1][4]


def _acknowledge_one_place_twice(history: History, final: dict[int, list[Polled]]) -> None:
    history.acknowledge(Acknowledged(Sent(9, 9), final[0][0].place, 0.0))


def _acknowledge_what_is_nowhere(history: History, _: dict[int, list[Polled]]) -> None:
    history.acknowledge(Acknowledged(Sent(1, 20), Place(0, -1), 0.0))


def _answer_one_never(history: History, _: dict[int, list[Polled]]) -> None:
    del history.acknowledged[5]


def _begin_late(history: History, _: dict[int, list[Polled]]) -> None:
    del history.polled[7, 0][0]


def _skip(history: History, _: dict[int, list[Polled]]) -> None:
    del history.polled[7, 0][4]


def _go_back(history: History, _: dict[int, list[Polled]]) -> None:
    history.polled[7, 0].append(history.polled[7, 0][0])


def _read_what_is_not_there(history: History, _: dict[int, list[Polled]]) -> None:
    last = history.polled[7, 1][-1]
    history.polled[7, 1][-1] = Polled(last.place, Sent(1, 999))


def _complain(history: History, _: dict[int, list[Polled]]) -> None:
    history.complain("producer 1", "fatal error")


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (_lose_the_last, "where nothing is"),
        (_repeat, "is there 2 times"),
        (_swap, "comes after"),
        (_leave_a_gap, "where 4 should be"),
        (_acknowledge_one_place_twice, "was given to"),
        (_acknowledge_what_is_nowhere, "and is nowhere"),
        (_answer_one_never, "was never acknowledged"),
        (_begin_late, "began at 1"),
        (_skip, "was at"),
        (_go_back, "was at"),
        (_read_what_is_not_there, "consumer 7 of partition 1 read"),
        (_complain, "fatal error"),
    ],
)
def test_every_broken_promise_is_found(breaks: Callable[[History, dict[int, list[Polled]]], None], says: str) -> None:
    history, final = a_right_history()
    breaks(history, final)
    assert any(says in one for one in violations(history, final))


def test_what_is_found_is_cut_at_some_of_each_kind() -> None:
    history, _ = a_right_history()
    nothing: Final = {0: [], 1: []}
    assert 10 < len(violations(history, nothing)) < 30


def test_the_longest_time_without_an_acknowledgement_reaches_to_both_ends() -> None:
    history = History()
    for at_s in (3.0, 4.0, 9.0):
        history.acknowledge(Acknowledged(Sent(1, 1), Place(0, 0), at_s))
    assert longest_gap_s(history, since_s=2.0, until_s=10.0) == 5.0
    assert longest_gap_s(history, since_s=0.0, until_s=20.0) == 11.0
    assert longest_gap_s(History(), since_s=1.0, until_s=4.0) == 3.0


@pytest.mark.parametrize("padding", [0, 7])
def test_a_value_tells_who_sent_it(padding: int) -> None:
    assert Sent.of(Sent(3, 12).value(padding)) == Sent(3, 12)
