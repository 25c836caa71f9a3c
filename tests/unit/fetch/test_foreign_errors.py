"""Backends that raise what their interface does not know, in the middle of the work: the rest of it goes on."""

from __future__ import annotations

import asyncio
from typing import Any

from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.plugin_host.guarded import guarded
from diskless_core.protocol.errors import ErrorCode
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage
from tests.support.produce_path import ProducePath, batch_of, records_of
from tests.support.tiered_path import TieredPath
from tests.support.virtual_time import run


def refused() -> OSError:
    return OSError("connection refused")


class GuardedPath(ProducePath):
    """With an object store as a plugin manager makes it; `bare` is the plugin's own, which loses what is in `lost`."""

    def __init__(self) -> None:
        super().__init__(cache_bytes=0)
        self.bare = self.objects
        self.objects = guarded("wal_object_store", "vendor", self.objects, ())


def test_a_produce_is_tried_again_and_acknowledged() -> None:
    async def main() -> None:
        async with GuardedPath() as path:
            path.bare.fail_next(Operation.PUT, 3, error=refused)
            [result] = await asyncio.wait_for(path.produce((0, batch_of(b"a"))), 60)
            assert result.error is ErrorCode.NONE
            assert await path.read(0) == [(0, b"a")]

    run(main)


def test_an_object_that_cannot_be_read_keeps_no_other_partition_waiting() -> None:
    async def main() -> None:
        async with GuardedPath() as path:
            await path.produce((0, batch_of(b"a")))
            [broken] = path.bare.objects
            await path.produce((1, batch_of(b"b")))
            get = path.bare.get

            async def get_others(key: str, start: int, end: int) -> ObjectData:
                if key == broken:
                    raise refused()
                return await MemoryWalObjectStore.get(path.bare, key, start, end)

            path.bare.get = get_others  # type: ignore[method-assign]
            failed, healthy = await path.fetch((0, 0), (1, 0))
            assert failed.error is ErrorCode.KAFKA_STORAGE_ERROR
            assert records_of(healthy) == [(0, b"b")]
            path.bare.get = get  # type: ignore[method-assign]
            assert await path.read(0) == [(0, b"a")]

    run(main)


def test_a_segment_that_cannot_be_read_keeps_no_other_partition_waiting() -> None:
    class Storage(MemoryRemoteStorage):
        broken: Any = None

        async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> ObjectData:
            if metadata.segment_id == self.broken:
                raise refused()
            return await super().fetch(metadata, start, end)

    async def main() -> None:
        async with TieredPath() as path:
            bare = Storage()
            path.storage = path.reads._storage = guarded("remote_storage", "vendor", bare, ())
            for partition, value in enumerate((b"a", b"b", b"c")):
                await path.produce((partition, batch_of(value)))
            bare.broken = (await path.tier(0)).segment_id
            await path.tier(1)
            failed, in_segment, in_object = await path.fetch((0, 0), (1, 0), (2, 0), max_bytes=1 << 23)
            assert failed.error is ErrorCode.KAFKA_STORAGE_ERROR
            assert records_of(in_segment) == [(0, b"b")]
            assert records_of(in_object) == [(0, b"c")]

    run(main)
