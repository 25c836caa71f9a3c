"""Rounds of a backend and of its noun's default in turn, so that a machine's moods meet both, and what came of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from diskless_core.clock import Clock
from diskless_core.config.load import LoadedConfig
from diskless_core.plugin.config import redact
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.trial.bench.load import ARITHMETIC, Measure
from diskless_core.trial.bench.rounds import ROUNDS
from diskless_core.trial.grounds import FAILURES, Grounds
from diskless_core.trial.trying import TrialImpossibleError, secrets_of

MEASURED_ROUNDS = 3
WARM_UP_SHARE = 0.25

_Side = tuple[str, LoadedConfig]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The measures of each side, the backend in question first. Each is the median of the rounds."""

    noun: str
    sides: Mapping[str, Sequence[Measure]]
    left_behind: Sequence[str]

    @property
    def verdicts(self) -> list[str]:
        """Whether each side would be the bottleneck at 100 MB/s."""
        said = []
        for name, measures in self.sides.items():
            short = [
                f"{one.name} is {shown(one)} and has to be {one.needed:g}" for one in measures if one.is_bottleneck
            ]
            verdict = f"would be the bottleneck: {', '.join(short)}" if short else "would not be the bottleneck"
            said.append(f"At 100 MB/s {self.noun}.{name} {verdict}.")
        return said

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows."""
        columns = list(zip(*self.sides.values(), strict=True))
        rows = [[row[0].name, *map(shown, row), "" if (n := row[0].needed) is None else f"{n:g}"] for row in columns]
        return ["", *self.sides, "100 MB/s need"], rows

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "noun": self.noun,
            "arithmetic": ARITHMETIC,
            "measures": {
                name: [{"name": one.name, "value": one.value, "needed": one.needed} for one in measures]
                for name, measures in self.sides.items()
            },
            "verdicts": self.verdicts,
            "left_behind": list(self.left_behind),
        }


def shown(measure: Measure) -> str:
    """A number with three digits that count."""
    value = measure.value
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


async def compare(
    sides: Sequence[_Side], noun: str, plugins: PluginManager, clock: Clock, seconds: float
) -> Comparison:
    """Measure each side for about so many seconds, and remove what that left.

    Raises:
        TrialImpossibleError: a side cannot be used. Nothing is left behind then.
    """
    measured: dict[str, list[list[Measure]]] = {name: [] for name, _ in sides}
    grounds = {name: Grounds(loaded, plugins, clock) for name, loaded in sides}
    try:
        for number in range(MEASURED_ROUNDS + 1):
            for name, loaded in sides:
                share = WARM_UP_SHARE if number == 0 else 1.0
                place = grounds[name].place(f"bench-{number}")
                failed = ""
                found: list[Measure] = []
                try:
                    found = await ROUNDS[noun](place, clock, share * seconds / MEASURED_ROUNDS)
                except* FAILURES as errors:  # what is raised in here would be in a group again
                    failed = redact("; ".join(dict.fromkeys(map(str, _each(errors)))), secrets_of(loaded))
                if failed:
                    raise TrialImpossibleError(f"{noun}.{name} cannot be measured: {failed}")
                grounds[name].began = True
                if number:
                    measured[name].append(found)
                await grounds[name].remove(place)
    finally:
        for one in grounds.values():
            await one.remove_all()
    left = [redact(what, secrets_of(loaded)) for name, loaded in sides for what in grounds[name].left_behind]
    medians = {name: _medians(rounds) for name, rounds in measured.items()}
    return Comparison(noun=noun, sides=medians, left_behind=left)


def _medians(rounds: Sequence[Sequence[Measure]]) -> list[Measure]:
    return [replace(same[0], value=median(one.value for one in same)) for same in zip(*rounds, strict=True)]


def _each(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _each(error)
        else:
            yield error
