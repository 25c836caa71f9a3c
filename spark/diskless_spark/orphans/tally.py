"""What a search looked at and what it made of it, counted by each task and added up. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import Any, NamedTuple

DAY_MS = 86_400_000
SAMPLE_KEYS = 20


class Kind(IntEnum):
    """What an object is to a search."""

    OLD = 1
    """A WAL object from before the threshold: an orphan, unless somebody knows it."""
    YOUNG = 2
    OTHER = 3
    """No WAL object of this cluster, by its key."""
    GONE = 4
    """In the inventory, unknown to the snapshots, and no longer in the store."""


class Amount(NamedTuple):
    objects: int = 0
    size_bytes: int = 0

    def plus(self, other: Amount) -> Amount:
        return Amount(self.objects + other.objects, self.size_bytes + other.size_bytes)


@dataclass(slots=True)
class Tally:
    """Objects of each kind, and candidates by the day of their creation, in days since the epoch (UTC).

    Attributes:
        sample: keys of some candidates.
    """

    kinds: dict[Kind, Amount] = field(default_factory=dict)
    candidates_by_day: dict[int, Amount] = field(default_factory=dict)
    sample: list[str] = field(default_factory=list)

    def count(self, kind: Kind, amount: Amount) -> None:
        self.kinds[kind] = self.of(kind).plus(amount)

    def count_candidates(self, day: int, amount: Amount) -> None:
        self.candidates_by_day[day] = self.candidates_by_day.get(day, Amount()).plus(amount)

    def show(self, keys: Iterable[str]) -> None:
        """Take some of these for the sample."""
        self.sample.extend(islice(keys, SAMPLE_KEYS - len(self.sample)))

    def add(self, other: Tally) -> None:
        for kind, amount in other.kinds.items():
            self.count(kind, amount)
        for day, amount in other.candidates_by_day.items():
            self.count_candidates(day, amount)
        self.show(other.sample)

    def of(self, kind: Kind) -> Amount:
        return self.kinds.get(kind, Amount())

    @property
    def listed(self) -> Amount:
        """All objects that were looked at."""
        return _sum(self.of(kind) for kind in (Kind.OLD, Kind.YOUNG, Kind.OTHER))

    @property
    def candidates(self) -> Amount:
        return _sum(self.candidates_by_day.values())

    @property
    def known(self) -> Amount:
        """Old objects that a snapshot has."""
        old, rest = self.of(Kind.OLD), self.candidates.plus(self.of(Kind.GONE))
        return Amount(old.objects - rest.objects, old.size_bytes - rest.size_bytes)

    def packed(self) -> str:
        """As text, for `unpacked`."""
        return json.dumps([list(self.kinds.items()), list(self.candidates_by_day.items()), self.sample])


def unpacked(text: str) -> Tally:
    kinds, days, sample = json.loads(text)
    return Tally(
        {Kind(kind): Amount(*amount) for kind, amount in kinds},
        {day: Amount(*amount) for day, amount in days},
        sample,
    )


def as_mapping(amount: Amount) -> Mapping[str, Any]:
    return {"objects": amount.objects, "bytes": amount.size_bytes}


def _sum(amounts: Iterable[Amount]) -> Amount:
    total = Amount()
    for amount in amounts:
        total = total.plus(amount)
    return total
