"""What the `wal_object_store` contract suite works with: a back door to a store's place, bodies, listings."""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator

import pytest

from diskless_core.plugin.wal_object_store import ObjectInfo, ObjectNotFoundError, WalObjectStore

KEY = "prefix/ab/0000000000000001-object"

TIMEOUT_S = 300.0
"""How long a test waits for what has to happen."""

MEBIBYTE = 1024 * 1024


class ObjectBackDoor(ABC):
    """Access to the place behind a store without the store, so that no method is tested with itself. It may block."""

    @abstractmethod
    def write(self, key: str, data: bytes) -> None:
        """Store an object."""

    @abstractmethod
    def read(self, key: str) -> bytes | None:
        """The object's bytes, or None when there is none."""

    def protect(self, key: str) -> None:
        """Make the place refuse to delete this object for the rest of the test. Optional: without it a test skips."""
        pytest.skip(f"{type(self).__name__} cannot have the deletion of {key!r} refused (protect)")


def body(size_bytes: int, seed: int = 0) -> bytes:
    """Bytes that repeat nowhere, the same for the same seed."""
    blocks = (hashlib.sha256(b"%d %d" % (seed, number)).digest() for number in range(size_bytes // 32 + 1))
    return b"".join(blocks)[:size_bytes]


async def listed(store: WalObjectStore, prefix: str = "") -> dict[str, ObjectInfo]:
    """Everything that a listing gives. An object may come more than once, with the same description."""
    found: dict[str, ObjectInfo] = {}
    async with asyncio.timeout(TIMEOUT_S):
        async for page in store.list(prefix):
            found |= {info.key: info for info in page}
    return found


async def read_whole(store: WalObjectStore, key: str) -> bytes:
    """Read an object of unknown size."""
    return bytes(await store.get(key, 0, 2**40))


async def end_of(store: WalObjectStore, size_bytes: int) -> bytes | None:
    """The last 1,000 bytes of `KEY`, and None as long as there is no such object."""
    try:
        return bytes(await store.get(KEY, size_bytes - 1000, size_bytes))
    except ObjectNotFoundError:
        return None


async def pages(store: WalObjectStore, prefix: str) -> AsyncGenerator[list[ObjectInfo], None]:
    """A listing that can be closed early."""
    async for page in store.list(prefix):
        yield list(page)
