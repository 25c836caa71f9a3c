"""The nouns that can be tried: which suite each has, and what depends on the parts of its contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SUITES = Path(__file__).parent / "suites"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedNoun:
    """How a noun is tried.

    Attributes:
        module: file in `SUITES`.
        suite: class in it.
        advice: what follows where a promise is broken.
        parts: the same for parts of the suite, by the class that holds them.
    """

    module: str
    suite: str
    advice: str
    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """What pytest is told to collect."""
        return f"{SUITES / self.module}.py::{self.suite}"


_SHARED = "Have one broker on it, not several, until its author has mended it."
_POLICY = "Choose another backend until its author has mended it."

TRIED: Mapping[str, TriedNoun] = {
    "coordinator_log": TriedNoun(
        module="coordinator_log",
        suite="TestCoordinatorLog",
        advice="Keep no cluster's metadata there: brokers can lose what they acknowledged, or stop.",
        parts={"LogSharingContract": _SHARED},
    ),
    "coordinator_store": TriedNoun(
        module="coordinator_store",
        suite="TestCoordinatorStore",
        advice="Choose another store: a broker's answers would differ from its log. Nothing is lost, the log has it.",
    ),
    "wal_object_store": TriedNoun(
        module="wal_object_store",
        suite="TestObjectStore",
        advice="Keep no records there: a broker can lose or hide what it acknowledged, or stop.",
        parts={
            "ConditionalWritesContract": "Choose a coordinator_log that does not keep its entries in this object "
            "store: it would lose them. WAL objects themselves do not need this promise."
        },
    ),
    "offset_assignment": TriedNoun(module="policies", suite="TestOffsetAssignment", advice=_POLICY),
    "gateway_placement": TriedNoun(module="policies", suite="TestGatewayPlacement", advice=_POLICY),
    "orphan_detection": TriedNoun(module="policies", suite="TestOrphanDetection", advice=_POLICY),
    "remote_storage": TriedNoun(
        module="remote_storage",
        suite="TestRemoteStorage",
        advice="Move no records there: once they are moved they are deleted where they were.",
    ),
    "remote_log_metadata": TriedNoun(
        module="remote_log_metadata",
        suite="TestRemoteLogMetadata",
        advice="Do not use it: segments that were copied would not be found, or be deleted too early.",
    ),
    "segment_compaction": TriedNoun(
        module="policies",
        suite="TestSegmentCompaction",
        advice="Choose another engine: what it makes of records is not what consumers should get.",
    ),
}
