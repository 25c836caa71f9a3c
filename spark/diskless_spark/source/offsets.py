"""Which offsets a query reads, and how a stream notes them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from diskless_spark.source.decoding import Place
from diskless_spark.source.options import EARLIEST, At, SourceOptionError

Offsets = Mapping[Place, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a stream is in its partitions. A checkpoint has it as `{"topic": {"id": …, "offsets": {"0": 23}}}`.

    Attributes:
        topic_ids: Kafka's text form of the id of each topic that the offsets belong to.
    """

    topic_ids: Mapping[str, str]
    offsets: Offsets

    def noted(self) -> dict[str, Any]:
        """The form of a checkpoint, in order."""
        found: dict[str, Any] = {}
        for place in sorted(self.offsets):
            topic = found.setdefault(place.topic, {"id": self.topic_ids[place.topic], "offsets": {}})
            topic["offsets"][str(place.partition)] = self.offsets[place]
        return found

    @classmethod
    def from_noted(cls, found: Mapping[str, Any]) -> Position:
        """A position from the form of a checkpoint."""
        return cls(
            topic_ids={name: topic["id"] for name, topic in found.items()},
            offsets={
                Place(name, int(partition)): offset
                for name, topic in found.items()
                for partition, offset in topic["offsets"].items()
            },
        )

    def of(self, place: Place, topic_id: str) -> int:
        """Where it is in a partition of the topic of this id: at its beginning if it does not know it."""
        return self.offsets.get(place, 0) if self.topic_ids.get(place.topic) == topic_id else 0


NOWHERE = Position(topic_ids={}, offsets={})
"""The beginning of everything."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A partition as it is: from `start` on, which is the log start, up to before `end`, the high watermark."""

    start: int
    end: int


@dataclass(slots=True)
class Losses:
    """What was asked for and is not there, in words."""

    found: list[str] = field(default_factory=list)

    def add(self, place: Place, words: str) -> None:
        self.found.append(f"{place.name}: {words}")

    def add_topic(self, topic: str, words: str) -> None:
        self.found.append(f"{topic}: {words}")


def resumed(
    position: Position, topic_ids: Mapping[str, str], extents: Mapping[Place, Extent], losses: Losses
) -> Position:
    """A position for the topics that have these names now, other ones left as they are.

    One that was created anew is read from its beginning. What may have been left of the old one is a loss.
    """
    anew = {
        topic: topic_ids[topic] for topic, known in position.topic_ids.items() if topic_ids.get(topic, known) != known
    }
    for topic in sorted(anew):
        known, now = position.topic_ids[topic], anew[topic]
        losses.add_topic(
            topic,
            f"it was deleted and created anew, its id was {known} and is {now} now; what was not read of the old one "
            "is gone, and the new one has to be read from its beginning",
        )
    kept = {place: offset for place, offset in position.offsets.items() if place.topic not in anew}
    begun = {place: extent.start for place, extent in extents.items() if place.topic in anew}
    return Position(topic_ids={**position.topic_ids, **anew}, offsets={**kept, **begun})


def without_gone(
    position: Position, extents: Mapping[Place, Extent], wants: Callable[[Place], bool], losses: Losses
) -> Position:
    """A position without what is wanted and not there any more. That is a loss, for there may be more than it knows.

    What is not wanted stays: a query that wants it again goes on where it was.
    """
    gone = {place for place in position.offsets if place not in extents and wants(place)}
    words = "what was not read of it is gone"
    there = {place.topic for place in extents}
    for topic in sorted({place.topic for place in gone} - there):
        losses.add_topic(topic, f"it was deleted; {words}")
    for place in sorted(gone):
        if place.topic in there:
            losses.add(place, f"it does not exist any more; {words}")
    kept = {place: offset for place, offset in position.offsets.items() if place not in gone}
    return Position(topic_ids=position.topic_ids, offsets=kept)


def resolve(at: At, extents: Mapping[Place, Extent], by_time: Mapping[Place, int | None]) -> Offsets:
    """Offsets for what is asked for. Those by time are looked up before: None where no record is so late.

    Raises:
        SourceOptionError: a partition is not named that has to be, or one is named that does not exist.
    """
    named = at.offsets or at.timestamps_ms
    if named:
        absent = sorted(place for place in extents if place not in named)
        unknown = sorted(place for place in named if place not in extents)
        if absent or unknown:
            place = (absent or unknown)[0]
            why = "is not named: all partitions have to be" if absent else "is named, but is not read"
            raise SourceOptionError(f"{at.option}: the partition {place.name} {why}")
    return {place: _resolve(at, place, extent, by_time) for place, extent in extents.items()}


def _resolve(at: At, place: Place, extent: Extent, by_time: Mapping[Place, int | None]) -> int:
    if place in by_time:
        found = by_time[place]
        return extent.end if found is None else found
    offset = at.offsets.get(place, at.default)
    if offset is None:
        raise SourceOptionError(f"nothing says where to begin or to end in {place.name}")
    if offset < 0:
        return extent.start if offset == EARLIEST else extent.end
    return offset


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of a partition: from `start` on, up to before `end`."""

    start: int
    end: int


def spans(starts: Offsets, ends: Offsets, extents: Mapping[Place, Extent], losses: Losses) -> dict[Place, Span]:
    """What is to be read, cut to what there is; what is cut away is a loss.

    A partition without a start is new and begins at its first record, which is a loss unless that has offset 0.
    """
    found: dict[Place, Span] = {}
    for place in sorted(ends):
        extent = extents.get(place)
        if extent is None:
            if starts.get(place, 0) < ends[place]:
                losses.add(place, "it does not exist any more")
            continue
        start, end = starts.get(place, 0), ends[place]
        if start < extent.start and start < end:
            losses.add(place, f"offsets from {start} on are asked for, but its first one is {extent.start}")
        if max(start, end) > extent.end:
            losses.add(place, f"offset {max(start, end)} is asked for, but it ends before {extent.end}")
        start, end = max(start, extent.start), min(end, extent.end)
        if start < end:
            found[place] = Span(start, end)
    return found


def count(starts: Offsets, ends: Offsets) -> int:
    """How many offsets there are to read."""
    return sum(max(0, end - starts.get(place, end)) for place, end in ends.items())


def share_out(limit: int, starts: Offsets, ends: Offsets) -> Offsets:
    """Ends with at most `limit` offsets in all, each partition with its part of what there is.

    Rounding favours no partition for long: one that gets nothing at first gets the rest, in order of what it lacks.
    """
    sizes = {place: max(0, end - starts.get(place, end)) for place, end in ends.items()}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    shares = {place: size * limit // total for place, size in sizes.items()}
    rest = limit - sum(shares.values())
    for place in sorted(sizes, key=lambda place: (-(sizes[place] * limit % total), place))[:rest]:
        shares[place] += 1
    return {place: ends[place] - sizes[place] + shares[place] for place in ends}
