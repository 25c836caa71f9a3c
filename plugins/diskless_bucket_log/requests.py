"""The requests of one shard to the object store: bounded in time, reads repeated, errors in the log's own words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import structlog

from diskless_bucket_log.decisions import WriteAnswer
from diskless_bucket_log.objects import (
    FIRST_START,
    HEADER_BYTES,
    MAX_OBJECT_BYTES,
    DamagedObjectError,
    EntryHeader,
    EntryObject,
    LogStart,
    Names,
    encode_start,
    read_entry,
    read_entry_header,
    read_start,
)
from diskless_core.clock import Clock
from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.plugin.wal_object_store import (
    ConditionalObjectStore,
    ConditionFailedError,
    ObjectNotFoundError,
    WalObjectStoreError,
)

T = TypeVar("T")

REQUEST_TIMEOUT_S = 10.0
"""After which a request is given up. A write may have taken effect all the same."""

_READS = Backoff(first_ms=50, max_ms=1000, attempts=4)
_DELETED_AT_ONCE = 500

_log = structlog.get_logger(__name__)


class ShardObjects:
    """The objects of one shard.

    All reads raise CoordinatorLogError where the store fails for longer, or an object is not what it should be.
    """

    def __init__(self, store: ConditionalObjectStore, names: Names, clock: Clock) -> None:
        self.names = names
        self.shard = names.shard
        self._store = store
        self._clock = clock
        self._retrying = Retrying(_READS, clock)

    def new_nonce(self) -> bytes:
        """Bytes that no other object has."""
        return self._clock.new_uuid().bytes

    async def create(self, number: int, data: bytes) -> WriteAnswer:
        """Try to put an entry object."""
        return await self._write(lambda: self._store.create(self.names.entry(number), data))

    async def read(self, number: int) -> EntryObject | None:
        """An entry object; None if there is none."""
        data = await self._read(lambda: self._store.get(self.names.entry(number), 0, MAX_OBJECT_BYTES))
        return None if data is None else self._intact(lambda: read_entry(self.names, number, data))

    async def read_header(self, number: int) -> EntryHeader | None:
        """The header of an entry object; None if there is none."""
        data = await self._read(lambda: self._store.get(self.names.entry(number), 0, HEADER_BYTES))
        return None if data is None else self._intact(lambda: read_entry_header(self.names, number, data))

    async def read_start(self) -> tuple[LogStart, str] | None:
        """The log start with its version; None if there is none."""
        found = await self._read(lambda: self._store.get_versioned(self.names.start))
        if found is None:
            return None
        return self._intact(lambda: read_start(self.names, found.data)), found.version

    async def require_start(self) -> LogStart:
        """The log start of a log that has entries.

        Raises:
            CoordinatorLogError: there is none: it is never taken for 0.
        """
        found = await self.read_start()
        if found is None:
            raise CoordinatorLogError(
                f"the log start of {self.shard}, the object {self.names.start!r}, is missing, and there are entries: "
                f"restore it. Without it nobody can say which entries count"
            )
        return found[0]

    async def create_start(self) -> WriteAnswer:
        """Try to put the log start of a log that never had an entry."""
        data = encode_start(self.shard, FIRST_START, self.new_nonce())
        return await self._write(lambda: self._store.create(self.names.start, data))

    async def move_start(self, wanted: LogStart, version: str) -> WriteAnswer:
        """Try to put a log start in the place of that version."""
        data = encode_start(self.shard, wanted, self.new_nonce())
        return await self._write(lambda: self._store.replace(self.names.start, data, version))

    async def numbers(self) -> list[int]:
        """The numbers that there are, in order, those that do not count as well."""

        async def listed() -> list[int]:
            pages = [page async for page in self._store.list(self.names.folder)]
            found = (self.names.number_of(info.key) for page in pages for info in page)
            return sorted(number for number in found if number is not None)

        return await self._read(listed) or []

    async def delete_below(self, number: int) -> None:
        """Delete all entry objects below a number, which the log start has reached.

        Raises:
            CoordinatorLogError: some may still be there.
        """
        keys = [self.names.entry(found) for found in await self.numbers() if found < number]
        for first in range(0, len(keys), _DELETED_AT_ONCE):
            some = keys[first : first + _DELETED_AT_ONCE]
            await self._require_reached(number)
            gone = await self._read(lambda some=some: self._store.delete(some)) or ()  # type: ignore[misc]
            if left := sorted(set(some) - set(gone)):
                raise CoordinatorLogError(f"{len(left)} objects could not be deleted, {left[0]!r} among them")

    async def _require_reached(self, number: int) -> None:
        start = await self.require_start()
        if start.number < number:  # a log start never goes back: this is another log, in the same place
            raise CoordinatorLogError(
                f"the log of {self.shard} starts at {start.number}, and {number} was reached: it was begun anew. "
                f"Nothing more is deleted"
            )

    async def _read(self, request: Callable[[], Awaitable[T]]) -> T | None:
        async def bounded() -> T | None:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    return await request()
            except ObjectNotFoundError:
                return None
            except TimeoutError:
                raise WalObjectStoreError(f"no answer in {REQUEST_TIMEOUT_S:g} s") from None

        try:
            return await self._retrying.do(bounded)
        except WalObjectStoreError as error:
            raise CoordinatorLogError(f"the object store does not give the log of {self.shard}: {error}") from error

    async def _write(self, request: Callable[[], Awaitable[object]]) -> WriteAnswer:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await request()
        except ConditionFailedError:
            return WriteAnswer.CONDITION_FAILED
        except (WalObjectStoreError, TimeoutError) as error:
            _log.warning("a write has an unknown outcome", shard=str(self.shard), error=str(error))
            return WriteAnswer.NO_ANSWER
        return WriteAnswer.DONE

    @staticmethod
    def _intact(read: Callable[[], T]) -> T:
        try:
            return read()
        except DamagedObjectError as error:
            raise CoordinatorLogError(f"{error}. Restore it: nothing of the log is skipped") from error


def sequence_of(objects: Sequence[EntryObject | None]) -> list[EntryObject]:
    """What was found before the first number at which there was nothing."""
    found = list[EntryObject]()
    for each in objects:
        if each is None:
            break
        found.append(each)
    return found
