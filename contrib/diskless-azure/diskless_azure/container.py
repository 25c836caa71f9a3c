"""A container and the requests to it: the one module that knows Azure's client library.

Each request is sent once. The library would send it again by itself, and a conditional write whose answer was lost
would then be refused because of itself. The core tries again, with back-off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from diskless_azure.config import AzureConnection
from diskless_azure.errors import NOT_SATISFIABLE, RefusedError, translated
from diskless_core.clock import Clock
from diskless_core.plugin.wal_object_store import ObjectInfo, VersionedObject, WalObjectStoreError

if TYPE_CHECKING:
    from azure.storage.blob import BlobProperties
    from azure.storage.blob.aio import BlobClient, ContainerClient

    from diskless_azure.connection import Connection

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IfAbsent:
    """Write only where there is no blob."""


@dataclass(frozen=True, slots=True)
class IfVersion:
    """Write only in the place of the blob with this ETag."""

    etag: str


Condition = IfAbsent | IfVersion | None
"""None: write in any case."""


@dataclass(frozen=True, slots=True)
class ListedPage:
    """One page of a listing; `token` asks for the next one, None after the last."""

    objects: list[ObjectInfo]
    token: str | None


class AzureContainer:
    """A container, or a part of one below a prefix. Names of blobs are those below the prefix.

    All coroutines but `close` raise `RefusedError`, also when `request_timeout_ms` has passed.
    """

    def __init__(self, settings: AzureConnection, clock: Clock) -> None:
        self.clock = clock
        self._settings = settings
        self._prefix = f"{settings.prefix}/" if settings.prefix else ""
        self._timeout_s = settings.request_timeout_ms / 1000
        self._connection: Connection | None = None
        self._limits: set[asyncio.Timeout] = set()
        self._has_worked = False
        self._keeps_versions = False

    @property
    def name(self) -> str:
        """What an operator calls it. No secret is in it."""
        return f"container {self._settings.container!r}" + (f" below {self._prefix!r}" if self._prefix else "")

    async def open(self) -> None:
        """Connect, and list something to find out whether that is allowed."""
        doing = f"cannot use the {self.name}"
        # Importing the library and looking for credentials takes a second, and blocks.
        self._connection = await asyncio.to_thread(self._connect)
        try:
            await self._attempt(doing, self._connection.open())
            await self.list_page("", None, 1)
            self._has_worked = True
            await self._refuse_folders(doing)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close all connections. What is under way ends with an error. Idempotent."""
        connection, self._connection = self._connection, None
        for limit in self._limits:  # what comes to wait for a connection now would wait for one that never comes
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())
        if connection is not None:
            await connection.close()

    async def put(self, key: str, data: bytes, condition: Condition = None) -> str:
        """Store a blob in one request, and return its ETag."""
        upload = self._blob(key).upload_blob(data, length=len(data), overwrite=True, **_headers(condition))
        return self._written(await self._attempt(_writing(key), upload))

    async def put_block(self, key: str, block_id: str, data: bytes) -> None:
        """Send a part of a blob that nobody sees. All ids of a blob's blocks have to be of the same length."""
        await self._attempt(_writing(key), self._blob(key).stage_block(block_id, data, length=len(data)))

    async def commit_blocks(self, key: str, block_ids: Sequence[str], condition: Condition = None) -> str:
        """Make a blob of blocks that were sent, and return its ETag. Its other blocks are thrown away."""
        from azure.storage.blob import BlobBlock

        blocks = [BlobBlock(block_id) for block_id in block_ids]
        commit = self._blob(key).commit_block_list(blocks, **_headers(condition))
        return self._written(await self._attempt(_writing(key), commit))

    async def get(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`, as many as there are."""
        doing = f"cannot read {key!r}"
        if start >= end:
            await self._attempt(doing, self._blob(key).get_blob_properties())
            return b""
        try:
            return await self._attempt(doing, self._download(key, start, end))
        except RefusedError as error:
            if error.status == NOT_SATISFIABLE:
                return b""
            raise

    async def get_versioned(self, key: str) -> VersionedObject:
        """A whole blob, in one request, with its ETag."""

        async def download() -> VersionedObject:
            answer = await self._blob(key).download_blob()
            return VersionedObject(await answer.readall(), answer.properties.etag)

        return await self._attempt(f"cannot read {key!r}", download())

    async def list_page(self, prefix: str, token: str | None, limit: int) -> ListedPage:
        """One page of the blobs whose name starts with `prefix`. Names that cannot be keys are told, too."""
        return await self._attempt(f"cannot list the {self.name}", self._list_page(prefix, token, limit))

    async def delete(self, key: str) -> None:
        """Delete a blob with its snapshots."""
        await self._attempt(f"cannot delete {key!r}", self._blob(key).delete_blob(delete_snapshots="include"))

    async def keeps_versions(self, prefix: str) -> bool:
        """Whether a blob below `prefix` has been seen to have a version, which the account then keeps."""
        if not self._keeps_versions:
            listed = self._list(prefix, None, 1, include=["versions"])
            found, _ = await self._attempt(f"cannot list versions in the {self.name}", listed)
            self._keeps_versions = any(blob.version_id for blob in found)
        return self._keeps_versions

    def _connect(self) -> Connection:
        from diskless_azure.connection import Connection

        return Connection(self._settings)

    @property
    def _client(self) -> ContainerClient:
        if self._connection is None:
            raise WalObjectStoreError("the store is not started, or stopped")
        return self._connection.container

    def _blob(self, key: str) -> BlobClient:
        return self._client.get_blob_client(f"{self._prefix}{key}")

    def _written(self, answer: Mapping[str, Any]) -> str:
        self._keeps_versions = self._keeps_versions or bool(answer.get("version_id"))
        return str(answer["etag"])

    async def _download(self, key: str, start: int, end: int) -> bytes:
        answer = await self._blob(key).download_blob(offset=start, length=end - start)
        return await answer.readall()

    async def _list_page(self, prefix: str, token: str | None, limit: int) -> ListedPage:
        blobs, next_token = await self._list(prefix, token, limit)
        skipped = len(self._prefix)
        objects = [
            ObjectInfo(blob.name[skipped:], blob.size, int(blob.last_modified.timestamp() * 1000)) for blob in blobs
        ]
        return ListedPage(objects, next_token)

    async def _list(
        self, prefix: str, token: str | None, limit: int, **options: Any
    ) -> tuple[list[BlobProperties], str | None]:
        wanted = f"{self._prefix}{prefix}"
        pages = self._client.list_blobs(name_starts_with=wanted, results_per_page=limit, **options).by_page(token)
        blobs = [blob async for blob in await anext(pages)]
        foreign = next((blob.name for blob in blobs if not blob.name.startswith(wanted)), None)
        if foreign is not None:
            raise RefusedError(f"the {self.name} listed {foreign!r}, asked for {wanted!r}", retriable=False)
        next_token: str | None = getattr(pages, "continuation_token", None)
        return blobs, next_token or None

    async def _refuse_folders(self, doing: str) -> None:
        """Refuse an account that lists folders among its blobs. Some credentials may not ask."""
        try:
            account = await self._attempt(doing, self._client.get_account_information())
        except RefusedError as error:
            if error.retriable:
                raise
            logger.info("whether the account has a hierarchical namespace is not known: %s", error)
            return
        if account.get("is_hns_enabled"):
            raise RefusedError(
                f"{doing}: the storage account has a hierarchical namespace, and lists folders among its blobs; "
                "use an account without it",
                retriable=False,
            )

    async def _attempt(self, doing: str, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                self._limits.add(limit)
                try:
                    return await work
                finally:
                    self._limits.discard(limit)
        except (RuntimeError, AssertionError, asyncio.CancelledError):
            # aiohttp ends like this what waits for a connection, or has just got one, when its session is closed.
            if self._connection is not None or _is_being_cancelled():
                raise
            raise RefusedError(f"{doing}: the store was stopped meanwhile", retriable=True) from None
        except self._expected as error:
            if self._connection is None:
                raise RefusedError(f"{doing}: the store was stopped meanwhile", retriable=True) from None
            raise translated(
                error, doing, now_ms=self.clock.now_ms(), secrets=self._secrets, has_worked=self._has_worked
            ) from None

    @cached_property
    def _expected(self) -> tuple[type[Exception], ...]:
        from aiohttp import ClientError
        from azure.core.exceptions import AzureError

        return (AzureError, ClientError, OSError)

    @cached_property
    def _secrets(self) -> frozenset[str]:
        return self._settings.secrets()


def _headers(condition: Condition) -> dict[str, Any]:
    from azure.core import MatchConditions

    match condition:
        case IfAbsent():
            return {"match_condition": MatchConditions.IfMissing}
        case IfVersion(etag):
            return {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        case None:
            return {}


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _writing(key: str) -> str:
    return f"cannot write {key!r}"
