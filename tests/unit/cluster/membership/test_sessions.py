"""Whose session goes on: by heartbeats, connections, and a clock that may have stood still."""

from __future__ import annotations

import pytest

from diskless_core.cluster.membership.sessions import (
    RESET_S,
    UNKNOWN_HEALTH,
    Health,
    Predecessor,
    Sessions,
    SessionTimes,
)

TIMES = SessionTimes(session_s=9, heartbeat_s=2)
ILL = Health(bucket_is_ok=False)


def looked_at(sessions, until_s, *, from_s=0.0):
    """What `ended` says at `until_s`, asked every second before."""
    now_s = from_s
    while now_s < until_s:
        sessions.ended(now_s)
        now_s += 1
    return sessions.ended(until_s)


def test_everybody_has_a_session_at_first_but_for_the_leader_before():
    sessions = Sessions(TIMES, 0.0, [1, 2, 3], Predecessor(node_id=1))

    assert looked_at(sessions, 2.9) == set()
    assert looked_at(sessions, 3.0, from_s=2.9) == {1}
    assert looked_at(sessions, 9.0, from_s=3.0) == {1, 2, 3}


def test_a_leader_before_that_takes_no_connection_has_hardly_any_time():
    sessions = Sessions(TIMES, 0.0, [1, 2], Predecessor(node_id=1, is_gone=True))

    assert sessions.ended(RESET_S) == {1}


@pytest.mark.parametrize(("silent_s", "granted_s"), [(2.0, 3.0), (7.0, 2.0), (9.0, RESET_S), (60.0, RESET_S)])
def test_a_leader_before_that_has_been_silent_has_what_is_left_of_its_session(silent_s, granted_s):
    sessions = Sessions(TIMES, 0.0, [1, 2], Predecessor(node_id=1, silent_s=silent_s))

    assert looked_at(sessions, granted_s - 0.01) == set()
    assert looked_at(sessions, granted_s, from_s=granted_s - 0.01) == {1}


def test_a_heartbeat_begins_a_session_anew():
    sessions = Sessions(TIMES, 0.0, [1], None)
    looked_at(sessions, 8.0)
    sessions.heard(1, 8.0, UNKNOWN_HEALTH)

    assert sessions.silent_s(1, 8.5) == 0.5
    assert looked_at(sessions, 16.9, from_s=8.0) == set()
    assert looked_at(sessions, 17.0, from_s=16.9) == {1}


def test_a_connection_that_broke_ends_a_session_soon_unless_the_broker_comes_back():
    sessions = Sessions(TIMES, 0.0, [], None)
    sessions.heard(1, 0.0, UNKNOWN_HEALTH)
    sessions.heard(2, 0.0, UNKNOWN_HEALTH)
    for node_id in (1, 2):
        sessions.broke(node_id, 1.0)
    sessions.heard(2, 1.0 + RESET_S / 2, UNKNOWN_HEALTH)

    assert not sessions.is_live(1, 1.0, is_granted=True)
    assert sessions.is_live(2, 1.2, is_granted=True)
    assert sessions.ended(1.0 + RESET_S) == {1}


def test_a_leader_that_stood_still_does_not_take_the_others_for_silent():
    sessions = Sessions(TIMES, 0.0, [1, 2], None)
    sessions.ended(0.5)

    assert sessions.ended(60.5) == set()
    sessions.heard(2, 60.6, UNKNOWN_HEALTH)
    assert looked_at(sessions, 67.1, from_s=60.6) == {1}


@pytest.mark.parametrize(("others", "expected"), [(UNKNOWN_HEALTH, {1}), (ILL, set())])
def test_a_broker_is_ill_after_a_session_unless_all_are(others, expected):
    sessions = Sessions(TIMES, 0.0, [], None)
    for second in range(10):
        sessions.heard(1, second, ILL)
        sessions.heard(2, second, others)
        assert sessions.ill(second, [1, 2]) == (expected if second >= 9 else set())


def test_a_broker_that_is_well_again_begins_anew_when_it_falls_ill():
    sessions = Sessions(TIMES, 0.0, [2], None)
    sessions.heard(1, 0.0, ILL)
    sessions.heard(1, 8.0, UNKNOWN_HEALTH)
    sessions.heard(1, 8.1, ILL)

    assert sessions.ill(16.0, [1, 2]) == set()
    assert sessions.ill(17.2, [1, 2]) == {1}


def test_why_a_broker_is_fenced_tells_a_process_that_ended_from_one_that_is_silent():
    sessions = Sessions(TIMES, 0.0, [1, 2, 3], Predecessor(node_id=1, is_gone=True))
    for node_id in (2, 3):
        sessions.heard(node_id, 1.0, UNKNOWN_HEALTH)
    sessions.broke(3, 1.0)

    assert sessions.silence(1, 13.0) == "this controller has not heard of it"
    assert sessions.silence(2, 13.0) == "it was not heard of for 12 s, which is longer than its session"
    assert sessions.silence(3, 3.5) == "its connection ended, and it has not come back; it was heard of 2.5 s ago"
    sessions.heard(3, 1.2, UNKNOWN_HEALTH)
    assert sessions.silence(3, 11.1) == "it was not heard of for 9.9 s, which is longer than its session"
