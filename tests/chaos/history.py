"""What clients of a cluster were told, record by record: acknowledgements and polls. Plain data."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Sent(NamedTuple):
    """What makes a record's value: who sent it, and its number among all that this producer sent."""

    producer: int
    number: int

    @classmethod
    def of(cls, value: bytes) -> Sent:
        """Read `<producer>.<number>`; anything after a space is padding.

        Raises:
            ValueError: no client of this run wrote that.
        """
        producer, _, number = value.split(b" ", 1)[0].partition(b".")
        return cls(int(producer), int(number))

    def value(self, padding: int = 0) -> bytes:
        return b"%d.%d %s" % (self.producer, self.number, b"." * padding)


class Place(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int


class Acknowledged(NamedTuple):
    """A producer was told where its record is, `at_s` seconds after the run began."""

    sent: Sent
    place: Place
    at_s: float


class Polled(NamedTuple):
    """A consumer got a record, as the next one of its partition."""

    place: Place
    sent: Sent


class GroupRead(NamedTuple):
    """A member of a group got a record.

    Attributes:
        assigned_s: when it was assigned the partition, where this is the first record since; else None.
    """

    member: str
    place: Place
    sent: Sent
    at_s: float
    assigned_s: float | None


class Commit(NamedTuple):
    """A member asked for an offset to be committed; `ended_s` is infinite if it was never told that it is."""

    place: Place
    begun_s: float
    ended_s: float


class Found(NamedTuple):
    """Somebody who looked from `begun_s` to `ended_s` found this offset committed; 0 if there was none."""

    place: Place
    begun_s: float
    ended_s: float
    who: str


@dataclass(slots=True)
class GroupHistory:
    """What the members of one group were told.

    Attributes:
        reads: in an order in which a record that a commit is about is before everything that follows from the commit.
    """

    reads: list[GroupRead] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)


@dataclass(slots=True)
class History:
    """All of it. Clients note from threads of their own.

    Attributes:
        polled: by consumer and partition, in the order of the polls.
        groups: by group id.
        complaints: errors that a client of an unbroken cluster never sees.
    """

    acknowledged: list[Acknowledged] = field(default_factory=list)
    polled: defaultdict[tuple[int, int], list[Polled]] = field(default_factory=lambda: defaultdict(list))
    groups: defaultdict[str, GroupHistory] = field(default_factory=lambda: defaultdict(GroupHistory))
    complaints: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledge(self, one: Acknowledged) -> None:
        with self._lock:
            self.acknowledged.append(one)

    def poll(self, consumer: int, one: Polled) -> None:
        with self._lock:
            self.polled[consumer, one.place.partition].append(one)

    def group_read(self, group: str, read: GroupRead) -> None:
        with self._lock:
            self.groups[group].reads.append(read)

    def group_commit(self, group: str, commit: Commit) -> None:
        with self._lock:
            self.groups[group].commits.append(commit)

    def group_found(self, group: str, found: Found) -> None:
        with self._lock:
            self.groups[group].found.append(found)

    def complain(self, who: str, what: str) -> None:
        with self._lock:
            self.complaints.append(f"{who}: {what}")


Final = Mapping[int, list[Polled]]
"""Every record of each partition, read from its beginning to its end when all was over."""
