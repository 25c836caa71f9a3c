"""One shard of the coordinator log on one node: its tail in memory, its producer, and streams that read it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

import structlog

from diskless_core.plugin.coordinator_log import (
    CoordinatorLogError,
    EntryRefusedError,
    LogBatch,
    LogBounds,
    LogOffsetPrunedError,
)
from diskless_core.plugin.kafka_client import KafkaClientError
from diskless_core.plugin.shard import ShardId
from diskless_kafka.log_backend import LogBackend
from diskless_kafka.log_config import ENTRY_OVERHEAD_BYTES
from diskless_kafka.log_history import LogHistory
from diskless_kafka.log_producer import PartTooLargeError, ShardProducer, is_entry_key
from diskless_kafka.log_reader import Place, ReadMessage
from diskless_kafka.log_tail import Tail
from diskless_kafka.log_topics import topic_name

RELEASE_S = 10.0
"""How long a shard that nothing reads or appends to is still followed: readers that failed come back."""

_log = structlog.get_logger(__name__)


class LogShard:
    """Runs on the event loop.

    Attributes:
        start: where the log begins, as far as this node knows.
    """

    def __init__(self, shard: ShardId, backend: LogBackend, instance: uuid.UUID) -> None:
        settings = backend.settings
        self.id = shard
        self.place: Place = topic_name(shard, settings.topic_prefix), shard.index
        self.start = 0
        self._backend = backend
        self._append_timeout_s = settings.append_timeout_ms / 1000
        self._producer = ShardProducer(self.place, instance, backend.open_producer, backend.close_producer)
        self._max_entry_bytes: int | None = settings.max_entry_bytes  # None: the topic is asked anew
        self._tail: Tail | None = None
        self._known_end = 0
        self._opening: asyncio.Task[Tail] | None = None
        self._verifying: asyncio.Task[None] | None = None
        self._users = 0
        self._releasing: asyncio.TimerHandle | None = None

    async def append(self, batches: Sequence[bytes]) -> list[int]:
        """Append whole batches that are not larger than the settings allow; errors as `CoordinatorLog.append`."""
        if not self._backend.writes:
            raise CoordinatorLogError(f"the log of {self.id} was opened for reading only")
        try:
            with self._in_use():
                async with asyncio.timeout(self._append_timeout_s):
                    await self._open_tail()
                    return await self._append(batches)
        except TimeoutError:
            error = CoordinatorLogError(
                f"an append to {self} was not read back within {self._append_timeout_s:g} s: it may or may not have "
                "taken place"
            )
            self._producer.fail(error)
            raise error from None

    async def _append(self, batches: Sequence[bytes]) -> list[int]:
        limit = await self._limit(max(map(len, batches)))
        fitting = next((position for position, batch in enumerate(batches) if len(batch) > limit), len(batches))
        try:
            offsets = await self._producer.append(batches[:fitting], limit) if fitting else []
        except (EntryRefusedError, PartTooLargeError):
            self._max_entry_bytes = None
            raise
        if fitting < len(batches):
            raise EntryRefusedError(
                f"an entry has {len(batches[fitting])} bytes, and {self} takes {limit}: raise max.message.bytes of the "
                f"topic to {self._backend.settings.topic_max_message_bytes}",
                position=fitting,
            )
        return offsets

    async def _limit(self, largest_bytes: int) -> int:
        """The largest entry that the topic takes: less than the settings say, if the topic was changed meanwhile.

        It is asked anew after a refusal by Kafka, and before an entry is refused because of what was heard earlier.
        """
        known = self._max_entry_bytes
        if known is not None and largest_bytes <= known:
            return known
        settings = self._backend.settings
        found_bytes: int = await self._backend.run(self._backend.topics.max_message_bytes, self.id)
        self._max_entry_bytes = limit = min(found_bytes - ENTRY_OVERHEAD_BYTES, settings.max_entry_bytes)
        if limit < settings.max_entry_bytes and limit != known:
            _log.warning(
                "the topic's max.message.bytes was lowered, and larger entries are refused; a broker that starts will "
                "refuse the topic",
                topic=self.place[0],
                found=found_bytes,
                wanted=settings.topic_max_message_bytes,
            )
        return limit

    async def bounds(self) -> LogBounds:
        """As `CoordinatorLog.bounds`. It may be asked of a shard that there is not: nothing is created."""
        if not await self._backend.run(self._backend.topics.is_there, self.id):
            return LogBounds(0, 0)
        bounds = await self._backend.run(self._backend.topics.bounds, self.id)
        self.start = max(self.start, bounds.start)
        # a new leader among Kafka's brokers may know less for a moment than was read from the one before
        known_end = self._known_end if self._tail is None else self._tail.end
        return LogBounds(bounds.start, max(bounds.end, known_end))

    async def prune(self, before: int) -> None:
        await self.ensure()
        self.start = max(self.start, await self._backend.run(self._backend.topics.prune, self.id, before))

    async def stream(self, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        """As `CoordinatorLog.read`."""
        try:
            with self._in_use():
                async for entries in self._stream(offset):
                    yield entries
        except CoordinatorLogError:
            if not self._backend.stopped.is_set():
                raise

    async def _stream(self, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        history: LogHistory | None = None
        try:
            while True:
                tail = await self._open_tail()
                if self._backend.stopped.is_set():
                    return
                if offset < self.start:
                    raise LogOffsetPrunedError(f"{self.id} begins at offset {self.start}: {offset} is gone")
                if offset >= tail.start:
                    self._give_up(history)
                    history = None
                    entries = await tail.entries_from(offset)
                else:
                    if history is None:
                        history = self._backend.history(self.place, offset)
                    entries = as_entries(await self._backend.read_history(history), offset)
                if entries:
                    offset = entries[-1].next_offset
                    yield entries
        finally:
            self._give_up(history)

    async def ensure(self) -> None:
        """See that topic and partition are there, as they have to be."""
        await self._backend.run(self._backend.topics.ensure, self.id)

    def deliver(self, read: Sequence[ReadMessage]) -> None:
        """Take what the reader has read."""
        tail = self._tail
        if tail is None or tail.failure is not None:
            return
        entries = as_entries(read, tail.end)
        if not entries:
            return
        tail.add(entries)
        for message in read:
            self._producer.read_back(message.offset, message.key)

    def reader_failed(self, error: KafkaClientError) -> None:
        """The reader has something against the partition."""
        if error.is_unknown_partition:
            # it may be new, or deleted; or another one has its name
            if self._verifying is None or self._verifying.done():
                self._verifying = asyncio.create_task(self._verify(error), name=f"{self.id} topic")
        else:
            self.fail(CoordinatorLogError(f"{self} cannot be read any more: {error}"))

    def fail(self, error: CoordinatorLogError) -> None:
        """Readers and appends raise this; the next call opens the shard anew."""
        tail, self._tail = self._tail, None
        if tail is not None:
            self._known_end = max(self._known_end, tail.end)
            tail.fail(error)
        self._producer.fail(error)

    def stop(self, error: CoordinatorLogError) -> None:
        """Appends under way raise this, and readers end."""
        if self._tail is not None:
            self._tail.wake()
        if self._verifying is not None:
            self._verifying.cancel()
        self._keep_open()
        self._producer.fail(error)

    def __str__(self) -> str:
        return "-".join(map(str, self.place))

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        self._users += 1
        self._keep_open()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users and not self._backend.stopped.is_set():
                self._release_later()

    def _keep_open(self) -> None:
        if self._releasing is not None:
            self._releasing.cancel()
            self._releasing = None

    def _release_later(self) -> None:
        self._releasing = asyncio.get_running_loop().call_later(RELEASE_S, self._release)

    def _release(self) -> None:
        """Nothing has used the shard for a while: consume it no more, and free what is in memory of it."""
        if self._opening is not None and not self._opening.done():
            self._release_later()  # the reader would follow it after it was told not to
            return
        self._releasing = None
        tail, self._tail = self._tail, None
        if tail is not None:
            self._known_end = max(self._known_end, tail.end)
            self._backend.reader.unfollow(self.place)

    async def _open_tail(self) -> Tail:
        if self._tail is not None:
            return self._tail
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open(), name=f"{self.id} tail")
            self._opening.add_done_callback(_note_outcome)
        return await asyncio.shield(self._opening)  # others wait for it too

    async def _open(self) -> Tail:
        await self.ensure()
        if self._known_end:
            await self._backend.run(self._backend.topics.verify, self.id)
        bounds = await self._backend.run(self._backend.topics.bounds, self.id)
        if bounds.end < self._known_end:
            raise CoordinatorLogError(
                f"{self} ends at offset {bounds.end}, and this node has read up to {self._known_end}: entries that "
                "were committed are lost. Nothing more is read of it"
            )
        self.start = max(self.start, bounds.start)
        tail = Tail(bounds.end, self._backend.settings.tail_bytes)

        def begin() -> None:
            # not earlier: the reader may still deliver from where it was, and what it delivered while there was no tail
            # would be missing before that
            self._tail = tail

        try:
            await asyncio.wrap_future(self._backend.reader.follow(self.place, bounds.end, begin))
        except KafkaClientError as error:
            problem = CoordinatorLogError(f"{self} cannot be followed: {error}")
            self.fail(problem)
            raise problem from error
        return tail

    async def _verify(self, error: KafkaClientError) -> None:
        try:
            await self._backend.run(self._backend.topics.verify, self.id)
        except CoordinatorLogError as problem:
            self.fail(CoordinatorLogError(f"{problem} ({error})"))

    def _give_up(self, history: LogHistory | None) -> None:
        if history is not None:
            self._backend.give_up(history)


def as_entries(read: Sequence[ReadMessage], offset: int) -> list[LogBatch]:
    """Entries from an offset on. What was nothing to read, such as control batches at the end, is an empty one.

    So is a message of somebody else: whatever it is, it must not be taken for an entry, or for one that is damaged.
    """
    entries = list[LogBatch]()
    for _, next_offset, key, value in read:
        if next_offset <= offset:
            continue
        data = value if value is not None and is_entry_key(key) else b""
        entries.append(LogBatch(offset if value is None else next_offset - 1, next_offset, data))
        offset = next_offset
    return entries


def _note_outcome(opening: asyncio.Task[Tail]) -> None:
    """Everybody who waited for it may have been cancelled."""
    if not opening.cancelled():
        opening.exception()
