"""What all buckets have in common: an fsspec file system on the broker's event loop, and its errors in our words.

fsspec publishes a file system's coroutines under names with a leading underscore, for use by those who bring their own
event loop (`asynchronous=True`); `call_coroutine` is the one place that knows.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

from diskless_core.plugin.wal_object_store import (
    ConditionalObjectStore,
    ConditionFailedError,
    ObjectData,
    ObjectInfo,
    ObjectNotFoundError,
    VersionedObject,
    WalObjectStoreError,
)
from diskless_fsspec.errors import (
    http_status,
    is_foreign_answer,
    is_refused_condition,
    response_code,
    translated,
)
from diskless_fsspec.keys import require_key, require_prefix
from diskless_fsspec.listing import PAGE_OBJECTS
from diskless_fsspec.object_upload import ObjectUpload

T = TypeVar("T")

_RANGE_NOT_SATISFIABLE = 416


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketOptions:
    """How to reach a bucket. `arguments` go to the constructor of the file system, and may hold secrets."""

    url: str
    arguments: Mapping[str, Any] = field(repr=False)
    timeout_s: float
    page_objects: int = PAGE_OBJECTS


@dataclass(frozen=True, slots=True)
class ListedPage:
    """One page of a listing; `token` asks for the next one, None after the last."""

    objects: list[ObjectInfo]
    token: str | None


class BucketStore(ConditionalObjectStore):
    """Objects below `<bucket>/<prefix>` of a URL. A request that takes longer than its time-out fails, retriably."""

    is_node_local = False
    is_process_local = False
    may_put_twice = True

    def __init__(self, options: BucketOptions) -> None:
        self.options = options
        self.bucket, _, prefix = options.url.partition("://")[2].strip("/").partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._filesystem: Any = None

    @abstractmethod
    async def connect(self) -> Any:
        """Make the file system and its session."""

    @abstractmethod
    async def disconnect(self, filesystem: Any) -> None:
        """Close its session."""

    @abstractmethod
    async def list_page(self, prefix: str, token: str | None, limit: int) -> ListedPage:
        """One page of the objects whose name in the bucket starts with `prefix`, named as in the bucket."""

    @abstractmethod
    async def delete_names(self, names: Sequence[str]) -> set[str]:
        """Delete by name in the bucket, and return those that are gone."""

    @abstractmethod
    async def write_if(self, name: str, data: bytes, version: str | None) -> str:
        """Store an object in one request if this version of it is there, or with None if there is no such object.

        Returns the new version. The name is that in the bucket.
        """

    @abstractmethod
    async def find_unbounded_versions(self, name_prefix: str) -> str | None:
        """As `unbounded_versions`, for objects whose name in the bucket starts with the prefix."""

    @abstractmethod
    async def read_versioned(self, name: str) -> VersionedObject:
        """An object by its name in the bucket."""

    @abstractmethod
    def new_upload(self, key: str, size_bytes: int) -> ObjectUpload:
        """Prepare to store an object of this size in parts."""

    @abstractmethod
    async def forget_uploads(self, key: str) -> None:
        """Throw away the parts of uploads of an object that nobody finished, where they would stay otherwise."""

    async def start(self) -> None:
        doing = f"cannot use {self.options.url}"
        if not self.bucket:
            raise WalObjectStoreError(f"{doing}: it names no bucket", retriable=False)
        self._filesystem = await self.attempt(doing, self.connect())
        try:
            await self.attempt(doing, self.list_page(self._prefix, None, 1))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        filesystem, self._filesystem = self._filesystem, None
        if filesystem is not None:
            await self.disconnect(filesystem)

    async def put(self, key: str, data: ObjectData) -> None:
        path = self._path(require_key(key))
        await self.attempt(f"cannot write {key!r}", self.call("pipe_file", path, bytes(data)))

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        path = self._path(require_key(key))
        try:
            return await self.attempt(f"cannot read {key!r}", self._read(path, start, end))
        except WalObjectStoreError as error:
            cause = error.__cause__
            if _is_absence(cause):
                raise ObjectNotFoundError(key) from None
            if isinstance(cause, Exception) and http_status(cause) == _RANGE_NOT_SATISFIABLE:
                return b""
            raise

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        doing = f"cannot list {self.options.url}"
        name_prefix, skipped = self._prefix + require_prefix(prefix), len(self._prefix)
        token: str | None = None
        while True:
            page = await self.attempt(doing, self.list_page(name_prefix, token, self.options.page_objects))
            if page.objects:
                yield [ObjectInfo(found.key[skipped:], found.size_bytes, found.modified_ms) for found in page.objects]
            token = page.token
            if token is None:
                return

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        names = {self.name(require_key(key)): key for key in keys}
        gone = await self.attempt("cannot delete objects", self.delete_names(list(names)))
        return [key for name, key in names.items() if name in gone]

    async def create(self, key: str, data: ObjectData) -> str:
        return await self._write_if(key, data, None)

    async def replace(self, key: str, data: ObjectData, version: str) -> str:
        return await self._write_if(key, data, version)

    async def get_versioned(self, key: str) -> VersionedObject:
        name = self.name(require_key(key))
        try:
            return await self.attempt(f"cannot read {key!r}", self.read_versioned(name))
        except WalObjectStoreError as error:
            if _is_absence(error.__cause__):
                raise ObjectNotFoundError(key) from None
            raise

    async def unbounded_versions(self, prefix: str) -> str | None:
        doing = f"cannot find out whether {self.options.url} keeps old versions of objects"
        name_prefix = self._prefix + require_prefix(prefix)
        return await self.attempt(doing, self.find_unbounded_versions(name_prefix))

    @property
    def filesystem(self) -> Any:
        if self._filesystem is None:
            raise WalObjectStoreError("the store is not started, or stopped")
        return self._filesystem

    def name(self, key: str) -> str:
        """What an object is called in the bucket."""
        return f"{self._prefix}{key}"

    async def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Await the file system's coroutine `_<name>`."""
        return await call_coroutine(self.filesystem, name, *args, **kwargs)

    async def attempt(self, doing: str, work: Awaitable[T]) -> T:
        """Await a request within the time-out.

        Raises:
            WalObjectStoreError: it failed; the cause is the file system's own error.
        """
        try:
            async with asyncio.timeout(self.options.timeout_s):
                return await work
        except WalObjectStoreError:
            raise
        except Exception as error:
            raise translated(error, doing) from error

    async def _write_if(self, key: str, data: ObjectData, version: str | None) -> str:
        name = self.name(require_key(key))
        try:
            return await self.attempt(f"cannot write {key!r}", self.write_if(name, bytes(data), version))
        except WalObjectStoreError as error:
            cause = error.__cause__
            if is_refused_condition(cause) or (version is not None and response_code(cause) == "NoSuchKey"):
                raise ConditionFailedError(key) from None
            raise

    async def _read(self, path: str, start: int, end: int) -> bytes:
        if start < end:
            data: bytes = await self.call("cat_file", path, start=start, end=end)
            return data
        info = await self.call("info", path)
        if info["type"] != "file":
            raise FileNotFoundError(path)
        return b""

    def _path(self, key: str) -> str:
        return f"{self.bucket}/{self.name(key)}"


async def call_coroutine(filesystem: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """Await the coroutine `_<name>` of a file system."""
    return await getattr(filesystem, f"_{name}")(*args, **kwargs)


def _is_absence(error: BaseException | None) -> bool:
    """Whether there is a bucket, but no such object in it."""
    is_absent = isinstance(error, FileNotFoundError) and response_code(error) != "NoSuchBucket"
    return is_absent and not is_foreign_answer(error)


async def filesystem_class(module: str, name: str, extra: str) -> Any:
    """Import a file system, on a thread for it takes long.

    Raises:
        WalObjectStoreError: the extra that brings it is not installed.
    """
    try:
        return getattr(await asyncio.to_thread(import_module, module), name)
    except ImportError as error:
        raise WalObjectStoreError(
            f"{error}; this url needs an extra: pip install 'diskless[{extra}]'", retriable=False
        ) from error
