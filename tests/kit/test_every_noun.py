"""Every noun has a set of faults: what is promised of a new noun is measured too."""

from __future__ import annotations

from pathlib import Path

import pytest

from diskless_core.plugin_host import nouns
from tests.kit.zoo import NOUNS, faults_of

POLICIES = ("offset_assignment", "gateway_placement", "orphan_detection")
"""Nouns that decide, and whose backends do no I/O of their own."""

LEAST_OF_A_POLICY = 5
LEAST_OF_A_BACKEND = 15


def test_the_kit_knows_the_nouns_of_the_broker() -> None:
    assert set(NOUNS) == set(nouns.NOUNS)
    assert len(set(NOUNS)) == len(NOUNS)


@pytest.mark.parametrize("noun", NOUNS)
def test_the_suites_of_a_noun_are_measured(noun: str) -> None:
    assert (Path(__file__).parent / f"test_kit_{noun}.py").exists()


@pytest.mark.parametrize("noun", NOUNS)
def test_a_noun_has_enough_faults(noun: str) -> None:
    assert len(faults_of(noun)) >= (LEAST_OF_A_POLICY if noun in POLICIES else LEAST_OF_A_BACKEND)
