"""Resumable uploads of Google Cloud Storage."""

from __future__ import annotations

import json
from typing import Any

from diskless_core.plugin.wal_object_store import ObjectData, WalObjectStoreError
from diskless_fsspec.bucket_store import BucketStore, filesystem_class
from diskless_fsspec.errors import http_status
from diskless_fsspec.object_upload import ObjectUpload

CONTENT_TYPE = "application/octet-stream"

_CANCELLED = 499
"""What the service answers to the deletion of an upload."""


async def upload(store: BucketStore, name: str, data: ObjectData, boundary: str, **conditions: str) -> str:
    """Upload an object in one request, and return its generation. Nobody may cache it.

    Args:
        boundary: ends the bytes, so that they must not hold it. gcsfs always takes `==0==`, which anybody can produce.
    """
    described = json.dumps({"name": name, "contentType": CONTENT_TYPE, "cacheControl": "no-store"})
    head = f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{described}\r\n--{boundary}\r\n"
    body = (head + f"Content-Type: {CONTENT_TYPE}\r\n\r\n").encode(), data, f"\r\n--{boundary}--\r\n".encode()
    answer = await store.call(
        "call",
        "POST",
        store.filesystem.base.removesuffix("storage/v1/") + "upload/storage/v1/b/{}/o",
        store.bucket,
        uploadType="multipart",
        headers={"Content-Type": f"multipart/related; boundary={boundary}"},
        data=(await filesystem_class("gcsfs.core", "UnclosableBytesIO", "gcs"))(b"".join(body)),  # sent again by gcsfs
        json_out=True,
        **conditions,
    )
    return str(answer["generation"])


class GcsUpload(ObjectUpload):
    """An object in parts of a multiple of 256 KiB, but for the last one, in their order."""

    sent_at_once = 1

    def __init__(self, store: BucketStore, key: str, size_bytes: int) -> None:
        super().__init__(store.attempt, f"cannot write {key!r}")
        self._store = store
        self._name = store.name(key)
        self._size = size_bytes
        self._location: Any = None
        self._send: Any = None

    async def begin(self) -> None:
        initiate = await filesystem_class("gcsfs.core", "initiate_upload", "gcs")
        self._send = await filesystem_class("gcsfs.core", "upload_chunk", "gcs")
        work = initiate(self._store.filesystem, self._store.bucket, self._name, CONTENT_TYPE)
        self._location = await self._store.attempt(self.doing, work)

    async def send(self, number: int, position: int, part: memoryview) -> None:  # noqa: ARG002 - positions are enough
        filesystem = self._store.filesystem
        await self.ask(self._send(filesystem, self._location, bytes(part), position, self._size, CONTENT_TYPE))

    async def finish(self, number: int, position: int, part: memoryview) -> None:
        await self.send(number, position, part)

    async def abort(self) -> None:
        try:
            await self._store.attempt(self.doing, self._store.call("call", "DELETE", self._location))
        except WalObjectStoreError as error:
            if not isinstance(error.__cause__, Exception) or http_status(error.__cause__) != _CANCELLED:
                raise
