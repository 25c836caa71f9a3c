"""Runs through every state that can be reached, each once, and says by which steps it came to a bad one."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.explorer.rules import Rules
from tests.explorer.world import CLAIM, ENTRY, Locating, Reader, ViolationError, World, Writer, steps


@dataclass
class Exploration:
    """What was found.

    Attributes:
        states: how many there are.
        transitions: steps between them.
        strays: states in which something lies below the log start that was put there after it had moved.
        violation: the first two histories or loss that was met, and the steps that lead to it.
    """

    states: int = 0
    transitions: int = 0
    strays: int = 0
    violation: str | None = None
    trace: list[str] = field(default_factory=list)


def claims(faults: int = 1) -> World:
    """Two leaders to be, that claim and then write a command."""
    return World(
        writers=tuple(Writer(name, Locating(), (CLAIM, ENTRY)) for name in "AB"),
        reader=Reader(),
        prunings=1,
        faults=faults,
    )


def pipelines(faults: int = 1) -> World:
    """A writer that puts the next object while the last one is not confirmed, beside another writer."""
    return World(
        writers=(Writer("A", Locating(), (ENTRY, ENTRY)), Writer("B", Locating(), (ENTRY,))),
        reader=Reader(),
        prunings=2,
        faults=faults,
    )


def explore(first: World, rules: Rules) -> Exploration:
    """All interleavings, until there are none left or one is bad."""
    result = Exploration()
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    to_do = [first]
    while to_do:
        world = to_do.pop()
        result.strays += any(
            found is not None and number < min(world.start.number, len(world.truth)) and found != world.truth[number]
            for number, found in enumerate(world.objects)
        )
        try:
            for what, following in steps(world, rules):
                result.transitions += 1
                if following not in came_from:
                    came_from[following] = (world, what)
                    to_do.append(following)
        except ViolationError as error:
            result.violation = str(error)
            result.trace = _trace(came_from, world)
            break
    result.states = len(came_from)
    return result


def _trace(came_from: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    names: list[str] = []
    step = came_from[world]
    while step is not None:
        world, what = step
        names.append(what)
        step = came_from[world]
    return names[::-1]
