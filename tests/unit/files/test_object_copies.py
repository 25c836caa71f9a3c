"""Objects are copied from a place in which others come and go."""

from __future__ import annotations

import asyncio

from diskless_core.files.object_copies import ObjectCopies
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from tests.support.virtual_time import VirtualClock, run


class Place:
    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.source, self.target = (MemoryWalObjectStore(self.clock, page_objects=3) for _ in range(2))
        self.copies = ObjectCopies(self.source, self.target, self.clock)

    async def put(self, *keys: str) -> None:
        for key in keys:
            await self.source.put(key, key.encode())


def test_what_is_there_is_copied_once() -> None:
    async def scenario() -> None:
        place = Place()
        await place.put(*(f"wal/{number}" for number in range(20)), "elsewhere/1")

        await place.copies.copy_listed("wal/")
        again = ObjectCopies(place.source, place.target, place.clock)
        await again.copy_listed("wal/")

        assert sorted(place.target.objects) == sorted(f"wal/{number}" for number in range(20))
        assert (place.copies.copied, place.copies.copied_bytes) == (20, sum(len(f"wal/{n}") for n in range(20)))
        assert again.copied == 0

    run(scenario)


def test_what_changed_since_is_copied_again() -> None:
    async def scenario() -> None:
        place = Place()
        await place.put("segments/index")
        await place.copies.copy_listed("segments/")
        await asyncio.sleep(1)
        await place.source.put("segments/index", b"SEGMENTS/index")

        again = ObjectCopies(place.source, place.target, place.clock)
        await again.copy_listed("segments/")

        assert place.target.objects["segments/index"] == b"SEGMENTS/index"

    run(scenario)


def test_what_goes_while_it_is_to_be_copied_is_told() -> None:
    class Vanishing(MemoryWalObjectStore):
        async def get(self, key: str, start: int, end: int) -> ObjectData:
            if key == "wal/2":
                await self.delete([key])
            return await super().get(key, start, end)

    async def scenario() -> None:
        place = Place()
        source = Vanishing(place.clock)
        for number in range(4):
            await source.put(f"wal/{number}", b"some")
        copies = ObjectCopies(source, place.target, place.clock)

        await copies.copy_listed("wal/")

        assert copies.vanished == {"wal/2"}
        assert await copies.copy(["wal/1", "wal/2", "wal/9"]) == {"wal/2", "wal/9"}
        assert sorted(place.target.objects) == ["wal/0", "wal/1", "wal/3"]

    run(scenario)


def test_a_store_that_fails_for_a_moment_is_asked_again() -> None:
    async def scenario() -> None:
        place = Place()
        await place.put("wal/1")
        place.source.fail_next(Operation.GET)
        place.target.fail_next(Operation.PUT)

        assert await place.copies.copy(["wal/1"]) == set()

        assert place.target.objects == {"wal/1": b"wal/1"}

    run(scenario)
