"""The tests of a noun's set: every fault is found, the message has the promise, and correct backends pass."""

from __future__ import annotations

import subprocess
from functools import cache
from typing import ClassVar

import pytest

from tests.kit.fault import Correct, Fault
from tests.kit.running import Outcome, run
from tests.kit.zoo import correct_of, faults_of

LEAST_OF_A_TEST = 5


class MeasuredKit:
    """Subclass it with the noun. All of it runs in one worker: mark the module with `xdist_group`.

    Attributes:
        noun: whose suites are measured.
        least_faults: so many faults there have to be.
    """

    noun: ClassVar[str]
    least_faults: ClassVar[int] = 15

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        for name, cases in (("fault", faults_of(self.noun)), ("correct", correct_of(self.noun))):
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, [pytest.param(case, id=case.name) for case in cases])

    @pytest.fixture
    def outcome(self) -> Outcome:
        outcome = _outcome_of(self.noun)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def test_a_fault_is_found_and_the_promise_named(self, outcome: Outcome, fault: Fault) -> None:
        assert fault.name in outcome.findings, f"nothing found, {outcome.passed.get(fault.name)} tests passed"
        assert fault.promise.lower() in outcome.findings[fault.name].told.lower(), fault.says

    def test_what_the_faults_are_made_from_is_correct(self, outcome: Outcome, correct: Correct) -> None:
        assert outcome.findings.get(correct.name) is None
        assert outcome.passed[correct.name] >= LEAST_OF_A_TEST

    def test_there_are_enough_faults(self) -> None:
        assert len(faults_of(self.noun)) >= self.least_faults


@cache
def _outcome_of(noun: str) -> Outcome | RuntimeError | subprocess.TimeoutExpired:
    """Also one that failed is run once, not for every test."""
    try:
        return run(noun)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return error
