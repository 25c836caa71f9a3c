"""What came of a trial, as data and in words. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

_PREFIX = "test_"
_REASON_LINES = 4
_REASON_CHARACTERS = 400


class Verdict(StrEnum):
    """What became of one promise."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedPromise:
    """One test of a contract suite.

    Attributes:
        promise: a sentence.
        meaning: more about it, where its author wrote something; else empty.
        test: the test's name.
        reason: why it is broken, or was not tried; empty where it was kept.
        advice: what to do where it is broken.
    """

    promise: str
    meaning: str
    test: str
    verdict: Verdict
    reason: str = ""
    advice: str = ""
    seconds: float = 0.0


Announce = Callable[[TriedPromise], None]
"""Told of each promise as soon as it was tried."""


@dataclass(slots=True)
class TrialReport:
    """All that a trial has to tell.

    Attributes:
        plugin: such as `wal_object_store.fsspec`.
        place: where it took place.
        ended_early: why not all promises were tried; empty where they were.
        left_behind: what could not be removed.
    """

    plugin: str
    place: str
    promises: list[TriedPromise] = field(default_factory=list)
    ended_early: str = ""
    left_behind: list[str] = field(default_factory=list)

    def having(self, verdict: Verdict) -> list[TriedPromise]:
        """The promises with this verdict."""
        return [promise for promise in self.promises if promise.verdict is verdict]

    @property
    def exit_code(self) -> int:
        """0: all that was tried is kept. 1: something is broken, or was left behind. 2: nothing can be said."""
        if self.having(Verdict.BROKEN) or (self.left_behind and not self.ended_early):
            return 1
        return 2 if self.ended_early or not self.having(Verdict.KEPT) else 0

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "plugin": self.plugin,
            "place": self.place,
            **{verdict.name.lower(): len(self.having(verdict)) for verdict in Verdict},
            "ended_early": self.ended_early or None,
            "left_behind": self.left_behind,
            "promises": [asdict(promise) for promise in self.promises],
        }


def sentence_of(test: str) -> str:
    """The promise that the name of a test tells: `test_a_put_is_whole[8]` is "A put is whole (8)"."""
    name, bracket, parameters = test.removeprefix(_PREFIX).partition("[")
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:] + (f" ({parameters.removesuffix(']')})" if bracket else "")


def first_sentence(docstring: str | None) -> str:
    """The first sentence of a docstring, on one line; empty without one."""
    paragraph = inspect.cleandoc(docstring or "").split("\n\n")[0]
    sentence, dot, _ = " ".join(paragraph.split()).partition(". ")
    return sentence + dot.strip()


def shortened(reason: str) -> str:
    """The beginning of a reason: a comparison of large objects fills pages."""
    lines = [line.strip() for line in reason.strip().splitlines() if line.strip()]
    text = " / ".join(lines[:_REASON_LINES])
    return text if len(text) <= _REASON_CHARACTERS else f"{text[:_REASON_CHARACTERS]}…"


def lines_of(report: TrialReport) -> Sequence[str]:
    """What is said when a trial has ended."""
    kept, broken, not_tried = (report.having(verdict) for verdict in Verdict)
    lines = []
    for reason, left_out in _by_reason(not_tried):
        lines += ["", f"Not tried, {reason}:", *(f"  {one.promise}" for one in left_out)]
    for reason, failed in _by_reason(broken):
        lines.append("")
        for one in failed:
            lines += [f"BROKEN: {one.promise}", *([f"  That is: {one.meaning}"] if one.meaning else [])]
        lines += [f"  What happened: {reason}", f"  What to do: {failed[0].advice}"]
    promises = "promise" if len(kept) == 1 else "promises"
    lines += ["", f"{report.plugin}: {len(kept)} {promises} kept, {len(broken)} broken, {len(not_tried)} not tried."]
    if report.ended_early:
        lines.append(f"The trial ended early: {report.ended_early}.")
    elif not broken:
        lines.append("It keeps what a broker relies on, as far as a trial can find out.")
    if report.left_behind:
        lines += ["These are left behind, remove them by hand:", *(f"  {what}" for what in report.left_behind)]
    else:
        lines.append(f"It took place in {report.place}. All of that is removed.")
    return lines


def _by_reason(promises: Sequence[TriedPromise]) -> Sequence[tuple[str, list[TriedPromise]]]:
    reasons: dict[str, list[TriedPromise]] = {}
    for promise in promises:
        reasons.setdefault(promise.reason, []).append(promise)
    return list(reasons.items())
