"""WAL objects in Google Cloud Storage, through gcsfs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from diskless_core.clock import Clock
from diskless_core.plugin.wal_object_store import ObjectData, ObjectInfo, VersionedObject
from diskless_fsspec import gcs_conditions
from diskless_fsspec.bucket_store import BucketOptions, BucketStore, ListedPage, call_coroutine, filesystem_class
from diskless_fsspec.gcs_upload import GcsUpload, upload
from diskless_fsspec.keys import require_key
from diskless_fsspec.object_upload import ObjectUpload

logger = logging.getLogger(__name__)

DELETES_AT_ONCE = 32


class GcsObjectStore(BucketStore):
    """A Google Cloud Storage bucket, or a part of one."""

    def __init__(self, options: BucketOptions, clock: Clock) -> None:
        super().__init__(options)
        self._clock = clock

    async def connect(self) -> Any:
        make = await filesystem_class("gcsfs.core", "GCSFileSystem", "gcs")
        # Finding credentials may ask the machine's metadata server, and blocks.
        filesystem = await asyncio.to_thread(
            make, asynchronous=True, skip_instance_cache=True, **self.options.arguments
        )
        await call_coroutine(filesystem, "set_session")
        return filesystem

    async def disconnect(self, filesystem: Any) -> None:
        await filesystem.session.close()

    async def list_page(self, prefix: str, token: str | None, limit: int) -> ListedPage:
        resume = {} if token is None else {"pageToken": token}
        answer = await self.call(
            "call", "GET", "b/{}/o", self.bucket, prefix=prefix, maxResults=limit, json_out=True, **resume
        )
        objects = [
            ObjectInfo(
                found["name"], int(found["size"]), int(datetime.fromisoformat(found["updated"]).timestamp() * 1000)
            )
            for found in answer.get("items", ())
        ]
        return ListedPage(objects, answer.get("nextPageToken"))

    async def delete_names(self, names: Sequence[str]) -> set[str]:
        slots = asyncio.Semaphore(DELETES_AT_ONCE)

        async def delete(name: str) -> bool:
            async with slots:
                try:
                    await self.call("rm_file", f"{self.bucket}/{name}")
                except FileNotFoundError:
                    return True
                except Exception as error:
                    logger.warning("cannot delete %s: %s", name, error)
                    return False
                return True

        gone = await asyncio.gather(*(delete(name) for name in names))
        return {name for name, is_gone in zip(names, gone, strict=True) if is_gone}

    async def put(self, key: str, data: ObjectData) -> None:
        name = self.name(require_key(key))
        await self.attempt(f"cannot write {key!r}", upload(self, name, data, self._clock.new_uuid().hex))

    async def write_if(self, name: str, data: bytes, version: str | None) -> str:
        return await gcs_conditions.write_if(self, name, data, version, self._clock.new_uuid().hex)

    async def read_versioned(self, name: str) -> VersionedObject:
        return await gcs_conditions.read_versioned(self, name)

    async def find_unbounded_versions(self, name_prefix: str) -> str | None:
        return await gcs_conditions.find_unbounded_versions(self, name_prefix)

    def new_upload(self, key: str, size_bytes: int) -> ObjectUpload:
        return GcsUpload(self, key, size_bytes)

    async def forget_uploads(self, key: str) -> None:
        """They are not to be seen, cost nothing, and expire after a week."""
