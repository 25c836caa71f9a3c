"""What one broker knows of a shard's log: where it starts and ends, its newest objects, and how to read the others.

Everything that is known here counts: it was judged with a log start that was read after it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from diskless_bucket_log.decisions import (
    FIRST_POSITION,
    Accepted,
    BrokenChainError,
    Position,
    Pruned,
    counts,
    judge_read,
    position_after,
    position_at,
)
from diskless_bucket_log.objects import EntryHeader, EntryObject, LogStart
from diskless_bucket_log.requests import ShardObjects, sequence_of
from diskless_core.clock import Clock
from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogBounds, LogOffsetPrunedError

RELEASE_S = 10.0
"""How long what was read is kept for the next reader, when there is none: readers that failed come back."""

_SHORTEST_POLL_S = 0.02
_MAX_READS_AT_ONCE = 8
_CACHE_BYTES = 8 << 20
_ATTEMPTS_TO_LOCATE = 5
_MAX_HEADERS = 10_000
"""Of the newest objects: some megabytes. Older ones are searched for in the store."""


class ShardView:
    """One shard's log as far as it is known.

    Attributes:
        tail: what follows the last object that is known; None before anything was asked for.
        changed: set, and replaced, with each change.
    """

    def __init__(self, objects: ShardObjects, clock: Clock, *, longest_poll_s: float) -> None:
        self.objects = objects
        self.tail: Position | None = None
        self.changed = asyncio.Event()
        self._clock = clock
        self._longest_poll_s = longest_poll_s
        self._poll_s = min(_SHORTEST_POLL_S, longest_poll_s)
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()
        self._looks_begun = 0
        self._last_look = 0
        self._start: LogStart | None = None
        self._headers: list[EntryHeader] = []
        self._recent: deque[EntryObject] = deque()
        self._recent_bytes = 0
        self._readers = 0
        self._keeps = True
        self._releasing: asyncio.TimerHandle | None = None

    @property
    def bounds(self) -> LogBounds:
        """As far as known; both 0 before anything was asked for."""
        if self.tail is None:
            return LogBounds(0, 0)
        return LogBounds(self._start.offset if self._start else 0, self.tail.offset)

    def notify(self) -> None:
        """Wake all that wait."""
        self.changed.set()
        self.changed = asyncio.Event()

    def accept(self, entry: EntryObject) -> None:
        """Take the object at the end, which counts. One that is known already changes nothing.

        Raises:
            CoordinatorLogError: it does not continue what is known.
        """
        tail = self.tail
        if tail is None or entry.header.number < tail.number:
            return
        if entry.header.number != tail.number:
            self._forget()  # what lies between is not known: it is looked for when somebody asks
        else:
            self._continue(tail, entry, entry.header.number)
        self.notify()

    def take_start(self, start: LogStart) -> None:
        """Note where the log starts; one that is older than what is known changes nothing."""
        if self._start is not None and start.number <= self._start.number:
            return
        self._start = start
        if self.tail is not None and not counts(self.tail.number, start.number):
            self._forget()
        self._headers = [header for header in self._headers if counts(header.number, start.number)]
        while self._recent and not counts(self._recent[0].header.number, start.number):
            self._recent_bytes -= self._recent.popleft().size_bytes
        self.notify()

    # --- looking -------------------------------------------------------------------------------------------------

    async def look(self) -> Position:
        """Learn of everything that was in the log when this was called, and return the tail.

        Raises:
            CoordinatorLogError: the store failed, or an object is damaged or missing.
        """
        begun_before = self._looks_begun
        async with self._looking:
            if self._last_look > begun_before and self.tail is not None:
                return self.tail  # a look that began after this was called is done
            self._looks_begun += 1
            begun_at = self._clock.monotonic()
            before = self.tail
            tail = await self._look()
            self._looked_at = begun_at
            self._last_look = self._looks_begun
            self._poll_s = _SHORTEST_POLL_S if tail != before else self._poll_s * 2
            self._poll_s = min(self._poll_s, self._longest_poll_s)
            return tail

    async def look_unless_recent(self) -> None:
        """Learn of what is new, unless that was done within the longest poll interval."""
        if self.tail is None or self._clock.monotonic() - self._looked_at >= self._longest_poll_s:
            await self.look()

    async def wait_and_look(self) -> None:
        """Return after a change, or after a look when it was time for one."""
        changed = self.changed
        try:
            async with asyncio.timeout(self._poll_s):
                await changed.wait()
        except TimeoutError:
            if self._clock.monotonic() - self._looked_at >= self._poll_s:
                await self.look()

    async def _look(self) -> Position:
        at_once = 1
        while True:
            tail = self.tail if self.tail is not None else await self._locate()
            numbers = range(tail.number, tail.number + at_once)
            found = sequence_of(await asyncio.gather(*map(self.objects.read, numbers)))
            if not found and tail == FIRST_POSITION and self._start is None:
                read = await self.objects.read_start()
                if read is None:
                    return tail  # never written
                self.take_start(read[0])
            start = await self.objects.require_start()
            if not self._take_all(tail, found, start):
                self._forget()
                continue
            self.take_start(start)
            if len(found) < at_once and self.tail is not None:
                return self.tail
            at_once = min(at_once * 2, _MAX_READS_AT_ONCE)

    def _take_all(self, tail: Position, found: Sequence[EntryObject], start: LogStart) -> bool:
        if self.tail != tail:
            return True  # this broker's own appends were confirmed meanwhile; the next look begins there
        for entry in found:
            tail = self._continue(tail, entry, start.number) or tail
        if found:
            self.notify()
        return counts(tail.number, start.number)

    def _continue(self, tail: Position, entry: EntryObject, start_number: int) -> Position | None:
        try:
            outcome = judge_read(tail, entry.header, start_number)
        except BrokenChainError as error:
            raise self._broken(entry.header.number, error) from error
        if not isinstance(outcome, Accepted):
            return None
        self.tail = outcome.position
        self._keep(entry)
        return outcome.position

    async def _locate(self) -> Position:
        for _ in range(_ATTEMPTS_TO_LOCATE):
            read = await self.objects.read_start()
            numbers = await self.objects.numbers()
            if read is None and not numbers:
                self.tail = FIRST_POSITION
                return self.tail
            start = await self.objects.require_start() if read is None else read[0]
            last = max(numbers, default=-1)
            if not counts(last, start.number):
                if start.number == 0:
                    self.tail = position_at(start)
                    self.take_start(start)
                    return self.tail
                raise CoordinatorLogError(
                    f"the log of {self.objects.shard} starts at number {start.number}, and there is no such object: "
                    f"restore what is missing below {self.objects.names.folder!r}"
                )
            entry = await self.objects.read(last)
            start = await self.objects.require_start()
            if entry is not None and counts(last, start.number):
                self.tail = position_after(entry.header)
                self._keep(entry)
                self.take_start(start)
                return self.tail
        raise CoordinatorLogError(f"the log of {self.objects.shard} is pruned faster than it can be read: try again")

    # --- keeping -------------------------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[None]:
        """Keep the newest objects in memory for a reader. A while after the last reader has left, they are freed.

        Headers stay: by these a broker that stood still while it pruned sees that the log was begun anew meanwhile.
        """
        self._readers += 1
        self._keeps = True
        if self._releasing is not None:
            self._releasing.cancel()
            self._releasing = None
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._releasing = asyncio.get_running_loop().call_later(RELEASE_S, self._release)

    def stop(self) -> None:
        """Wake all that wait, and free what is kept."""
        if self._releasing is not None:
            self._releasing.cancel()
        self._release()
        self.notify()

    def _release(self) -> None:
        self._releasing = None
        self._keeps = False
        self._free_objects()

    def _free_objects(self) -> None:
        self._recent.clear()
        self._recent_bytes = 0

    # --- reading -------------------------------------------------------------------------------------------------

    async def find(self, offset: int) -> EntryHeader:
        """The header of the object that has an offset, which is below the tail's.

        Raises:
            LogOffsetPrunedError: it lies below the start of the log.
            CoordinatorLogError: as `look`.
        """
        self.require_not_pruned(offset)
        if self._headers and offset >= self._headers[0].base_offset:
            return self._headers[bisect_right(self._headers, offset, key=lambda header: header.base_offset) - 1]
        start = await self.objects.require_start()
        self.take_start(start)
        self.require_not_pruned(offset)
        lowest = start.number
        above = self._headers[0].number if self._headers else (self.tail or FIRST_POSITION).number
        found: EntryHeader | None = None
        while lowest < above:
            middle = (lowest + above) // 2
            header = await self.objects.read_header(middle)
            if header is None:
                raise await self._missing(middle)
            if header.base_offset <= offset:
                found, lowest = header, middle + 1
            else:
                above = middle
        if found is None:
            raise await self._missing(lowest)
        return found

    async def fetch(self, position: Position) -> list[EntryObject]:
        """Some objects from a position on, which is below the tail: at least one.

        Raises:
            LogOffsetPrunedError: it lies below the start of the log.
            CoordinatorLogError: as `look`.
        """
        tail = self.tail or FIRST_POSITION
        if self._recent and self._recent[0].header.number <= position.number:
            return list(self._recent)[position.number - self._recent[0].header.number :]
        above = min(tail.number, position.number + _MAX_READS_AT_ONCE)
        read = await asyncio.gather(*map(self.objects.read, range(position.number, above)))
        start = await self.objects.require_start()
        for entry in read:
            try:
                outcome = judge_read(position, entry.header if entry else None, start.number)
            except BrokenChainError as error:
                raise self._broken(position.number, error) from error
            if isinstance(outcome, Pruned):
                self.take_start(start)
                self.require_not_pruned(position.offset)
            if not isinstance(outcome, Accepted):
                raise await self._missing(position.number)
            position = outcome.position
        return sequence_of(read)

    def require_not_pruned(self, offset: int) -> None:
        """Raises: LogOffsetPrunedError: the log starts above the offset."""
        if offset < self.bounds.start:
            raise LogOffsetPrunedError(f"{self.objects.shard} begins at offset {self.bounds.start}: {offset} is gone")

    def _keep(self, entry: EntryObject) -> None:
        if self._headers and self._headers[-1].number + 1 != entry.header.number:
            self._headers.clear()
        if len(self._headers) >= _MAX_HEADERS:
            del self._headers[: _MAX_HEADERS // 2]  # many at a time
        self._headers.append(entry.header)
        if not self._keeps:
            return
        if self._recent and self._recent[-1].header.number + 1 != entry.header.number:
            self._recent.clear()
            self._recent_bytes = 0
        self._recent.append(entry)
        self._recent_bytes += entry.size_bytes
        while self._recent_bytes > _CACHE_BYTES and len(self._recent) > 1:
            self._recent_bytes -= self._recent.popleft().size_bytes

    def _forget(self) -> None:
        self.tail = None
        self._headers.clear()
        self._free_objects()

    async def _missing(self, number: int) -> CoordinatorLogError:
        start = await self.objects.require_start()
        self.take_start(start)
        if not counts(number, start.number):
            return LogOffsetPrunedError(f"{self.objects.shard} was pruned up to {start.offset} meanwhile")
        return CoordinatorLogError(f"the object {self.objects.names.entry(number)!r} is missing: restore it")

    def _broken(self, number: int, error: BrokenChainError) -> CoordinatorLogError:
        key = self.objects.names.entry(number)
        return CoordinatorLogError(f"the object {key!r} is not the one that belongs there: {error}. Restore it")
