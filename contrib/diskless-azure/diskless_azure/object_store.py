"""WAL objects as block blobs. What is large goes in blocks, and is seen as a whole when they are committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial

from diskless_azure.blocks import BLOCK_BYTES, BLOCKS_AT_ONCE, new_block_ids
from diskless_azure.container import AzureContainer, Condition, IfAbsent, IfVersion
from diskless_azure.errors import RefusedError
from diskless_azure.keys import is_key, require_key, require_prefix
from diskless_azure.tasks import InFlight
from diskless_core.plugin.wal_object_store import (
    ConditionalObjectStore,
    ConditionFailedError,
    ObjectData,
    ObjectInfo,
    ObjectNotFoundError,
    VersionedObject,
    WalObjectStoreError,
)

logger = logging.getLogger(__name__)

SINGLE_PUT_BYTES = 32 << 20
"""What is larger is sent in blocks, so that a slow network loses one block and not all of it."""

DELETES_AT_ONCE = 32

PAGE_OBJECTS = 200
"""Blobs in a page of a listing. The client library takes a while to parse them, on the event loop."""


class AzureObjectStore(ConditionalObjectStore):
    """Objects in a container, or in a part of one."""

    is_node_local = False
    is_process_local = False

    def __init__(
        self,
        container: AzureContainer,
        *,
        page_objects: int = PAGE_OBJECTS,
        single_put_bytes: int = SINGLE_PUT_BYTES,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.container = container
        self._page_objects = page_objects
        self._single_put_bytes = single_put_bytes
        self._block_bytes = block_bytes

    async def start(self) -> None:
        await self.container.open()

    async def stop(self) -> None:
        await self.container.close()

    async def put(self, key: str, data: ObjectData) -> None:
        await self._write(require_key(key), data, None)

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        try:
            return await self.container.get(require_key(key), start, end)
        except RefusedError as error:
            if error.says_no_blob:
                raise ObjectNotFoundError(key) from None
            raise

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        require_prefix(prefix)
        token: str | None = None
        while True:
            page = await self.container.list_page(prefix, token, self._page_objects)
            objects = [info for info in page.objects if is_key(info.key)]  # others put the rest there
            if objects:
                yield objects
            token = page.token
            if token is None:
                return

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        slots = asyncio.Semaphore(DELETES_AT_ONCE)
        distinct = list(dict.fromkeys(require_key(key) for key in keys))

        async def delete(key: str) -> WalObjectStoreError | None:
            async with slots:
                try:
                    await self.container.delete(key)
                except RefusedError as error:
                    return None if error.says_no_blob else error
                return None

        outcomes = dict(zip(distinct, await asyncio.gather(*map(delete, distinct)), strict=True))
        errors = [error for error in outcomes.values() if error is not None]
        if errors and len(errors) == len(outcomes):
            raise errors[0]
        if errors:
            logger.warning("%d of %d blobs are not deleted: %s", len(errors), len(outcomes), errors[0])
        return [key for key, error in outcomes.items() if error is None]

    async def create(self, key: str, data: ObjectData) -> str:
        return await self._write_if(key, data, IfAbsent())

    async def replace(self, key: str, data: ObjectData, version: str) -> str:
        return await self._write_if(key, data, IfVersion(version))

    async def get_versioned(self, key: str) -> VersionedObject:
        try:
            return await self.container.get_versioned(require_key(key))
        except RefusedError as error:
            if error.says_no_blob:
                raise ObjectNotFoundError(key) from None
            raise

    async def unbounded_versions(self, prefix: str) -> str | None:
        if await self.container.keeps_versions(require_prefix(prefix)):
            raise WalObjectStoreError(
                f"the storage account keeps every old version of a blob, and tells only its managers whether a rule of "
                f"its lifecycle management deletes them: see to it that one deletes versions below {prefix!r} after a "
                "day, or switch versioning off",
                retriable=False,
            )
        return None

    async def _write_if(self, key: str, data: ObjectData, condition: IfAbsent | IfVersion) -> str:
        try:
            return await self._write(require_key(key), data, condition)
        except RefusedError as error:
            if error.says_condition_not_met or (error.says_no_blob and isinstance(condition, IfVersion)):
                raise ConditionFailedError(key) from None
            raise

    async def _write(self, key: str, data: ObjectData, condition: Condition) -> str:
        if memoryview(data).nbytes <= self._single_put_bytes:
            return await self.container.put(key, bytes(data), condition)
        ids = new_block_ids(self.container.clock)
        sent: list[str] = []
        in_flight = InFlight(BLOCKS_AT_ONCE)
        try:
            with memoryview(data) as whole:
                for start in range(0, len(whole), self._block_bytes):
                    sent.append(next(ids))
                    block = bytes(whole[start : start + self._block_bytes])
                    await in_flight.add(partial(self.container.put_block, key, sent[-1], block))
            await in_flight.drain()
            return await self.container.commit_blocks(key, sent, condition)
        finally:
            await in_flight.abandon()
