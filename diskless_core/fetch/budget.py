"""How a request's budget is shared out among its partitions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from diskless_core.diskless.commands import FoundRuns
from diskless_core.fetch.query import FetchQuery
from diskless_core.protocol.errors import ErrorCode
from diskless_core.wal.runs import Run


class Choice(NamedTuple):
    """What is worth reading.

    Attributes:
        runs: of each partition, in the order of the query.
        from_segments: how many bytes of each partition whose offset is in a segment, by its place in the query.
    """

    runs: list[Sequence[Run]]
    from_segments: dict[int, int]


def choose(found: Sequence[FoundRuns], query: FetchQuery, order: Sequence[int], max_bytes: int) -> Choice:
    """Each partition's runs, or part of a segment, up to its own limit, until `max_bytes` are reached."""
    runs: list[Sequence[Run]] = [()] * len(found)
    from_segments: dict[int, int] = {}
    left, has_any = max_bytes, False
    for index in order:
        if left <= 0 and has_any:
            break
        wanted, answer = query.partitions[index], found[index]
        limit = max(1, min(left, wanted.max_bytes))
        if wanted.offset < answer.local_start_offset and answer.error is ErrorCode.NONE:
            from_segments[index] = limit
            left -= limit
            has_any = True
            continue
        taken = count = 0
        for run in answer.runs:
            if taken >= limit:
                break
            taken += run.byte_size
            count += 1
        runs[index] = answer.runs[:count]
        left -= taken
        has_any = has_any or count > 0
    return Choice(runs, from_segments)
