"""Looks at the first and the last entries of a shard's log before anything is done with it: which log it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, NamedTuple, cast

from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import Acceptance, Claim, Entry
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.log_identity import LogMovedError, LogName, decode_name
from diskless_core.plugin.coordinator_log import CoordinatorLog, LogBatch, LogBounds, LogOffsetPrunedError
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol import messages, record_frames
from diskless_core.protocol.record_frames import RecordFormatError

FIRST_ENTRIES = 64
"""So many are looked through for the log's id, which its first leader writes and which all entries have after that."""

LAST_OFFSETS = 64
"""Among so many is the word that a log was moved: after it there can only be claims of brokers that had not read it."""

PATIENCE_S = 5.0
"""How long a start waits for these entries. A log that is slower is judged when its entries are replayed."""


async def look(log: CoordinatorLog, shard: ShardId) -> tuple[LogBounds, LogName | None]:
    """Where a log begins and ends, and what it says it is, see `name_of`. A leader may prune it at the same time.

    Raises:
        CoordinatorError: it was moved.
        CoordinatorLogError: it cannot be read.
    """
    while True:
        bounds = await log.bounds(shard)
        try:
            await require_not_moved(log, shard, bounds)
            return bounds, await name_of(log, shard, bounds)
        except LogOffsetPrunedError:
            continue  # it begins later by now


async def name_of(log: CoordinatorLog, shard: ShardId, bounds: LogBounds) -> LogName | None:
    """What a log says it is; None where its first entries do not say. `moved_from` may be pruned.

    Raises:
        CoordinatorLogError: the log cannot be read.
    """
    seen = 0
    async with aclosing(read_entries(log, shard, bounds.start, bounds.end)) as found:
        async for _, entry in found:
            if isinstance(entry, Entry):
                for message in common_messages(entry):
                    if isinstance(message, messages.LogNamedRecord):
                        return decode_name(message)
                if entry.log_id is not None:
                    return LogName(entry.log_id)
            seen += 1
            if seen >= FIRST_ENTRIES:
                break
    return None


class Successor(NamedTuple):
    """Where a shard goes on.

    Attributes:
        name: of the log on which it does.
        destination: the coordinator_log that has it.
    """

    name: LogName
    destination: str


async def successor_of(log: CoordinatorLog, shard: ShardId, bounds: LogBounds) -> Successor | None:
    """What the last entries of a log say of where it goes on; None where they do not say that it was moved.

    Raises:
        CoordinatorLogError: the log cannot be read.
    """
    tail = await _entries(log, shard, max(bounds.start, bounds.end - LAST_OFFSETS), bounds.end)
    for batch, entry in reversed(tail):
        if isinstance(entry, Entry):
            for message in common_messages(entry):
                if isinstance(message, messages.LogMovedRecord) and await _counts(log, shard, bounds, batch, entry):
                    log_id = record_frames.required_id(message.log_id)
                    return Successor(LogName(log_id, entry.log_id), message.destination)
    return None


async def require_not_moved(log: CoordinatorLog, shard: ShardId, bounds: LogBounds) -> None:
    """Refuse a log that was moved.

    Raises:
        CoordinatorError: it was.
        CoordinatorLogError: the log cannot be read.
    """
    moved = await successor_of(log, shard, bounds)
    if moved is not None:
        raise CoordinatorError(f"{shard} cannot be started: {LogMovedError(moved.destination)}")


async def read_entries(
    log: CoordinatorLog, shard: ShardId, start: int, end: int
) -> AsyncGenerator[tuple[LogBatch, Claim | Entry], None]:
    """A log's entries from `start` to before `end`, as far as they can be read within `PATIENCE_S` for each."""
    if start >= end:
        return
    stream = log.read(shard, start)
    try:
        while True:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    batches = await anext(stream)
            except (TimeoutError, StopAsyncIteration):
                return
            for batch in batches:
                if batch.offset >= end:
                    return
                yield batch, entries.decode_or_ignore(batch.data)
            if batches[-1].next_offset >= end:
                return
    finally:
        await _close(stream)


def common_messages(entry: Entry) -> Iterator[Any]:
    """The entry's records that stand in logs of all kinds. What cannot be read is for replay to judge."""
    for data in entry.records:
        if data.key is None and data.value is not None:
            try:
                yield record_frames.decode_record(data.value)
            except RecordFormatError:
                return


async def _counts(log: CoordinatorLog, shard: ShardId, bounds: LogBounds, batch: LogBatch, entry: Entry) -> bool:
    """Whether an entry was accepted, by the entries of its term."""
    if entry.term < bounds.start:
        return True  # replay judges it, and stops there if it counts
    acceptance = Acceptance()
    for before, found in await _entries(log, shard, entry.term, batch.offset):
        acceptance = acceptance.after(found, before)
    return acceptance.accepts(entry)


async def _entries(log: CoordinatorLog, shard: ShardId, start: int, end: int) -> list[tuple[LogBatch, Claim | Entry]]:
    async with aclosing(read_entries(log, shard, start, end)) as found:
        return [one async for one in found]


async def _close(stream: AsyncIterator[Any]) -> None:
    if isinstance(stream, AsyncGenerator):
        await cast("AsyncGenerator[Any, None]", stream).aclose()
