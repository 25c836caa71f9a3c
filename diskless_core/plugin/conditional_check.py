"""Finds out by trying whether an object store keeps what `ConditionalObjectStore` promises.

A log of objects lives by these promises, and some services take a condition without a word and write in any case. The
trial takes a second, so it belongs into `start`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from diskless_core.clock import Clock
from diskless_core.plugin.wal_object_store import (
    ConditionalObjectStore,
    ConditionFailedError,
    ObjectNotFoundError,
    VersionedObject,
    WalObjectStoreError,
)

ROUNDS = 20
WRITERS = 8

ROUNDS_AT_ONCE = 4
"""So many times `WRITERS` requests are under way."""

_ADVICE = (
    "two brokers could both believe that they have written: use a store that writes on condition (Amazon S3, Google "
    "Cloud Storage, a folder, an S3-compatible server that honours If-None-Match and If-Match), or another "
    "coordinator_log"
)


class UnsafeStoreError(WalObjectStoreError):
    """The store broke a promise. The message names the store, the promise, and what to do."""

    def __init__(self, store: str, broken: str) -> None:
        super().__init__(f"{store} {broken}; {_ADVICE}", retriable=False)


async def check_conditional_writes(
    store: ConditionalObjectStore, name: str, prefix: str, clock: Clock, *, rounds: int = ROUNDS, writers: int = WRITERS
) -> None:
    """Let several writers create an object at once, then replace it at once, and read and list what came of it.

    Objects are written below `prefix`, and removed.

    Args:
        name: what the operator calls the store, such as `wal_object_store=fsspec (s3://bucket/wal)`.
        prefix: where nothing else lies, with a '/' at its end.

    Raises:
        UnsafeStoreError: the store broke a promise.
        WalObjectStoreError: it could not be tried out; another try may do.
    """
    place = f"{prefix}{clock.new_uuid().hex}/"
    turns = asyncio.Semaphore(ROUNDS_AT_ONCE)
    failures: list[WalObjectStoreError] = []

    async def take_turn(number: int) -> None:
        async with turns:
            if not failures:
                try:
                    await _Trial(store, name, place, f"{place}{number:03}").run(writers)
                except WalObjectStoreError as error:
                    failures.append(error)

    # No round is cancelled: what it has under way could arrive after everything was removed.
    await asyncio.gather(*(take_turn(number) for number in range(rounds)))
    if failures:
        with suppress(WalObjectStoreError):
            await _remove(store, name, place)
        raise next((error for error in failures if isinstance(error, UnsafeStoreError)), failures[0])
    await _remove(store, name, place)


class _Trial:
    """One round, with an object of its own."""

    def __init__(self, store: ConditionalObjectStore, name: str, place: str, key: str) -> None:
        self._store = store
        self._name = name
        self._place = place
        self._key = key

    async def run(self, writers: int) -> None:
        store, key = self._store, self._key
        bodies = [b"created by %d " % number + bytes(number) for number in range(writers)]
        created = await self._race("created an object", bodies, lambda data: store.create(key, data))
        await self._refuses(store.create(key, b"too late"), "created an object that was there")
        bodies = [b"replaced by %d " % number + bytes(writers + number) for number in range(writers)]
        version = created.version
        replaced = await self._race("replaced one version", bodies, lambda data: store.replace(key, data, version))
        await self._refuses(store.replace(key, b"too late", version), "replaced a version that was there no more")
        await self._expect(replaced, "after it had refused a write")

    async def _race(
        self, did: str, bodies: Sequence[bytes], write: Callable[[bytes], Awaitable[str]]
    ) -> VersionedObject:
        """Let all write at once, and return the one object that has to be there then.

        Bodies are of different length, so that a listing shows whose is there.
        """
        outcomes = await asyncio.gather(*(_outcome(write(data)) for data in bodies))
        won = [
            VersionedObject(data, outcome)
            for data, outcome in zip(bodies, outcomes, strict=True)
            if isinstance(outcome, str)
        ]
        if len(won) > 1:
            raise UnsafeStoreError(self._name, f"told {len(won)} writers at once that they had {did}")
        if won:
            await self._expect(won[0], f"after a writer had {did}")
            return won[0]
        # A write can have taken effect though its answer was lost, or the client's second try was refused.
        with suppress(ObjectNotFoundError):
            found = await self._store.get_versioned(self._key)
            if found.data in bodies:
                return found
        for outcome in outcomes:
            if isinstance(outcome, WalObjectStoreError) and not isinstance(outcome, ConditionFailedError):
                message = f"{self._name} could not be tried out: {outcome}"
                raise WalObjectStoreError(message, retriable=outcome.retriable)
        raise UnsafeStoreError(self._name, f"told all of {len(bodies)} writers that they had not {did}")

    async def _refuses(self, write: Awaitable[str], broken: str) -> None:
        if isinstance(await _outcome(write), str):
            raise UnsafeStoreError(self._name, broken)

    async def _expect(self, expected: VersionedObject, when: str) -> None:
        try:
            found = await self._store.get_versioned(self._key)
        except ObjectNotFoundError:
            raise UnsafeStoreError(self._name, f"did not find the object {when}") from None
        if found.data != expected.data:
            raise UnsafeStoreError(self._name, f"gave other bytes than were stored {when}")
        if found.version != expected.version:
            raise UnsafeStoreError(self._name, f"gave another version than it had told {when}")
        sizes = {info.key: info.size_bytes async for page in self._store.list(self._place) for info in page}
        if sizes.get(self._key) != len(expected.data):
            raise UnsafeStoreError(self._name, f"did not list the object as it was {when}")


async def _outcome(write: Awaitable[str]) -> str | WalObjectStoreError:
    try:
        return await write
    except WalObjectStoreError as error:
        return error


async def _remove(store: ConditionalObjectStore, name: str, place: str) -> None:
    keys = [info.key async for page in store.list(place) for info in page]
    there = set(keys) - set(await store.delete(keys))
    for key in keys:
        with suppress(ObjectNotFoundError):
            await store.get_versioned(key)
            there.add(key)
    if there:
        raise WalObjectStoreError(
            f"{name} did not delete {min(there)!r}, which was written to try it out: a log could not be pruned; "
            "check what the credentials may do, and that nothing in the store retains objects",
            retriable=False,
        )
