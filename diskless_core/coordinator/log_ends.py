"""Looks at the first and the last entries of a shard's log before anything is done with it: which log it is."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any, cast

from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import Entry
from diskless_core.coordinator.log_identity import replay_move
from diskless_core.plugin.coordinator_log import CoordinatorLog, LogBatch, LogBounds
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol import messages, record_frames
from diskless_core.protocol.record_batch import CorruptBatchError, UnsupportedCompressionError
from diskless_core.protocol.record_frames import RecordFormatError

FIRST_ENTRIES = 64
"""So many are looked through for the log's id, which its first leader writes."""

PATIENCE_S = 5.0
"""How long a start waits for these entries."""


async def logged_id(log: CoordinatorLog, shard: ShardId, bounds: LogBounds) -> uuid.UUID | None:
    """The id that a log says it has; None where its first entries are pruned, or do not say.

    Raises:
        CoordinatorLogError: the log cannot be read.
    """
    named = await first_name(log, shard, bounds)
    return record_frames.required_id(named.log_id) if named is not None else None


async def first_name(log: CoordinatorLog, shard: ShardId, bounds: LogBounds) -> messages.LogNamedRecord | None:
    """The record with the log's id; None as `logged_id`, errors as there."""
    if bounds.start > 0:
        return None
    for batch in await _first(log, shard, bounds, 0, FIRST_ENTRIES):
        for message in _common(batch):
            if isinstance(message, messages.LogNamedRecord):
                return message
    return None


async def require_not_moved(log: CoordinatorLog, shard: ShardId, bounds: LogBounds) -> None:
    """Refuse a log that ends with the word that it was moved.

    Raises:
        LogMovedError: it does.
        CoordinatorLogError: the log cannot be read.
    """
    for batch in await _first(log, shard, bounds, bounds.end - 1, 1):
        for message in _common(batch):
            if isinstance(message, messages.LogMovedRecord):
                replay_move(message)


async def _first(log: CoordinatorLog, shard: ShardId, bounds: LogBounds, offset: int, count: int) -> list[LogBatch]:
    found = list[LogBatch]()
    if offset < bounds.start or offset >= bounds.end:
        return found
    try:
        async with asyncio.timeout(PATIENCE_S), aclosing(cast("Any", log.read(shard, offset))) as stream:
            async for batches in stream:
                found += batches
                if len(found) >= count or found[-1].next_offset >= bounds.end:
                    break
    except TimeoutError:
        pass  # a log that is slow now is judged when its entries are replayed
    return found[:count]


def _common(batch: LogBatch) -> Iterator[Any]:
    """The entry's records without a key. What cannot be read is for replay to judge."""
    try:
        entry = entries.decode(batch.data)
        if isinstance(entry, Entry):
            for data in entry.records:
                if data.key is None and data.value is not None:
                    yield record_frames.decode_record(data.value)
    except (RecordFormatError, CorruptBatchError, UnsupportedCompressionError):
        return
