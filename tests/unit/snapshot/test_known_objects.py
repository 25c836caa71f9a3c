"""Which objects a shard's snapshot says it knows."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest

from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.diskless.commands import HandOver
from diskless_core.shards import DISKLESS
from diskless_core.snapshot import reading
from diskless_core.snapshot.format import Manifest, SnapshotError
from diskless_core.snapshot.known_objects import known_objects_of_part
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from tests.support.shards import SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

PREFIX = "snapshots"


class Place:
    """Two shards whose snapshots go to one object store."""

    def __init__(self) -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        self.objects = MemoryWalObjectStore(clock)
        self.snapshots = Snapshots(self.objects, PREFIX, clock)
        self.nodes = [
            ShardNode(SharedLog(), clock, shard_id=DISKLESS.shard(index), snapshots=self.snapshots) for index in (0, 10)
        ]

    async def start(self) -> None:
        for node in self.nodes:
            await node.start()
            await node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])

    async def take(self, index: int = 0) -> Manifest:
        shard = self.nodes[index].shard
        await shard.flush()
        return await shard.take_snapshot(self.snapshots)

    async def known(self) -> set[str]:
        found = set[str]()
        for manifest in (await reading.manifests(self.objects, PREFIX)).values():
            for part in manifest.parts:
                data = await reading.read_part(self.objects, part)
                found.update(*known_objects_of_part(manifest.tables, part, data))
        return found


def on_a_place(story: Callable[[Place], Awaitable[None]]) -> None:
    async def main() -> None:
        place = Place()
        await place.start()
        await story(place)
        for node in place.nodes:
            await node.stop()

    run(main)


def test_objects_that_were_committed_handed_over_or_refused_are_known():
    async def story(place: Place) -> None:
        first, second = place.nodes
        await first.commit(commit_of("committed", batch()))
        await first.commit(commit_of("refused", batch(9)))
        await first.shard.hand_over([HandOver("handed-over", (0, 10), 0, 0)])
        await second.commit(commit_of("elsewhere", batch(), owner_ids=(10,)))
        assert await place.known() == set(), "there is no snapshot yet"
        await place.take()
        assert await place.known() == {"committed", "refused", "handed-over"}
        everything = ["committed", "refused", "handed-over", "elsewhere", "never"]
        assert set(await first.shard.describe_files(everything)) == await place.known()
        await place.take(1)
        await first.commit(commit_of("later", batch()))
        assert await place.known() == {"committed", "refused", "handed-over", "elsewhere"}

    on_a_place(story)


def test_parts_can_be_read_one_by_one():
    async def story(place: Place) -> None:
        await place.nodes[0].commit(commit_of("committed", batch()))
        taken = await place.take()
        (found,) = (await reading.manifests(place.objects, PREFIX)).items()
        assert found == (SHARD_ID, taken)
        (part,) = taken.parts
        data = await reading.read_part(place.objects, part)
        keys = {key for keys in known_objects_of_part(taken.tables, part, data) for key in keys}
        assert keys == {"committed"}
        other_version = {**taken.tables, "files": ["key:TEXT"]}
        with pytest.raises(SnapshotError, match="its table files has no object_key"):
            list(known_objects_of_part(other_version, part, data))

    on_a_place(story)
