"""Explores the scenarios and notes how large they are; with an argument, with so many faults, and notes nothing."""

from __future__ import annotations

import sys
from functools import partial

from tests.explorer import counts
from tests.explorer.rules import REAL
from tests.explorer.search import SCENARIOS, explore


def main(arguments: list[str]) -> None:
    """Print what was found; end with an error if anything is bad."""
    faults = int(arguments[0]) if arguments else None
    results = {
        name: explore(scenario() if faults is None else partial(scenario, faults=faults)(), REAL)
        for name, scenario in SCENARIOS.items()
    }
    for name, result in results.items():
        print(f"{name}: {result.states:,} states, {result.transitions:,} steps, {result.violation or 'nothing bad'}")
        print("\n".join(result.trace))
    if any(result.violation for result in results.values()):
        sys.exit(1)
    if faults is None:
        counts.write({name: counts.of(result) for name, result in results.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
