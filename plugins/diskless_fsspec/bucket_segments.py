"""Segments in a bucket. A log of more than one part is uploaded in parts, and seen as a whole at the end."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from diskless_core.plugin.remote_storage import IndexType
from diskless_core.plugin.wal_object_store import ObjectData, WalObjectStoreError
from diskless_fsspec.bucket_store import BucketStore
from diskless_fsspec.keys import require_key
from diskless_fsspec.parts import InFlight, together
from diskless_fsspec.segments import ALL_SUFFIXES, LOG, SegmentStore, SegmentUpload


class BucketSegmentStore(SegmentStore):
    """Segments among the objects of a bucket."""

    part_bytes = 8 << 20
    uploads_may_overlap = True

    def __init__(self, objects: BucketStore) -> None:
        self.objects = objects

    async def start(self) -> None:
        await self.objects.start()

    async def stop(self) -> None:
        await self.objects.stop()

    def upload(self, key: str, size_bytes: int) -> SegmentUpload:
        return BucketUpload(self.objects, require_key(key), size_bytes)

    async def read(self, key: str, start: int, end: int) -> ObjectData:
        return await self.objects.get(key, start, end)

    async def replace(self, key: str, index: IndexType, data: bytes) -> None:
        await self.objects.put(key + index, data)

    async def forget_uploads(self, key: str) -> None:
        await self.objects.forget_uploads(key + LOG)

    async def delete(self, key: str) -> None:
        keys = [f"{key}{suffix}" for suffix in ALL_SUFFIXES]
        left = set(keys).difference(await self.objects.delete(keys))
        if left:
            raise WalObjectStoreError(f"cannot delete {', '.join(sorted(left))}; the log of this broker says why")
        await self.forget_uploads(key)


class BucketUpload(SegmentUpload):
    """Holds each part until another follows: what is alone goes in one request, and the last one completes the log."""

    def __init__(self, objects: BucketStore, key: str, size_bytes: int) -> None:
        self._objects = objects
        self._key = key
        self._upload = objects.new_upload(key + LOG, size_bytes)
        self._in_flight = InFlight(self._upload.sent_at_once)
        self._held = memoryview(b"")
        self._number = 0
        self._position = 0
        self._begun = False

    async def open(self) -> None:
        """Whether there is more than one part is not known yet."""

    async def write(self, part: memoryview) -> None:
        if self._held:
            if not self._begun:
                await self._upload.begin()
                self._begun = True
            await self._in_flight.add(partial(self._upload.send, self._number, self._position, self._held))
            self._number += 1
            self._position += len(self._held)
        self._held = part

    async def publish(self, indexes: Mapping[IndexType, bytes]) -> None:
        puts = (partial(self._objects.put, self._key + index, data) for index, data in indexes.items())
        await together(*puts, self._in_flight.drain)
        if self._begun:
            await self._upload.finish(self._number, self._position, self._held)
        else:
            await self._objects.put(self._key + LOG, self._held)

    async def discard(self) -> None:
        await self._in_flight.abandon(cancel=True)
        if self._begun:
            await self._upload.abort()
