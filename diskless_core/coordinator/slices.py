"""Long work in slices: between two of them the event loop serves others.

The work is a generator that yields where it may be interrupted, and returns its result. It yields after so much work,
never after so much time, so it is the same on every run. Pure.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

Slices = Generator[None, None, T]
"""Work that yields between its slices, and returns a T."""

SLICE_UNITS = 256
"""Units of work in one slice: batches of a commit, or records of an entry. A few milliseconds."""


class Pace:
    """Says when a slice is over."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = SLICE_UNITS

    def is_over_after(self, units: int) -> bool:
        """Count these units; True when the slice has had its share, and the next one begins."""
        self._left -= units
        if self._left > 0:
            return False
        self._left = SLICE_UNITS
        return True


def chunks(items: Sequence[R]) -> Iterator[Sequence[R]]:
    """The items of one slice after the other, for loops that are too quick to count each time."""
    if len(items) <= SLICE_UNITS:
        yield items
        return
    for first in range(0, len(items), SLICE_UNITS):
        yield items[first : first + SLICE_UNITS]


def at_once(slices: Slices[T]) -> T:
    """Do all of it now."""
    while True:
        try:
            next(slices)
        except StopIteration as done:
            result: T = done.value
            return result
