"""All faults that there are, by noun."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tests.kit.fault import Correct, Fault, Unfound

FAULTY = Path(__file__).parent / "faulty"

NOUNS = (
    "coordinator_log",
    "coordinator_store",
    "wal_object_store",
    "offset_assignment",
    "gateway_placement",
    "orphan_detection",
    "remote_storage",
    "remote_log_metadata",
    "segment_compaction",
)
"""In the order of the page."""

NOUN_VARIABLE = "DISKLESS_KIT_NOUN"
"""Says whose cases `tests.kit.cases` has."""

CHOSEN_VARIABLE = "DISKLESS_KIT_CHOSEN"
"""Names of cases, with spaces between them; without one, all of the noun."""


def faults_of(noun: str) -> list[Fault]:
    """Every fault of a noun.

    Raises:
        ValueError: two of them have one name.
    """
    found = [fault for module in _modules(noun) for fault in module.FAULTS]
    names = [fault.name for fault in found]
    if len(set(names)) < len(names):
        raise ValueError(f"two faults of {noun} have one name: {sorted(names)}")
    return found


def correct_of(noun: str) -> list[Correct]:
    """What has to pass."""
    return [correct for module in _modules(noun) for correct in getattr(module, "CORRECT", ())]


def unfound_of(noun: str) -> list[Unfound]:
    """What is not found."""
    return [unfound for module in _modules(noun) for unfound in getattr(module, "UNFOUND", ())]


def _modules(noun: str) -> Iterator[ModuleType]:
    for path in sorted(FAULTY.glob(f"{noun}*.py")):
        yield importlib.import_module(f"tests.kit.faulty.{path.stem}")
