"""The decisions of the bucket log, and of claims above them, in every interleaving."""

from __future__ import annotations

from functools import partial

import pytest

from tests.explorer import counts
from tests.explorer.rules import MUTANTS, REAL
from tests.explorer.search import SCENARIOS, claims, explore, find_violation, pipelines

# where a mutant is found soonest; one needs two faults, for its writer has to miss another one's object
_FOUND_IN = {
    "another's object counts without the log start": partial(claims, faults=2),
    "the log start goes back": pipelines,
    "the log start passes the last object": pipelines,
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_interleaving_has_two_histories_or_loses_what_was_acknowledged(scenario: str) -> None:
    result = explore(SCENARIOS[scenario](), REAL)
    assert result.violation is None, "\n".join(result.trace)
    assert result.strays > 0, "no late object was ever left below the log start: the scenario is too tame"
    assert counts.of(result) == counts.documented()[scenario], "run `python -m tests.explorer` and `make docs`"


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_rule_is_found(mutant: str) -> None:
    result = find_violation(_FOUND_IN.get(mutant, claims)(), MUTANTS[mutant])
    assert result.violation is not None
    assert result.trace
