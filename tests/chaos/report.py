"""What a run came to, as text for a terminal and as a row of the table in `reports.md`."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.chaos.run import Outcome

REPORTS = Path(__file__).with_name("reports.md")

_HEAD = """\
# Long runs

Each row is a run of `make chaos`, written by the run itself. A `+` after a commit says that the checkout had changes.
A run that found a promise broken stays here; what it found is mended in the commits after it.

| Commit | Log | Seed | Minutes | Faults | Acknowledged | Read | Longest time without any acknowledgement | Promises |
|---|---|---|---|---|---|---|---|---|
"""


def told(outcome: Outcome, log: str) -> str:
    """The outcome, with every promise that was broken."""
    broken = "".join(f"\n  BROKEN: {one}" for one in outcome.violations) or "\n  every promise was kept"
    return (
        f"seed {outcome.seed}, {outcome.seconds / 60:g} minutes, log {log}: {outcome.faults.total()} faults, "
        f"{outcome.acknowledged} records acknowledged, {outcome.polled} polled, {outcome.group_reads} by groups, "
        f"{', '.join(f'{count} {name}' for name, count in sorted(outcome.counters.items()))}, "
        f"longest time without any acknowledgement {outcome.longest_gap_s:.1f} s{broken}"
    )


def add_row(path: Path, outcome: Outcome, log: str) -> None:
    """Append the outcome to a table, which is begun where there is none."""
    if not path.exists():
        path.write_text(_HEAD)
    faults = "; ".join(f"{fault.text}: {count}" for fault, count in outcome.faults.most_common())
    verdict = f"{len(outcome.violations)} BROKEN" if outcome.violations else "kept"
    row = (
        _commit(),
        log,
        outcome.seed,
        f"{outcome.seconds / 60:g}",
        faults,
        outcome.acknowledged,
        outcome.polled,
        f"{outcome.longest_gap_s:.1f} s",
        verdict,
    )
    with path.open("a") as report:
        report.write(f"| {' | '.join(map(str, row))} |\n")


def _commit() -> str:
    """Of the checkout; changes to the table itself do not count."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, cwd=REPORTS.parent)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", f":!{REPORTS.name}")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
