"""What a long run of the simulation found, as a page: which code, which seeds, how long, what happened in them."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from pathlib import Path

from tests.architecture.source_files import ROOT
from tests.simulation.run import Outcome
from tests.simulation.scenario import draw

PAGE_EVERY = 100
"""So many seeds later the page is written again: a run that is ended early has one too."""

COUNTED = ("acknowledged", "read", "committed_offsets", "segments", "deleted_objects", "entries", "terms")


class Report:
    """Outcomes of seeds, in their order."""

    def __init__(self, seeds: range, place: Path | None) -> None:
        self.failed: list[Outcome] = []
        self.totals = dict.fromkeys(COUNTED, 0)
        self._seeds = seeds
        self._place = place
        self._commit = _commit()
        self._began_s = time.monotonic()
        self._logs: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """How many seeds have been lived through."""
        return sum(self._logs.values())

    def take(self, outcome: Outcome) -> None:
        """Note the next outcome."""
        self._logs[draw(outcome.seed).log.value] += 1
        for name in COUNTED:
            self.totals[name] += getattr(outcome, name)
        if outcome.violation is not None:
            self.failed.append(outcome)
        if self._place is not None and (self.count % PAGE_EVERY == 0 or self.count == len(self._seeds)):
            self._place.write_text(self._page())

    def cpu_s(self) -> float:
        """CPU time of this process and of those that have ended, in seconds."""
        used = os.times()
        return used.user + used.system + used.children_user + used.children_system

    def _page(self) -> str:
        first = self._seeds.start
        lines = [
            "# A long run of the simulation",
            "",
            f"`python -m tests.simulation --seeds {first}..{first + self.count}` at commit `{self._commit}`:",
            "",
            "| what | how many |",
            "| --- | --- |",
            f"| histories | {self.count:,} |",
            *(f"| with the log: {log} | {count:,} |" for log, count in sorted(self._logs.items())),
            *(f"| {name.replace('_', ' ')} | {count:,} |" for name, count in self.totals.items()),
            f"| seconds | {time.monotonic() - self._began_s:,.0f} |",
            f"| broken promises | {len(self.failed)} |",
            "",
            *(f"- seed {outcome.seed}: {(outcome.violation or '').splitlines()[0]}" for outcome in self.failed),
        ]
        return "\n".join(lines).rstrip() + "\n"


def _commit() -> str:
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
