"""The promises of a cluster, checked against what its clients were told. Pure.

Nothing that was acknowledged is lost, doubled or moved; offsets have no gaps; a producer's records keep their order; a
consumer never skips a record, never goes back, and never reads what is not there in the end. Groups are in
`group_checker`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain, pairwise

from tests.chaos.group_checker import group_violations
from tests.chaos.history import Final, History, Place, Polled, Sent

_SHOWN = 10


def violations(history: History, final: Final) -> list[str]:
    """Every broken promise as a sentence, each kind of them cut at some; none when all were kept."""
    checks = (
        _complaints(history),
        _gaps(final),
        _lost(history, final),
        _unanswered(history),
        _doubled(final),
        _order(final),
        _consumers(history, final),
        *(group_violations(group, told, final) for group, told in history.groups.items()),
    )
    return [broken for check in checks for broken in _some(check)]


def _some(found: Iterator[str]) -> list[str]:
    first = [one for one, _ in zip(found, range(_SHOWN + 1), strict=False)]
    return first if len(first) <= _SHOWN else [*first[:_SHOWN], "… and more of this kind"]


def _complaints(history: History) -> Iterator[str]:
    yield from history.complaints


def _gaps(final: Final) -> Iterator[str]:
    for partition, records in final.items():
        for expected, one in enumerate(records):
            if one.place.offset != expected:
                yield f"{partition} has {one.place.offset} where {expected} should be"
                break


def _lost(history: History, final: Final) -> Iterator[str]:
    at = {one.place: one.sent for one in chain.from_iterable(final.values())}
    there = set(at.values())
    told: dict[Place, Sent] = {}
    for one in history.acknowledged:
        if one.place.offset < 0:  # a client may learn that a record is there already, and not where
            if one.sent not in there:
                yield f"{_shown(one.sent)} was acknowledged, and is nowhere"
            continue
        found = at.get(one.place)
        if found != one.sent:
            yield f"{_shown(one.sent)} was acknowledged at {_at(one.place)}, where {_shown(found)} is"
        before = told.setdefault(one.place, one.sent)
        if before != one.sent:
            yield f"{_at(one.place)} was given to {_shown(before)} and to {_shown(one.sent)}"


def _unanswered(history: History) -> Iterator[str]:
    """Producers give up on nothing: what was sent before a record that was acknowledged has an answer too."""
    answered: defaultdict[int, set[int]] = defaultdict(set)
    for one in history.acknowledged:
        answered[one.sent.producer].add(one.sent.number)
    for producer, numbers in answered.items():
        for missing in sorted(set(range(max(numbers))) - numbers):
            yield f"{_shown(Sent(producer, missing))} was never acknowledged, later ones were"


def _doubled(final: Final) -> Iterator[str]:
    counts = Counter(one.sent for one in chain.from_iterable(final.values()))
    for sent, count in counts.items():
        if count > 1:
            yield f"{_shown(sent)} is there {count} times"


def _order(final: Final) -> Iterator[str]:
    for records in final.values():
        newest: dict[int, int] = {}
        for one in records:
            before = newest.get(one.sent.producer, -1)
            if one.sent.number < before:
                yield f"{_at(one.place)}: {_shown(one.sent)} comes after {before}"
            newest[one.sent.producer] = max(before, one.sent.number)


def _consumers(history: History, final: Final) -> Iterator[str]:
    for (consumer, partition), records in history.polled.items():
        who = f"consumer {consumer} of partition {partition}"
        if records and records[0].place.offset != 0:
            yield f"{who} began at {records[0].place.offset}"
        for before, after in pairwise(records):
            if after.place.offset != before.place.offset + 1:
                yield f"{who} was at {before.place.offset}, then at {after.place.offset}"
        there = final.get(partition, [])
        for one in records:
            if one.place.offset >= len(there) or there[one.place.offset] != one:
                yield f"{who} read {_shown(one.sent)} at {one.place.offset}, where {_in(there, one)} is"


def _in(there: list[Polled], one: Polled) -> str:
    return _shown(there[one.place.offset].sent if one.place.offset < len(there) else None)


def _shown(sent: Sent | None) -> str:
    return "nothing" if sent is None else f"record {sent.number} of producer {sent.producer}"


def _at(place: Place) -> str:
    return f"{place.partition}@{place.offset}"


def longest_gap_s(history: History, *, since_s: float, until_s: float) -> float:
    """The longest time in which no producer at all got an acknowledgement."""
    times = sorted(one.at_s for one in history.acknowledged if since_s <= one.at_s <= until_s)
    return max((after - before for before, after in pairwise([since_s, *times, until_s])), default=0.0)
