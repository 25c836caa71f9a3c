"""The promises of consumer groups, checked against what their members were told. Pure.

A group is told of every record at least once and skips none. What it finds committed is what one of its members
committed: the newest that was answered, or one whose answer never came or came later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.chaos.history import Final, Found, GroupHistory


def group_violations(group: str, history: GroupHistory, final: Final) -> Iterator[str]:
    """Every broken promise of one group as a sentence."""
    yield from (f"group {group}: {broken}" for broken in _reads(history, final))
    yield from (f"group {group}: {broken}" for broken in _offsets(history))


def _reads(history: GroupHistory, final: Final) -> Iterator[str]:
    seen: defaultdict[int, set[int]] = defaultdict(set)
    frontier: defaultdict[int, int] = defaultdict(int)
    positions: dict[tuple[str, int], int] = {}
    for read in history.reads:
        partition, offset = read.place
        place = f"{partition}@{offset}"
        before = positions.get((read.member, partition))
        if read.assigned_s is None and before is not None and offset != before + 1:
            yield f"{read.member} was at {partition}@{before}, then at {place}, with no assignment in between"
        positions[read.member, partition] = offset
        if offset > frontier[partition]:
            yield f"{read.member} reads {place}, and nobody read {partition}@{frontier[partition]}"
        seen[partition].add(offset)
        while frontier[partition] in seen[partition]:
            frontier[partition] += 1
        records = final.get(partition, [])
        if offset >= len(records) or records[offset].sent != read.sent:
            yield f"{read.member} reads record {read.sent.number} of producer {read.sent.producer} at {place}"
    for partition, records in final.items():
        if frontier[partition] < len(records):
            yield f"never reads {partition}@{frontier[partition]}, and the partition ends at {len(records)}"


def _offsets(history: GroupHistory) -> Iterator[str]:
    """A committed offset is a register: what is found was written last, or by a commit that had not ended by then."""
    first = [
        Found(read.place, read.assigned_s, read.at_s, read.member)
        for read in history.reads
        if read.assigned_s is not None
    ]
    for found in [*first, *history.found]:
        if not _may_be_found(history, found):
            newest = max(_answered(history, found).values(), default=None)
            yield f"{found.who} finds {found.place.partition}@{found.place.offset} committed, after {newest} was"


def _answered(history: GroupHistory, found: Found) -> Mapping[float, int]:
    """Offsets that were committed before somebody looked, by when the commit began."""
    return {
        commit.begun_s: commit.place.offset
        for commit in history.commits
        if commit.place.partition == found.place.partition and commit.ended_s < found.begun_s
    }


def _may_be_found(history: GroupHistory, found: Found) -> bool:
    last_begun_s = max(_answered(history, found), default=float("-inf"))
    if found.place.offset == 0 and last_begun_s == float("-inf"):
        return True  # nothing is committed: groups begin at the beginning
    return any(
        commit.place == found.place and commit.begun_s < found.ended_s and commit.ended_s >= last_begun_s
        for commit in history.commits
    )
