"""What the measurement of the contract suites is made of: faults that they have to find, and what has to pass them.

A module of `tests/kit/faulty` is named after its noun and a theme. It has a tuple `FAULTS`; it may have `CORRECT`, the
backends that the faulty ones are made from, and `UNFOUND`, what no suite can find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MakeSuite = Callable[[], type]
"""Makes a subclass of a noun's contract suite whose fixtures give one backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A backend with one defect.

    Attributes:
        noun: what it pretends to be a backend of.
        name: in kebab-case, unique within the noun.
        says: one sentence: what is wrong with it.
        promise: what the finding has to say, in the sentence that is the name of the contract test, or in its message:
            a distinctive part of it, case ignored. Tests whose sentence has it come first.
        suite: the noun's suite for this backend.
    """

    noun: str
    name: str
    says: str
    promise: str
    suite: MakeSuite


@dataclass(frozen=True, slots=True, kw_only=True)
class Correct:
    """A backend without defects, from which faulty ones are made: it has to pass the whole suite."""

    noun: str
    name: str
    suite: MakeSuite


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfound:
    """A defect that no contract suite can find, and why."""

    noun: str
    says: str
    reason: str
