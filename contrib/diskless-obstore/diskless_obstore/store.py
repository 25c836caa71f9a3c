"""WAL objects in S3 through obstore, the binding of Rust's object_store crate.

Requests run on obstore's own threads. So what is written is copied first: a put that is cancelled may still be reading
the memory when its caller has it back. Each request is sent once; the core tries again, with back-off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from diskless_core.plugin.config import secret_values
from diskless_core.plugin.wal_object_store import (
    ConditionalObjectStore,
    ConditionFailedError,
    ObjectData,
    ObjectInfo,
    ObjectNotFoundError,
    VersionedObject,
    WalObjectStoreError,
)
from diskless_obstore.config import ObstoreSettings
from diskless_obstore.errors import is_foreign_answer, says_conflict, says_no_object, translated
from diskless_obstore.keys import is_key, require_key, require_prefix

if TYPE_CHECKING:
    from obstore.store import S3Store

logger = logging.getLogger(__name__)

T = TypeVar("T")

PAGE_OBJECTS = 1000
DELETED_AT_ONCE = 1000
"""Keys that one request to S3 may name."""


class ObstoreObjectStore(ConditionalObjectStore):
    """An S3 bucket, or a part of one."""

    is_node_local = False
    is_process_local = False
    may_put_twice = True

    def __init__(self, settings: ObstoreSettings, *, page_objects: int = PAGE_OBJECTS) -> None:
        self._settings = settings
        self._timeout_s = settings.request_timeout_ms / 1000
        self._page_objects = page_objects
        self._turns = asyncio.Semaphore(settings.max_requests)
        self._opened: S3Store | None = None
        self._keeps_versions = False

    async def start(self) -> None:
        self._opened = await asyncio.to_thread(self._open)
        try:
            await self._attempt(f"cannot use {self._settings.url}", self._first_page)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        self._opened = None

    async def put(self, key: str, data: ObjectData) -> None:
        await self._attempt(f"cannot write {key!r}", partial(self._write, require_key(key), data, "overwrite"))

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        require_key(key)
        try:
            if start < end:
                # The bytes stay where obstore read them.
                return memoryview(await self._request(partial(self._store.get_range_async, key, start=start, end=end)))
            await self._request(partial(self._store.head_async, key))
        except self._errors as error:
            self._raise_absence(error, key)
            if await self._ends_before(key, start):
                return b""
            raise self._translated(error, f"cannot read {key!r}") from None
        return b""

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        # obstore's prefixes end where a part ends.
        folder = require_prefix(prefix).rpartition("/")[0]
        stream = self._store.list(folder or None, chunk_size=self._page_objects)
        while (
            page := await self._attempt(f"cannot list {self._settings.url}", partial(_next_page, stream))
        ) is not None:
            objects = [
                ObjectInfo(found["path"], found["size"], int(found["last_modified"].timestamp() * 1000))
                for found in page
                if found["path"].startswith(prefix) and is_key(found["path"])
            ]
            if objects:
                yield objects

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        distinct = list(dict.fromkeys(require_key(key) for key in keys))
        gone: list[str] = []
        for first in range(0, len(distinct), DELETED_AT_ONCE):
            gone += await self._delete(distinct[first : first + DELETED_AT_ONCE])
        return gone

    async def create(self, key: str, data: ObjectData) -> str:
        return await self._write_if(key, data, "create")

    async def replace(self, key: str, data: ObjectData, version: str) -> str:
        return await self._write_if(key, data, {"e_tag": version})

    async def get_versioned(self, key: str) -> VersionedObject:
        async def read() -> VersionedObject:
            answer = await self._store.get_async(require_key(key))
            etag = answer.meta["e_tag"]
            return VersionedObject(bytes(await answer.bytes_async()), _told(etag))

        try:
            return await self._request(read)
        except self._errors as error:
            self._raise_absence(error, key)
            raise self._translated(error, f"cannot read {key!r}") from None

    async def unbounded_versions(self, prefix: str) -> str | None:
        if self._keeps_versions:
            raise WalObjectStoreError(
                f"{self._settings.url} keeps old versions of objects, and obstore does not tell whether a rule of its "
                f"lifecycle removes them: see to it that one does below {prefix!r}, or switch versioning off",
                retriable=False,
            )
        return None

    @property
    def _store(self) -> S3Store:
        if self._opened is None:
            raise WalObjectStoreError("the store is not started, or stopped")
        return self._opened

    @cached_property
    def _errors(self) -> tuple[type[Exception], ...]:
        from obstore.exceptions import BaseError

        return (BaseError, OSError)

    def _open(self) -> S3Store:
        from obstore.store import S3Store

        settings = self._settings
        timeout = timedelta(seconds=self._timeout_s)
        config: dict[str, Any] = {"virtual_hosted_style_request": False} if settings.endpoint_url else {}
        if settings.endpoint_url:
            config["endpoint"] = settings.endpoint_url
        if settings.region:
            config["region"] = settings.region
        if settings.key is not None and settings.secret is not None:
            config |= {
                "access_key_id": settings.key.get_secret_value(),
                "secret_access_key": settings.secret.get_secret_value(),
            }
        return S3Store(
            settings.bucket,
            prefix=settings.prefix or None,
            client_options={"timeout": timeout, "allow_http": settings.endpoint_url.startswith("http://")},
            retry_config={"max_retries": 0},
            **config,
        )

    async def _first_page(self) -> None:
        await _next_page(self._store.list(chunk_size=1))

    async def _write(self, key: str, data: ObjectData, mode: Any) -> str:
        answer = await self._store.put_async(key, bytes(data), mode=mode, use_multipart=False)
        self._keeps_versions = self._keeps_versions or bool(answer["version"])
        return _told(answer["e_tag"])

    async def _write_if(self, key: str, data: ObjectData, mode: Any) -> str:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            return await self._request(partial(self._write, require_key(key), data, mode))
        except (AlreadyExistsError, PreconditionError) as error:
            if says_conflict(error) or is_foreign_answer(error):
                raise self._translated(error, f"cannot write {key!r}") from None
            raise ConditionFailedError(key) from None
        except self._errors as error:
            if says_no_object(error) and mode != "create":
                raise ConditionFailedError(key) from None
            raise self._translated(error, f"cannot write {key!r}") from None

    async def _delete(self, keys: Sequence[str]) -> Sequence[str]:
        """Delete in one request. It does not say which are left where one is refused: then each has its own."""
        try:
            await self._request(partial(self._store.delete_async, keys))
        except self._errors as error:
            if len(keys) == 1:
                if says_no_object(error):
                    return keys
                raise self._translated(error, f"cannot delete {keys[0]!r}") from None
        else:
            return keys
        outcomes = await asyncio.gather(*(self._delete([key]) for key in keys), return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        unexpected = next((error for error in refused if not isinstance(error, WalObjectStoreError)), None)
        if unexpected is not None or len(refused) == len(keys):
            raise unexpected or refused[0]
        if refused:
            logger.warning("%d of %d objects are not deleted: %s", len(refused), len(keys), refused[0])
        return [key for key, outcome in zip(keys, outcomes, strict=True) if not isinstance(outcome, BaseException)]

    async def _ends_before(self, key: str, start: int) -> bool:
        """Whether a range was refused because it begins behind the object's end."""
        try:
            meta = await self._request(partial(self._store.head_async, key))
        except self._errors as error:
            self._raise_absence(error, key)
            return False
        return start >= meta["size"]

    async def _attempt(self, doing: str, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._request(work)
        except self._errors as error:
            raise self._translated(error, doing) from None

    async def _request(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await a request in its turn. obstore begins one as soon as it is called, so it is called here."""
        async with self._turns, asyncio.timeout(self._timeout_s):
            return await work()

    def _raise_absence(self, error: Exception, key: str) -> None:
        if says_no_object(error):
            raise ObjectNotFoundError(key) from None

    def _translated(self, error: Exception, doing: str) -> WalObjectStoreError:
        return translated(error, doing, secret_values(self._settings))


async def _next_page(stream: Any) -> Sequence[Any] | None:
    page: Sequence[Any] | None = await anext(aiter(stream), None)
    return page


def _told(etag: str | None) -> str:
    if etag is None:
        raise WalObjectStoreError("the service tells no ETag of objects", retriable=False)
    return etag
