"""What a search found, for those who want to know before anything is deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import fsspec

from diskless_spark.orphans.inventory import Inventory
from diskless_spark.orphans.tally import Kind, Tally, as_mapping

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One search. Times are in milliseconds since the epoch.

    Attributes:
        inventory: what was read instead of listing the store.
        snapshots: when the newest snapshot of each shard was taken that has one.
        unread_parts: parts of snapshots that could not be read, because newer ones took their place or they are
            damaged: what they know is among the candidates.
    """

    made_at_ms: int
    threshold_ms: int
    inventory: Inventory | None
    snapshots: Mapping[str, int]
    unread_parts: int
    tally: Tally

    def as_mapping(self) -> Mapping[str, Any]:
        """The report as JSON has it."""
        inventory = self.inventory
        return {
            "made_at_ms": self.made_at_ms,
            "threshold_ms": self.threshold_ms,
            "inventory": inventory and {"url": inventory.url, "created_ms": inventory.created_ms},
            "snapshots": dict(self.snapshots),
            "unread_parts": self.unread_parts,
            "listed": as_mapping(self.tally.listed),
            "other": as_mapping(self.tally.of(Kind.OTHER)),
            "too_young": as_mapping(self.tally.of(Kind.YOUNG)),
            "known": as_mapping(self.tally.known),
            "gone": as_mapping(self.tally.of(Kind.GONE)),
            "candidates": as_mapping(self.tally.candidates),
            "candidates_by_day": {
                (_EPOCH + timedelta(days=day)).date().isoformat(): as_mapping(amount)
                for day, amount in sorted(self.tally.candidates_by_day.items())
            },
            "sample": self.tally.sample,
        }

    def write(self, folder_url: str, options: Mapping[str, Any]) -> str:
        """Put the report into a folder, and return its URL. It blocks.

        Raises:
            OSError: it cannot be written.
        """
        url = f"{folder_url}/orphans-{self.made_at_ms}.json"
        files, path = fsspec.core.url_to_fs(url, **options)
        files.makedirs(files._parent(path), exist_ok=True)  # noqa: SLF001
        files.pipe_file(path, json.dumps(self.as_mapping(), indent=2).encode())
        return url
