"""Runs through every state that can be reached, each once, and says by which steps it came to a bad one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.explorer.rules import Rules
from tests.explorer.world import CLAIM, ENTRY, Locating, ViolationError, World, Writer, steps

_CameFrom = dict[World, tuple[World, str] | None]


@dataclass
class Exploration:
    """What was found.

    Attributes:
        states: how many there are.
        transitions: steps between them.
        strays: states in which something lies below the log start that was put there too late.
        layers: how many states are so many steps away from the first, at the least; only of a search by layers.
        violation: the first two histories or loss that was met, and the steps that lead to it.
    """

    states: int = 0
    transitions: int = 0
    strays: int = 0
    layers: list[int] = field(default_factory=list)
    violation: str | None = None
    trace: list[str] = field(default_factory=list)


def claims(faults: int = 1) -> World:
    """Two leaders to be, that claim and then write a command."""
    return World(
        writers=tuple(Writer(name, Locating(), (CLAIM, ENTRY)) for name in "AB"),
        prunings=1,
        faults=faults,
    )


def pipelines(faults: int = 1) -> World:
    """A writer that puts the next object while the last one is not confirmed, beside another writer; two prunings."""
    return World(
        writers=(Writer("A", Locating(), (ENTRY, ENTRY)), Writer("B", Locating(), (ENTRY,))),
        prunings=2,
        faults=faults,
    )


SCENARIOS: Mapping[str, Callable[[], World]] = {"claims": claims, "pipelines": pipelines}


def explore(first: World, rules: Rules) -> Exploration:
    """All interleavings, by layers, until there are none left or one is bad."""
    result = Exploration()
    came_from: _CameFrom = {first: None}
    layer = [first]
    while layer and result.violation is None:
        result.layers.append(len(layer))
        following = list[World]()
        for world in layer:
            if _expand(world, rules, came_from, following, result):
                break
        layer = following
    result.states = len(came_from)
    return result


def find_violation(first: World, rules: Rules) -> Exploration:
    """As `explore`, depth first: of what is bad, something is found much sooner."""
    result = Exploration()
    came_from: _CameFrom = {first: None}
    to_do = [first]
    while to_do and not _expand(to_do.pop(), rules, came_from, to_do, result):
        pass
    result.states = len(came_from)
    return result


def _expand(world: World, rules: Rules, came_from: _CameFrom, to_do: list[World], result: Exploration) -> bool:
    """Take all steps of a state; whether one of them is bad."""
    result.strays += any(
        found is not None and number < len(world.truth) and found != world.truth[number]
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
    return result.violation is not None


def _trace(came_from: _CameFrom, world: World) -> list[str]:
    names: list[str] = []
    step = came_from[world]
    while step is not None:
        world, what = step
        names.append(what)
        step = came_from[world]
    return names[::-1]
