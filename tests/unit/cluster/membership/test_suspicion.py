"""When a broker says that the controller has ended, and how it holds back where it was wrong."""

from __future__ import annotations

from itertools import pairwise

import pytest

from diskless_core.cluster.membership.suspicion import FIRST_PAUSE_S, LONGEST_PAUSE_S, Suspicion


def suspicion_of(node_id: int) -> Suspicion:
    suspicion = Suspicion()
    suspicion.answered(node_id)
    return suspicion


def test_one_that_has_never_answered_may_be_starting() -> None:
    suspicion = suspicion_of(1)
    assert not any(suspicion.refused(2, now / 4) for now in range(400))
    suspicion.answered(2)
    suspicion.broke(2)
    assert suspicion.refused(2, 200.0)


def test_a_broken_connection_and_a_refused_one_are_enough() -> None:
    suspicion = suspicion_of(1)
    suspicion.broke(1)
    assert suspicion.refused(1, 10.0)


def test_one_refused_connection_is_not_enough() -> None:
    suspicion = suspicion_of(1)
    assert not suspicion.refused(1, 10.0)
    assert suspicion.refused(1, 10.2)


def test_evidence_is_against_one_node_and_an_answer_ends_it() -> None:
    suspicion = suspicion_of(1)
    suspicion.broke(1)
    assert not suspicion.refused(2, 10.0)
    suspicion.answered(2)
    assert not suspicion.refused(2, 10.1)
    assert suspicion.refused(2, 10.2)


def test_it_is_said_again_while_it_goes_on_but_ever_more_slowly() -> None:
    suspicion = suspicion_of(1)
    said = [now / 4 for now in range(4 * 3600) if suspicion.refused(1, now / 4)]  # a quarter is exact
    pauses = [after - before for before, after in pairwise(said)]
    assert pauses[:4] == pytest.approx([FIRST_PAUSE_S * 2**number for number in range(4)])
    assert max(pauses) == pytest.approx(LONGEST_PAUSE_S)


def test_after_a_while_without_any_it_is_said_at_once_again() -> None:
    suspicion = suspicion_of(1)
    for now in range(10):
        suspicion.refused(1, now / 2)
    suspicion.answered(2)
    suspicion.broke(2)
    assert suspicion.refused(2, 60.0)
    suspicion.broke(2)
    assert not suspicion.refused(2, 60.0 + FIRST_PAUSE_S / 2)
    assert suspicion.refused(2, 60.0 + FIRST_PAUSE_S)
