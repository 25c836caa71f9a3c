"""What the `remote_storage` contract suite works with: segments, logs that come in pieces, and logs that break off."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle

from diskless_core.plugin.remote_storage import (
    IndexType,
    LogSegmentData,
    RemoteResourceNotFoundError,
    RemoteStorage,
)
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition

TIMEOUT_S = 300.0
"""How long a test waits for what has to happen."""

MEBIBYTE = 1024 * 1024

ODD_PIECES = (1, 4095, 65_537, 300_000, 7, 1_048_577, 8192)
"""Sizes of pieces that fit no block, no part and no page."""

SCRIBBLE = 0xEE


class BrokenLogError(Exception):
    """The log could not be read to its end."""


def body(size_bytes: int, seed: object = 0) -> bytes:
    """Bytes that repeat nowhere, the same for the same seed."""
    return hashlib.shake_128(repr(seed).encode()).digest(size_bytes)


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that a test copies. `pieces` are the sizes in which its log comes, over and over."""

    metadata: RemoteLogSegmentMetadata
    log: bytes
    indexes: Mapping[IndexType, bytes]
    pieces: Sequence[int] = field(default=ODD_PIECES)

    def data(self) -> LogSegmentData:
        """The segment as a storage gets it. The memory of each piece is used again for the next one."""
        return LogSegmentData(log=self._pieces, indexes=lambda: self.indexes)

    def broken_data(self, after_bytes: int) -> LogSegmentData:
        """The same, with a log that raises `BrokenLogError` when so many bytes have gone by."""

        async def broken() -> AsyncIterator[ObjectData]:
            yield self.log[:after_bytes]
            raise BrokenLogError

        return LogSegmentData(log=broken, indexes=_never)

    def stuck_data(self, after_bytes: int, stuck: asyncio.Event) -> LogSegmentData:
        """The same, with a log that sets the event when so many bytes have gone by, and does not go on."""

        async def waiting() -> AsyncIterator[ObjectData]:
            yield self.log[:after_bytes]
            stuck.set()
            await asyncio.Event().wait()

        return LogSegmentData(log=waiting, indexes=_never)

    def announced_data(self, log_gone: asyncio.Event) -> LogSegmentData:
        """The same, with an event that is set when the indexes are asked for: what is left is to publish the copy."""

        def indexes() -> Mapping[IndexType, bytes]:
            log_gone.set()
            return self.indexes

        return LogSegmentData(log=self._pieces, indexes=indexes)

    def known_with(self, custom_metadata: bytes | None) -> Segment:
        """The segment as it is known once it has been copied."""
        return replace(self, metadata=replace(self.metadata, custom_metadata=custom_metadata))

    async def _pieces(self) -> AsyncIterator[ObjectData]:
        memory, position = bytearray(max(self.pieces)), 0
        for size in cycle(self.pieces):
            piece = self.log[position : position + size]
            if not piece:
                return
            memory[: len(piece)] = piece
            yield memoryview(memory)[: len(piece)]
            memory[:] = bytes([SCRIBBLE]) * len(memory)
            position += size


def make_segment(
    size_bytes: int = 10_000,
    number: int = 1,
    *,
    topic: str = "orders",
    partition: int = 3,
    start_offset: int = 1_000,
    absent: Sequence[IndexType] = (IndexType.TRANSACTION,),
) -> Segment:
    """A segment with all indexes but the absent ones. Every `number` is another copy, with other content."""
    topic_id = uuid.UUID(bytes=hashlib.md5(topic.encode(), usedforsecurity=False).digest())
    metadata = RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(
            TopicIdPartition(topic_id, topic, partition), uuid.UUID(int=0xFFFE << 96 | number)
        ),
        start_offset=start_offset,
        end_offset=start_offset + 99,
        max_timestamp_ms=1_700_000_000_000,
        broker_id=1,
        event_timestamp_ms=1_700_000_000_001,
        segment_size_bytes=size_bytes,
        segment_leader_epochs={0: start_offset},
        txn_index_empty=IndexType.TRANSACTION in absent,
    )
    indexes = {index: body(100 + len(index), (number, index)) for index in IndexType if index not in absent}
    return Segment(metadata, body(size_bytes, number), indexes)


async def copied(storage: RemoteStorage, segment: Segment) -> Segment:
    """Copy a segment, and return it as it is known from then on."""
    return segment.known_with(await storage.copy(segment.metadata, segment.data()))


async def read_log(storage: RemoteStorage, segment: Segment) -> bytes:
    """Read more of a log than there should be."""
    return bytes(await storage.fetch(segment.metadata, 0, len(segment.log) + 1_000))


async def read_indexes(storage: RemoteStorage, segment: Segment) -> dict[IndexType, bytes]:
    """Read all indexes that there are."""
    found: dict[IndexType, bytes] = {}
    for index in IndexType:
        try:
            found[index] = bytes(await storage.fetch_index(segment.metadata, index))
        except RemoteResourceNotFoundError:
            continue
    return found


async def assert_stored(storage: RemoteStorage, *segments: Segment) -> None:
    """All of these can be read, whole."""
    for segment in segments:
        _assert_same("the whole log is read as it was copied", await read_log(storage, segment), segment.log)
        indexes = await read_indexes(storage, segment)
        assert indexes.keys() == segment.indexes.keys(), "the indexes that were copied are there, and no others"
        for index, expected in segment.indexes.items():
            _assert_same(f"{index} is read as it was copied", indexes[index], expected)


def _assert_same(what: str, found: bytes, expected: bytes) -> None:
    """Without pytest's comparison, which takes long for some MiB."""
    if found != expected:
        pairs = enumerate(zip(found, expected, strict=False))
        at = next((at for at, (one, other) in pairs if one != other), min(len(found), len(expected)))
        raise AssertionError(f"{what}: {len(found)} bytes and not {len(expected)}, which differ from byte {at} on")


async def assert_not_found(what: str, read: Callable[[], Awaitable[ObjectData]]) -> None:
    """A read says that it is not there; `what` says why, as a clause."""
    try:
        found = await read()
    except RemoteResourceNotFoundError as error:
        retriable = error.retriable
    except Exception as error:
        raise AssertionError(f"{what}: a RemoteResourceNotFoundError is raised, and not {error!r}") from error
    else:
        raise AssertionError(f"{what}: a RemoteResourceNotFoundError is raised, but {len(found)} bytes were read")
    assert not retriable, f"{what}: no retry helps"


async def assert_absent(storage: RemoteStorage, segment: Segment) -> None:
    """Nothing of it can be read."""
    for start, end in ((0, 10), (0, 0), (5, 1 << 40)):
        await assert_not_found("there is no such segment", partial(storage.fetch, segment.metadata, start, end))
    for index in IndexType:
        await assert_not_found("there is no such segment", partial(storage.fetch_index, segment.metadata, index))


def _never() -> Mapping[IndexType, bytes]:
    raise AssertionError("indexes were asked for before the log had gone by")
