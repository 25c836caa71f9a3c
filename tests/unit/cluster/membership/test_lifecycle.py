"""What a broker asks of the controller next, and when it gives up."""

from __future__ import annotations

import pytest

from diskless_core.cluster.membership.lifecycle import (
    BrokerState,
    Heartbeat,
    Lifecycle,
    RefusedRegistration,
    Register,
)
from diskless_core.cluster.membership.sessions import SessionTimes
from diskless_core.protocol.errors import ErrorCode

TIMES = SessionTimes(session_s=9, heartbeat_s=2)


def duplicate(silent_s):
    return RefusedRegistration(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "taken", silent_s)


@pytest.fixture
def life():
    return Lifecycle(TIMES, 0.0)


def test_it_registers_at_once_and_is_fenced_until_it_is_ready(life):
    assert life.due_s == 0.0
    assert life.question() == Register()
    life.registered(7, 0.1)
    assert life.state is BrokerState.RECOVERY
    assert life.question() == Heartbeat(7, want_fence=True, want_shut_down=False)
    life.answered(is_fenced=True, should_shut_down=False, now_s=0.2)
    assert life.due_s == 2.2
    life.ready(0.5)
    assert life.due_s == 0.5
    assert life.question() == Heartbeat(7, want_fence=False, want_shut_down=False)
    life.answered(is_fenced=False, should_shut_down=False, now_s=0.6)
    assert life.state is BrokerState.RUNNING
    assert life.due_s == 2.6


def test_one_that_is_fenced_though_it_is_ready_asks_soon_again(life):
    life.registered(7, 0.0)
    life.ready(0.0)
    life.question()
    life.answered(is_fenced=True, should_shut_down=False, now_s=1.0)
    assert 1.0 < life.due_s < 1.5


def test_one_that_became_ready_while_it_was_asking_says_so_at_once(life):
    life.registered(7, 0.0)
    assert life.question() == Heartbeat(7, want_fence=True, want_shut_down=False)
    life.ready(0.1)
    life.answered(is_fenced=True, should_shut_down=False, now_s=1.0)
    assert life.due_s == 1.0


def test_without_an_answer_it_asks_soon_again(life):
    life.no_answer(1.0)
    assert 1.0 < life.due_s < 1.5
    assert life.question() == Register()


def test_a_registration_that_does_not_hold_any_more_is_made_anew(life):
    life.registered(7, 0.0)
    life.ready(0.0)
    life.answered(is_fenced=False, should_shut_down=False, now_s=0.0)
    life.unknown(1.0)
    assert (life.state, life.due_s, life.question()) == (BrokerState.STARTING, 1.0, Register())


def test_it_gives_up_once_the_first_process_has_sent_a_heartbeat_since(life):
    life.refused(duplicate(0.5), sent_s=0.0, now_s=0.1)
    assert life.verdict is None
    life.refused(duplicate(0.7), sent_s=0.3, now_s=0.4)
    assert life.verdict is None
    life.refused(duplicate(0.1), sent_s=0.5, now_s=0.6)
    assert life.verdict == "taken"


def test_it_waits_for_a_first_process_that_a_new_controller_has_not_heard_of(life):
    for second in range(8):
        life.refused(duplicate(None), sent_s=second, now_s=second + 0.1)
    assert life.verdict is None
    life.registered(7, 9.0)
    assert life.state is BrokerState.RECOVERY


def test_it_gives_up_at_once_where_the_cluster_never_takes_it(life):
    life.refused(RefusedRegistration(ErrorCode.UNSUPPORTED_VERSION, "too old", None), sent_s=0.0, now_s=0.1)
    assert life.verdict == "too old"


def test_one_that_was_a_member_never_gives_up(life):
    life.registered(7, 0.0)
    life.unknown(1.0)
    for second in range(1, 5):
        life.refused(duplicate(0.0), sent_s=second, now_s=second + 0.1)
    assert life.verdict is None


def test_it_stops_when_the_controller_lets_it_go(life):
    life.registered(7, 0.0)
    life.ready(0.0)
    life.answered(is_fenced=False, should_shut_down=False, now_s=0.0)
    life.shut_down(1.0)
    assert life.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    assert life.question() == Heartbeat(7, want_fence=False, want_shut_down=True)
    life.answered(is_fenced=False, should_shut_down=False, now_s=1.1)
    assert life.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    assert life.due_s < 1.5
    life.answered(is_fenced=True, should_shut_down=True, now_s=1.4)
    assert life.state is BrokerState.SHUTTING_DOWN


def test_one_that_is_no_member_may_stop_at_once(life):
    life.shut_down(0.0)
    assert life.state is BrokerState.SHUTTING_DOWN


def test_one_that_was_forgotten_while_it_stops_may_stop(life):
    life.registered(7, 0.0)
    life.shut_down(1.0)
    life.unknown(2.0)
    assert life.state is BrokerState.SHUTTING_DOWN
