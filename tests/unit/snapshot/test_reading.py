"""Which snapshot a reader finds where a shard was on several logs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from diskless_core.coordinator.log_identity import LogName
from diskless_core.coordinator.snapshots import Beginning, Snapshots
from diskless_core.snapshot import reading
from diskless_core.snapshot.format import Manifest
from diskless_core.snapshot.reading import FolderName
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from tests.support.shards import SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

PREFIX = "snapshots"
LOG, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


class Place:
    """A shard whose snapshots go to one object store."""

    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.objects = MemoryWalObjectStore(self.clock)
        self.snapshots = Snapshots(self.objects, PREFIX, self.clock)
        self.node = ShardNode(SharedLog(), self.clock, snapshots=self.snapshots)
        self.next = LogName(OTHER)

    async def start(self) -> None:
        await self.node.start()
        assert self.node.shard.log_id is not None
        self.next = LogName(OTHER, self.node.shard.log_id)
        await self.node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])

    async def take(self) -> Manifest:
        await asyncio.sleep(1)
        await self.node.commit(commit_of(f"object-{self.clock.now_ms()}", batch()))
        await self.node.shard.flush()
        return await self.node.shard.take_snapshot(self.snapshots)

    async def begin_next(self) -> Manifest:
        """One with which the shard begins on another log, at offset 0."""
        await asyncio.sleep(1)
        return await self.node.shard.take_snapshot(self.snapshots, Beginning(self.next))

    async def found(self, log_id: uuid.UUID | None = None) -> list[Manifest]:
        async with aclosing(reading.newest_first(self.objects, PREFIX, SHARD_ID, log_id)) as manifests:
            return [manifest async for manifest in manifests]


def on_a_place(story: Callable[[Place], Awaitable[None]]) -> None:
    async def main() -> None:
        place = Place()
        await place.start()
        await story(place)
        await place.node.stop()

    run(main)


def test_who_knows_the_log_finds_its_snapshots_and_no_others() -> None:
    async def story(place: Place) -> None:
        own, other = await place.take(), await place.begin_next()
        assert await place.found(own.log_id) == [own]
        assert await place.found(OTHER) == [other]
        assert await place.found(uuid.UUID(int=9)) == []

    on_a_place(story)


def test_who_knows_no_log_finds_the_youngest_first_whatever_the_offsets_are() -> None:
    async def story(place: Place) -> None:
        own, other = await place.take(), await place.begin_next()
        assert own.applied_offset > other.applied_offset
        assert await place.found() == [other, own]
        later = await place.take()
        assert await place.found() == [later, other, own]

    on_a_place(story)


def test_a_log_whose_newest_snapshot_is_damaged_is_judged_by_the_one_before() -> None:
    async def story(place: Place) -> None:
        own, other = await place.take(), await place.begin_next()
        damaged = await place.take()
        place.objects.objects[damaged.parts[0].key.rpartition("/")[0] + reading.MANIFEST_SUFFIX] = b"?"
        assert await place.found() == [other, own]

    on_a_place(story)


def test_keys_tell_the_log_and_the_one_before_it() -> None:
    for name in (FolderName(LOG, None), FolderName(OTHER, LOG)):
        stem = reading.stem(PREFIX, SHARD_ID, name, 17, uuid.UUID(int=3))
        for key in (f"{stem}/00000", stem + reading.MANIFEST_SUFFIX):
            assert reading.folder_name_of(PREFIX, SHARD_ID, key) == name
    for stranger in ("readme", "00000000000000000017-a/00000", f"{LOG}-after-nothing/x", f"{LOG}x/y"):
        assert reading.folder_name_of(PREFIX, SHARD_ID, reading.folder(PREFIX, SHARD_ID) + stranger) is None
