"""What may have become of a topic, given what its administrator asked for and was told. Pure.

A change whose answer was lost may have happened, may happen at any later time, or never; but not twice. So a topic is
believed to be in one of several states, each with the changes that may still come.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from diskless_core.protocol.errors import ErrorCode

MAX_PENDING = 3
"""Changes of one topic that may still come, after which it is left alone."""


class Kind(Enum):
    CREATE = "create"
    DELETE = "delete"
    GROW = "add partitions to"
    ALTER = "alter"


class Change(NamedTuple):
    """What is asked for. `number` is its own, among all changes of the run; `partitions` are wanted in all."""

    number: int
    kind: Kind
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """Attributes:
    birth: number of the change that created it.
    altered: number of the last change that altered it, at first the same.
    """

    birth: int
    altered: int
    partitions: int


State = Topic | None
"""None where there is no such topic."""


def outcome(change: Change, state: State) -> tuple[ErrorCode, State]:
    """What a change is answered in a state, and the state after it."""
    if change.kind is Kind.CREATE:
        if state is not None:
            return ErrorCode.TOPIC_ALREADY_EXISTS, state
        return ErrorCode.NONE, Topic(change.number, change.number, change.partitions)
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    if change.kind is Kind.DELETE:
        return ErrorCode.NONE, None
    if change.kind is Kind.ALTER:
        return ErrorCode.NONE, replace(state, altered=change.number)
    if change.partitions <= state.partitions:
        return ErrorCode.INVALID_PARTITIONS, state
    return ErrorCode.NONE, replace(state, partitions=change.partitions)


NOTHING_HAPPENED = frozenset({ErrorCode.NOT_CONTROLLER})
"""Errors after which a change has not happened, and will not."""

MAY_HAPPEN = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors that say as little as no answer."""

_World = tuple[State, frozenset[Change]]


class Beliefs:
    """All that a topic may be, of which one is true. At first there is none."""

    def __init__(self) -> None:
        self._worlds: frozenset[_World] = frozenset({(None, frozenset())})

    def heard(self, change: Change, error: ErrorCode | None) -> str | None:
        """Take an answer, None where none came. What is wrong with it, if anything is."""
        if error in NOTHING_HAPPENED:
            return None
        if error is None or error in MAY_HAPPEN:
            self._worlds = frozenset((state, pending | {change}) for state, pending in self._worlds)
            return None
        worlds = self._reachable()
        after = {(outcome(change, state), pending) for state, pending in worlds}
        agreeing = frozenset((state, pending) for (answer, state), pending in after if answer is error)
        if not agreeing:
            return f"{change.kind.value} was answered {error.name}, and there may be {self.told()}"
        self._worlds = agreeing
        return None

    @property
    def pending(self) -> int:
        """How many changes may still come, at most."""
        return max(len(pending) for _, pending in self._worlds)

    def states(self) -> frozenset[State]:
        """What it may be now."""
        return frozenset(state for state, _ in self._reachable())

    def told(self) -> str:
        return " or ".join(sorted({str(state) for state in self.states()}))

    def _reachable(self) -> frozenset[_World]:
        """With any of the pending changes, in any order."""
        found = set(self._worlds)
        new = list(found)
        while new:
            state, pending = new.pop()
            for change in pending:
                world = outcome(change, state)[1], pending - {change}
                if world not in found:
                    found.add(world)
                    new.append(world)
        return frozenset(found)
