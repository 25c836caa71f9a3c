"""An administrator of a chaos run believes what was answered, and finds answers that cannot be true."""

from __future__ import annotations

import pytest

from diskless_core.protocol.errors import ErrorCode
from tests.chaos.topic_model import Beliefs, Change, Kind, Topic

CREATED = Change(1, Kind.CREATE, 2)


def after(*told: tuple[Change, ErrorCode | None]) -> Beliefs:
    beliefs = Beliefs()
    for change, error in told:
        assert beliefs.heard(change, error) is None
    return beliefs


def test_what_was_answered_is_so() -> None:
    beliefs = after(
        (CREATED, ErrorCode.NONE),
        (Change(2, Kind.GROW, 5), ErrorCode.NONE),
        (Change(3, Kind.ALTER), ErrorCode.NONE),
    )
    assert beliefs.states() == {Topic(1, 3, 5)}


def test_a_change_without_an_answer_may_come_later() -> None:
    beliefs = after((CREATED, ErrorCode.NONE), (Change(2, Kind.DELETE), None), (Change(3, Kind.ALTER), ErrorCode.NONE))
    assert beliefs.states() == {Topic(1, 3, 2), None}
    assert beliefs.pending == 1


def test_a_creation_without_an_answer_may_come_after_a_deletion() -> None:
    beliefs = after(
        (CREATED, None), (Change(2, Kind.CREATE, 3), ErrorCode.NONE), (Change(3, Kind.DELETE), ErrorCode.NONE)
    )
    assert beliefs.states() == {None, Topic(1, 1, 2)}


def test_a_creation_that_is_repeated_happens_once() -> None:
    beliefs = after((CREATED, None), (Change(2, Kind.CREATE, 3), ErrorCode.TOPIC_ALREADY_EXISTS))
    assert beliefs.states() == {Topic(1, 1, 2)}
    assert beliefs.pending == 0
    assert beliefs.heard(Change(3, Kind.DELETE), ErrorCode.NONE) is None
    assert beliefs.heard(Change(4, Kind.DELETE), ErrorCode.NONE) is not None


@pytest.mark.parametrize("error", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_COORDINATOR, None])
def test_answers_that_say_nothing(error: ErrorCode | None) -> None:
    assert after((CREATED, error)).states() == {None, Topic(1, 1, 2)}


def test_after_not_controller_nothing_has_happened() -> None:
    assert after((CREATED, ErrorCode.NOT_CONTROLLER)).states() == {None}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (Change(2, Kind.CREATE, 2), ErrorCode.NONE),
        (Change(2, Kind.DELETE), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Change(2, Kind.GROW, 2), ErrorCode.NONE),
        (Change(2, Kind.GROW, 3), ErrorCode.INVALID_PARTITIONS),
        (Change(2, Kind.ALTER), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Change(2, Kind.ALTER), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_answer_that_cannot_be_true_is_found(change: Change, error: ErrorCode) -> None:
    found = after((CREATED, ErrorCode.NONE)).heard(change, error)
    assert found is not None
    assert error.name in found


def test_a_topic_that_exists_before_anybody_asked_is_found() -> None:
    assert Beliefs().heard(CREATED, ErrorCode.TOPIC_ALREADY_EXISTS) is not None
