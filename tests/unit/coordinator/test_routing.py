"""Whom a node takes for the leader of a coordinator, and whom it asks when it does not know."""

from __future__ import annotations

from diskless_core.coordinator.routing import LeaderGuess, whom_to_ask_for_the_leader


def test_the_logs_hint_is_believed_until_a_peer_says_otherwise() -> None:
    guess = LeaderGuess()
    assert guess.node(None) is None
    assert guess.node(1) == 1
    guess.tell(2)
    assert guess.node(1) == 2


def test_a_new_hint_counts_more_than_what_a_peer_said_before() -> None:
    guess = LeaderGuess()
    guess.node(1)
    guess.tell(2)
    assert guess.node(3) == 3
    assert guess.node(1) == 1


def test_what_a_peer_said_is_dropped_with_the_first_doubt() -> None:
    guess = LeaderGuess()
    guess.node(1)
    guess.tell(2)
    guess.doubt(1)
    assert guess.node(1) == 2
    guess.doubt(2)
    assert guess.node(1) == 1


def test_who_refused_is_asked_first_and_nobody_asks_himself() -> None:
    assert whom_to_ask_for_the_leader(3, 1, [2, 3, 4]) == [3, 2, 4]
    assert whom_to_ask_for_the_leader(None, 1, [2, 3]) == [2, 3]
    assert whom_to_ask_for_the_leader(1, 1, [2, 3]) == [2, 3]
    assert whom_to_ask_for_the_leader(9, 1, []) == [9]
