"""Hook noun `wal_object_store`: where WAL objects live. Put, ranged get, list, delete; nothing of what is in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.hookspecs import hookspec

ObjectData = bytes | bytearray | memoryview
"""Contiguous bytes of an object."""

MAX_GAP_BYTES = 64 << 10
"""Between two ranges, up to so many unwanted bytes are read rather than to ask twice: a request costs more."""


class WalObjectStoreError(Exception):
    """The store could not do it. `retriable` says whether the same call can succeed later."""

    def __init__(self, message: str, *, retriable: bool = True) -> None:
        super().__init__(message)
        self.retriable = retriable


class ObjectNotFoundError(WalObjectStoreError):
    """There is no object of that key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is no object {key!r}", retriable=False)
        self.key = key


class ConditionFailedError(WalObjectStoreError):
    """The object exists already, or is another version than the one that was to be replaced.

    Client libraries repeat requests by themselves, so the object that is in the way may be the caller's own. The caller
    reads it to find out.
    """

    def __init__(self, key: str) -> None:
        super().__init__(f"the object {key!r} is not as the condition says", retriable=False)
        self.key = key


@dataclass(frozen=True, slots=True)
class VersionedObject:
    """An object's bytes, and the version that `ConditionalObjectStore.replace` takes: opaque, as an ETag is."""

    data: ObjectData
    version: str


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One listed object. `modified_ms` is the store's own time of it, in milliseconds since the epoch."""

    key: str
    size_bytes: int
    modified_ms: int


class WalObjectStore(ABC):
    """A flat space of immutable objects. Keys are relative paths with '/' between parts, without '..', ASCII.

    All methods run on the broker's event loop, any number at once, and must not block it. They do not retry: the core
    does, with back-off. Time-outs are the store's own matter.
    """

    requests_are_billed: bool = True
    """Whether every put costs money or quota. Where it does not, the broker writes smaller objects sooner."""

    is_node_local: bool
    """Whether only this node sees the objects, or they are lost with its disk or its process. It has to be set."""

    is_process_local: bool
    """Whether only this process sees the objects, and they are lost when it ends. It has to be set."""

    may_put_twice: bool = False
    """Whether the broker may call `put` again, with the same key and equal bytes, while the first call has no answer.

    The second call must not wait for the first one, and goes by another connection. An optional capability: it ends a
    spell in which connections hang. The broker may cancel either call.
    """

    @abstractmethod
    async def start(self) -> None:
        """Connect, and find out whether the place can be used. After a retriable error it is called again.

        Raises:
            WalObjectStoreError: it can't; the message says what to do, without secrets.
        """

    async def start_reading(self) -> None:
        """Connect, for a tool that will only get and list. What `start` tries out by writing is left out.

        Optional: it is `start` for a store that writes nothing then.

        Raises:
            WalObjectStoreError: as `start`.
        """
        await self.start()

    @abstractmethod
    async def stop(self) -> None:
        """Release connections and threads. Idempotent."""

    @abstractmethod
    async def put(self, key: str, data: ObjectData) -> None:
        """Store an object. At return it is durable and every reader sees it whole; before, nobody sees a part of it.

        The broker passes page-aligned memoryviews. `data` is the caller's again at return and is not changed before.
        Writing the same key once more replaces it.
        """

    @abstractmethod
    async def get(self, key: str, start: int, end: int) -> ObjectData:
        """Read the bytes `start` (inclusive) to `end` (exclusive). An end beyond the object gives what there is.

        The result is the caller's; if it is writable, the caller may write to it.

        Raises:
            ObjectNotFoundError: no such object.
        """

    @abstractmethod
    def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        """List objects whose key starts with `prefix`, in pages, in any order.

        An object that was there before the call and is not deleted meanwhile is in it; others may be.
        """

    @abstractmethod
    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        """Delete objects, and return the keys that are surely gone. An absent object counts as gone."""


class ConditionalObjectStore(WalObjectStore):
    """A store that can also write on condition, which a log made of objects needs. An optional capability.

    Of any number of concurrent `create` of one key, and of any number of concurrent `replace` of one version, at most
    one takes effect. Any error but ConditionFailedError leaves the outcome unknown: the write may have taken effect, or
    may yet. Reads and listings that begin after a write returned see it: nothing here is cached.
    """

    @abstractmethod
    async def create(self, key: str, data: ObjectData) -> str:
        """Store an object where there is none, as `put` does, and return its version.

        Raises:
            ConditionFailedError: there is an object of that key.
            WalObjectStoreError: the outcome is unknown.
        """

    @abstractmethod
    async def replace(self, key: str, data: ObjectData, version: str) -> str:
        """Store an object in the place of a certain version of it, and return the new version.

        Raises:
            ConditionFailedError: there is another version, or none.
            WalObjectStoreError: the outcome is unknown.
        """

    @abstractmethod
    async def get_versioned(self, key: str) -> VersionedObject:
        """Read a whole object with its version.

        Raises:
            ObjectNotFoundError: no such object.
        """

    async def unbounded_versions(self, prefix: str) -> str | None:
        """Why old versions of objects below `prefix` would pile up for ever, and what to do about it.

        Some stores keep what is replaced or deleted, until a rule removes it. Optional: None, nothing is known to pile
        up.

        Raises:
            WalObjectStoreError: the store cannot tell, for instance for lack of permission.
        """
        del prefix
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WalObjectStorePlugin(Descriptor[WalObjectStore]):
    """Descriptor that `diskless_wal_object_stores` yields."""

    noun = "wal_object_store"


@hookspec
def diskless_wal_object_stores() -> list[WalObjectStorePlugin]:
    """Object stores for WAL objects, chosen with `wal_object_store=<name>`.

    Example::

        @hookimpl
        def diskless_wal_object_stores() -> list[WalObjectStorePlugin]:
            return [
                WalObjectStorePlugin(
                    name="azure",
                    factory=AzureObjectStore,
                    settings=AzureSettings,
                    api_version="1.0",
                    help="Keeps WAL objects in an Azure container.",
                )
            ]
    """
    raise NotImplementedError
