"""The suites of one noun's backends, as classes that pytest collects. `tests.kit.running` runs this file."""

from __future__ import annotations

import os

from tests.kit.zoo import CHOSEN_VARIABLE, NOUN_VARIABLE, correct_of, faults_of


def _collect() -> None:
    noun, chosen = os.environ.get(NOUN_VARIABLE), os.environ.get(CHOSEN_VARIABLE, "").split()
    if noun is None:
        return
    for case in (*correct_of(noun), *faults_of(noun)):
        if not chosen or case.name in chosen:
            name = "Test" + case.name.title().replace("-", "")
            globals()[name] = type(name, (case.suite(),), {"__module__": __name__, "kit_case": case})


_collect()
