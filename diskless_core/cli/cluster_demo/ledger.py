"""What clients were told, record by record, and the verdict on it. Knows no client, no process and no clock.

A record is known by who sent it, to which partition, and as which of the records that this producer sent there: 0, 1, 2
and so on. So a partition tells by itself whether something is missing, there twice, or in the wrong order.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class Stamp(NamedTuple):
    """A record: the `number`th that a producer sent to a partition."""

    producer: int
    partition: int
    number: int

    @classmethod
    def of(cls, value: bytes, partition: int) -> Stamp:
        """Read what `value` wrote.

        Raises:
            ValueError: the record is not one of these producers'.
        """
        producer, number = value.split(b" ", 2)[:2]
        return cls(int(producer), partition, int(number))

    def value(self, padding: bytes = b"") -> bytes:
        """The value of the record."""
        return b"%d %d %s" % (self.producer, self.number, padding)


Log = Mapping[int, Sequence[tuple[int, Stamp]]]
"""By partition, all records as they are read in the end: offset and stamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found in the end. Everything but the first three is a broken promise where it is not 0.

    Attributes:
        acknowledged: records of which a producer was told where they are.
        read: records that the group got, each counted once.
        read_again: what the group got more than once: members repeat what was not committed when partitions move.
        refused: records that a producer was told have failed.
        lost: acknowledged records that are nowhere.
        moved: acknowledged records that are at another offset than their producer was told.
        doubled: records that are there more than once, each further time counted.
        reordered: records that come after a later one of their producer.
        unread: records that are there, and the group did not get.
        changed: records that the group got at an offset where another one is now, or none.
    """

    acknowledged: int
    read: int
    read_again: int
    refused: int
    lost: int
    moved: int
    doubled: int
    reordered: int
    unread: int
    changed: int

    def problems(self) -> list[str]:
        """What is wrong, as sentences; empty when every promise was kept."""
        found = {
            "were refused": self.refused,
            "were acknowledged and are lost": self.lost,
            "are at another offset than their producer was told": self.moved,
            "are there twice": self.doubled,
            "come after a later record of their producer": self.reordered,
            "were never given to the group": self.unread,
            "were given to the group and are not there any more": self.changed,
        }
        wrong = [f"{count:,} records {what}" for what, count in found.items() if count]
        if not self.acknowledged:
            wrong.append("no record was acknowledged")
        return wrong


class Ledger:
    """Notes what clients are told. Threads may note at once. Times are seconds of one monotonic clock, ascending."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offsets: dict[Stamp, int] = {}
        self._acknowledged_s: dict[int, list[float]] = defaultdict(list)
        self._newest: dict[tuple[int, int], int] = {}
        self._delivered: dict[tuple[int, int], Stamp] = {}
        self._delivered_s: list[float] = []
        self._read_again = 0
        self._changed = 0
        self.refused = 0
        self.complaints: list[str] = []

    def acknowledge(self, stamp: Stamp, offset: int, at_s: float) -> None:
        """A producer was told that its record is at this offset."""
        with self._lock:
            self._offsets[stamp] = offset
            self._acknowledged_s[stamp.producer].append(at_s)
            key = stamp.producer, stamp.partition
            self._newest[key] = max(self._newest.get(key, -1), stamp.number)

    def refuse(self, reason: str) -> None:
        """A producer was told that a record has failed."""
        with self._lock:
            self.refused += 1
            self._complain(f"a producer was told: {reason}")

    def complain(self, what: str) -> None:
        """A client met what it should not have."""
        with self._lock:
            self._complain(what)

    def _complain(self, what: str) -> None:
        if what not in self.complaints:
            self.complaints.append(what)

    def deliver(self, offset: int, stamp: Stamp, at_s: float) -> None:
        """A member of the group got a record."""
        with self._lock:
            known = self._delivered.setdefault((stamp.partition, offset), stamp)
            if len(self._delivered_s) == len(self._delivered):
                self._read_again += 1
                self._changed += known != stamp
            else:
                self._delivered_s.append(at_s)

    @property
    def acknowledged(self) -> int:
        return len(self._offsets)

    @property
    def read(self) -> int:
        return len(self._delivered)

    def newest(self) -> dict[tuple[int, int], int]:
        """By producer and partition the highest number that was acknowledged."""
        with self._lock:
            return dict(self._newest)

    def all_is_read(self) -> bool:
        """Whether the group got everything that was acknowledged."""
        with self._lock:
            return all((stamp.partition, offset) in self._delivered for stamp, offset in self._offsets.items())

    def longest_silence_s(self, since_s: float, until_s: float) -> tuple[float, float]:
        """The longest time without an acknowledgement of any one producer, and that without a record for the group.

        Of times that began or ended outside, the whole is counted.
        """
        with self._lock:
            producers = [longest_gap_s(times, since_s, until_s) for times in self._acknowledged_s.values()]
            return max(producers, default=0.0), longest_gap_s(self._delivered_s, since_s, until_s)

    def verdict(self, log: Log) -> Verdict:
        """Compare what clients were told with what is there in the end."""
        places: dict[Stamp, int] = {}
        doubled = reordered = 0
        for records in log.values():
            last: dict[int, int] = {}
            for offset, stamp in records:
                if stamp in places:
                    doubled += 1
                    continue
                places[stamp] = offset
                reordered += stamp.number < last.get(stamp.producer, -1)
                last[stamp.producer] = max(stamp.number, last.get(stamp.producer, -1))
        there = {(partition, offset): stamp for partition, records in log.items() for offset, stamp in records}
        with self._lock:
            return Verdict(
                acknowledged=len(self._offsets),
                read=len(self._delivered),
                read_again=self._read_again,
                refused=self.refused,
                lost=sum(stamp not in places for stamp in self._offsets),
                moved=sum(places.get(stamp, offset) != offset for stamp, offset in self._offsets.items()),
                doubled=doubled,
                reordered=reordered,
                unread=sum(place not in self._delivered for place in there),
                changed=self._changed + sum(there.get(place) != one for place, one in self._delivered.items()),
            )


def longest_gap_s(times: Sequence[float], since_s: float, until_s: float) -> float:
    """The longest time between neighbours of `times` that reaches into the span; `until_s` ends the last one."""
    before = [at for at in times if at <= since_s][-1:] or [since_s]
    within = [at for at in times if since_s < at <= until_s]
    after = [at for at in times if at > until_s][:1] or [until_s]
    return max((later - earlier for earlier, later in pairwise([*before, *within, *after])), default=0.0)
