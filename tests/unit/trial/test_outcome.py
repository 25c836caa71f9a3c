"""What a trial says, and which exit code it has."""

from __future__ import annotations

import pytest

from diskless_core.plugin_host.nouns import NOUNS
from diskless_core.trial.outcome import (
    TrialReport,
    TriedPromise,
    Verdict,
    first_sentence,
    lines_of,
    sentence_of,
    shortened,
)
from diskless_core.trial.tried import SUITES, TRIED


def promise(verdict: Verdict, reason: str = "") -> TriedPromise:
    return TriedPromise(promise=f"It is {verdict}", meaning="", test="test_it", verdict=verdict, reason=reason)


KEPT, BROKEN = promise(Verdict.KEPT), promise(Verdict.BROKEN, "it was not")
LEFT_OUT = promise(Verdict.NOT_TRIED, "it has none")


def report(*promises: TriedPromise, ended_early: str = "", left_behind: str = "") -> TrialReport:
    left = [left_behind] if left_behind else []
    return TrialReport("noun.name", "a place", list(promises), ended_early=ended_early, left_behind=left)


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (report(KEPT, LEFT_OUT), 0),
        (report(KEPT, BROKEN), 1),
        (report(KEPT, BROKEN, ended_early="interrupted"), 1),
        (report(KEPT, left_behind="a topic"), 1),
        (report(KEPT, ended_early="interrupted"), 2),
        (report(LEFT_OUT), 2),
    ],
)
def test_the_exit_code_says_whether_it_can_be_trusted(found: TrialReport, code: int) -> None:
    assert found.exit_code == code


def test_promises_of_one_reason_are_told_together() -> None:
    lines = lines_of(report(KEPT, LEFT_OUT, BROKEN, BROKEN, LEFT_OUT))
    assert lines.count("BROKEN: It is broken") == 2
    assert lines.count("  What happened: it was not") == 1
    assert lines.count("Not tried, it has none:") == 1
    assert "noun.name: 1 promise kept, 2 broken, 2 not tried." in lines


def test_a_test_is_named_by_a_sentence() -> None:
    assert sentence_of("test_a_put_is_whole") == "A put is whole"
    assert sentence_of("test_a_put_is_whole[8 bytes]") == "A put is whole (8 bytes)"


def test_of_a_docstring_the_first_sentence_is_taken() -> None:
    assert first_sentence("One\n    sentence. Another one.\n\n    More.") == "One sentence."
    assert first_sentence(None) == ""


def test_a_long_reason_is_cut() -> None:
    assert shortened("a\n\nb\nc\nd\ne") == "a / b / c / d"
    assert len(shortened("x" * 10_000)) < 500


def test_every_noun_can_be_tried_with_a_suite_that_is_there() -> None:
    assert TRIED.keys() == NOUNS.keys()
    for noun in TRIED.values():
        assert f"class {noun.suite}(" in (SUITES / f"{noun.module}.py").read_text()
