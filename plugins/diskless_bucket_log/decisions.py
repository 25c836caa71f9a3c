"""What a bucket log does after each answer of the object store: pure functions, which an explorer runs exhaustively.

The log is safe by three rules.

1. A number is created once: conditionally, and any doubt is settled by reading the number and comparing the nonce.
2. A create or a read of number N counts only if the log start, read after it, is still at most N. The log start only
   goes forward, and nothing at or above it is ever deleted: so at that time N had been created by one writer only.
3. The log start never passes the last object. So from the log start on the numbers have no gap, and a number that is
   created there has a predecessor that counts.

Leases only nominate; nothing here depends on a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from diskless_bucket_log.objects import NO_DIGEST, EntryHeader, LogStart


class BrokenChainError(Exception):
    """An object does not continue the one before it: an object was replaced, or belongs to another log."""


class WriteAnswer(Enum):
    """What the store said to a conditional write."""

    DONE = auto()
    CONDITION_FAILED = auto()
    NO_ANSWER = auto()
    """A timeout, a lost connection, a 409: it may have taken effect, or may yet."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where the next object goes, or the next one to read is: its number, base offset and predecessor's digest."""

    number: int
    offset: int
    predecessor: bytes


FIRST_POSITION = Position(0, 0, NO_DIGEST)


def position_at(start: LogStart) -> Position:
    """Where a log begins."""
    return Position(start.number, start.offset, start.predecessor)


def position_after(header: EntryHeader) -> Position:
    """What follows an object."""
    return Position(header.number + 1, header.next_offset, header.digest)


def counts(number: int, start_number: int) -> bool:
    """Whether what was created or read at a number counts, by the log start as it was read afterwards."""
    return number >= start_number


# --- reading -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accepted:
    """The object is the log's; `position` is what follows it."""

    position: Position


@dataclass(frozen=True, slots=True)
class AtEnd:
    """When the number was read, nothing at or above it was in the log."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """The log begins above the number; whatever was found there is of no account."""


ReadOutcome = Accepted | AtEnd | Pruned


def judge_read(position: Position, found: EntryHeader | None, start_number: int) -> ReadOutcome:
    """What a read of `position` says, by the log start as it was read afterwards.

    Raises:
        BrokenChainError: the object is not the successor of the one before it.
    """
    if not counts(position.number, start_number):
        return Pruned()
    if found is None:
        return AtEnd()
    if found.predecessor != position.predecessor or found.base_offset != position.offset:
        raise BrokenChainError(
            f"object {found.number} begins at offset {found.base_offset} and is no successor of the object before it, "
            f"which ends at {position.offset}"
        )
    return Accepted(position_after(found))


# --- writing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Putting:
    """To do: create the object at its number."""

    header: EntryHeader


@dataclass(frozen=True, slots=True)
class ReadingBack:
    """To do: read the object's number, to learn whose object is there."""

    header: EntryHeader


@dataclass(frozen=True, slots=True)
class Confirming:
    """The object is at its number. To do: read the log start. The next object may be put meanwhile."""

    header: EntryHeader


@dataclass(frozen=True, slots=True)
class Examining:
    """Another writer's object is at the number. To do: read the log start."""

    header: EntryHeader
    found: EntryHeader


@dataclass(frozen=True, slots=True)
class Appended:
    """The object is in the log, for good."""

    header: EntryHeader


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Another writer's object is in the log at that number; ours certainly is not. To do: put at `position`."""

    found: EntryHeader
    position: Position


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """The number was pruned. The object may have been in the log before: nobody can say."""


def after_put(state: Putting, answer: WriteAnswer) -> Confirming | ReadingBack:
    """After the conditional create. Client libraries repeat requests, so a failed condition may be our own object's."""
    return Confirming(state.header) if answer is WriteAnswer.DONE else ReadingBack(state.header)


def after_read_back(state: ReadingBack, found: EntryHeader | None) -> Confirming | Examining | Putting:
    """After the number was read. If nothing is there, the same object is put again; an earlier put may still arrive."""
    if found is None:
        return Putting(state.header)
    return Confirming(state.header) if found.nonce == state.header.nonce else Examining(state.header, found)


def after_confirming(state: Confirming, start_number: int) -> Appended | OutcomeUnknown:
    """After the log start was read."""
    return Appended(state.header) if counts(state.header.number, start_number) else OutcomeUnknown()


def after_examining(state: Examining, start_number: int) -> Overtaken | OutcomeUnknown:
    """After the log start was read.

    Raises:
        BrokenChainError: as `judge_read`.
    """
    ours = state.header
    expected = Position(ours.number, ours.base_offset, ours.predecessor)
    outcome = judge_read(expected, state.found, start_number)
    return Overtaken(state.found, outcome.position) if isinstance(outcome, Accepted) else OutcomeUnknown()


# --- pruning -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadingStart:
    """To do: read the log start with its version."""

    wanted: LogStart


@dataclass(frozen=True, slots=True)
class MovingStart:
    """To do: put `wanted` in the place of that version of the log start."""

    wanted: LogStart
    version: str


@dataclass(frozen=True, slots=True)
class Deleting:
    """To do: delete all numbers below, those of writers that came too late as well."""

    below: int


def highest_start(last_number: int) -> int:
    """Up to where the log start may be moved: to the last object that is known, so that one always stays."""
    return last_number


def after_reading_start(state: ReadingStart, start: LogStart, version: str) -> MovingStart | Deleting:
    """The log start is only ever moved forward."""
    if start.number >= state.wanted.number:
        return Deleting(start.number)
    return MovingStart(state.wanted, version)


def after_moving_start(state: MovingStart, answer: WriteAnswer) -> Deleting | ReadingStart:
    """Nothing is deleted before the log start is known to be where it should be."""
    return Deleting(state.wanted.number) if answer is WriteAnswer.DONE else ReadingStart(state.wanted)
