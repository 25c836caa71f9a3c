"""The decisions of the bucket log, and of claims and terms above it, as the explorer calls them: the real ones.

A mutant replaces one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from diskless_bucket_log import decisions
from diskless_bucket_log.decisions import (
    AtEnd,
    Confirming,
    Deleting,
    Examining,
    MovingStart,
    Position,
    Pruned,
    Putting,
    ReadingBack,
    ReadingStart,
    ReadOutcome,
    WriteAnswer,
)
from diskless_bucket_log.objects import EntryHeader, LogStart
from diskless_core.coordinator.entries import Acceptance, Entry


@dataclass(frozen=True)
class Rules:
    """One function for each decision."""

    after_put: Callable[[Putting, WriteAnswer], object] = decisions.after_put
    after_read_back: Callable[[ReadingBack, EntryHeader | None], object] = decisions.after_read_back
    after_confirming: Callable[[Confirming, int], object] = decisions.after_confirming
    after_examining: Callable[[Examining, int], object] = decisions.after_examining
    judge_read: Callable[[Position, EntryHeader | None, int], ReadOutcome] = decisions.judge_read
    after_reading_start: Callable[[ReadingStart, LogStart, str], MovingStart | Deleting] = decisions.after_reading_start
    after_moving_start: Callable[[MovingStart, WriteAnswer], Deleting | ReadingStart] = decisions.after_moving_start
    highest_start: Callable[[int], int] = decisions.highest_start
    accepts: Callable[[Acceptance, Entry], bool] = Acceptance.accepts


REAL = Rules()


def _end_at_any_absence(position: Position, found: EntryHeader | None, start_number: int) -> ReadOutcome:
    return AtEnd() if found is None else decisions.judge_read(position, found, start_number)


def _read_without_start(position: Position, found: EntryHeader | None, start_number: int) -> ReadOutcome:
    outcome = decisions.judge_read(position, found, start_number)
    return decisions.judge_read(position, found, 0) if found is not None and isinstance(outcome, Pruned) else outcome


def _any_object_is_ours(state: ReadingBack, found: EntryHeader | None) -> object:
    return Putting(state.header) if found is None else Confirming(state.header)


def _start_goes_back(state: ReadingStart, start: LogStart, version: str) -> MovingStart | Deleting:
    return MovingStart(state.wanted, version) if start != state.wanted else Deleting(start.number)


MUTANTS: Mapping[str, Rules] = {
    "a create counts without the log start": replace(
        REAL, after_confirming=lambda state, _: decisions.after_confirming(state, 0)
    ),
    "another's object counts without the log start": replace(
        REAL, after_examining=lambda state, _: decisions.after_examining(state, 0)
    ),
    "a read counts without the log start": replace(REAL, judge_read=_read_without_start),
    "a 404 is always the end": replace(REAL, judge_read=_end_at_any_absence),
    "the nonce is ignored": replace(REAL, after_read_back=_any_object_is_ours),
    "no answer is taken for done": replace(
        REAL, after_put=lambda state, _: decisions.after_put(state, WriteAnswer.DONE)
    ),
    "the log start goes back": replace(REAL, after_reading_start=_start_goes_back),
    "numbers are deleted though the log start may not have moved": replace(
        REAL, after_moving_start=lambda state, _: Deleting(state.wanted.number)
    ),
    "the log start passes the last object": replace(REAL, highest_start=lambda last: last + 1),
    "a claim is believed without reading it back": replace(REAL, accepts=lambda *_: True),
}
"""Each breaks one rule. The explorer has to find all."""
