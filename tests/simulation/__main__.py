"""`python -m tests.simulation --seed 7` lives through a seed again and tells its history if a promise was broken."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.simulation.report import Report
from tests.simulation.run import Outcome, simulate

TAIL_LINES = 400


def main() -> int:
    arguments = _arguments()
    report = Report(arguments.seeds, arguments.report)
    for outcome in _outcomes(arguments):
        report.take(outcome)
        if outcome.violation is not None:
            print(f"seed {outcome.seed}: {outcome.violation}", flush=True)
        if arguments.trace or (outcome.violation is not None and len(arguments.seeds) == 1):
            print("\n".join(outcome.lines if arguments.trace else outcome.lines[-TAIL_LINES:]))
        if arguments.digest:
            print(f"seed {outcome.seed}: {outcome.digest}")
    print(f"{report.count} seeds, {len(report.failed)} failed; {report.totals}")
    print(f"{report.count / report.cpu_s():.1f} seeds a CPU second", file=sys.stderr)
    return 1 if report.failed else 0


def _outcomes(arguments: argparse.Namespace) -> Iterator[Outcome]:
    """In the order of the seeds."""
    live = partial(_live, steps=arguments.steps, trace=arguments.trace)
    if len(arguments.seeds) == 1 or arguments.jobs == 1:
        yield from map(live, arguments.seeds)
        return
    with ProcessPoolExecutor(arguments.jobs) as pool:
        yield from pool.map(live, arguments.seeds, chunksize=4)


def _live(seed: int, *, steps: float, trace: bool) -> Outcome:
    outcome = simulate(seed, steps)
    return outcome if trace or outcome.violation is not None else replace(outcome, lines=[])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--seed", type=lambda text: range(int(text), int(text) + 1), dest="seeds")
    chosen.add_argument("--seeds", type=_range, metavar="A..B", help="from A to B, B left out")
    parser.add_argument("--steps", type=float, default=1.0, help="make the active time so many times as long")
    parser.add_argument("--jobs", type=int, help="how many processes share the seeds, by default one a core")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page about the run")
    parser.add_argument("--trace", action="store_true", help="print the whole history")
    parser.add_argument("--digest", action="store_true", help="print what identifies each history")
    return parser.parse_args()


def _range(text: str) -> range:
    first, _, end = text.partition("..")
    return range(int(first), int(end))


if __name__ == "__main__":
    sys.exit(main())
