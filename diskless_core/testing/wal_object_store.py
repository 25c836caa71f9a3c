"""Contract suite of the noun `wal_object_store`: what every object store plugin has to pass.

Subclass `WalObjectStoreContract` in a test module and give it the fixtures `store` and `back_door`; needs pytest and
pytest-asyncio.
"""

from __future__ import annotations

import asyncio
import mmap
from typing import ClassVar

import pytest

from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStore
from diskless_core.testing.loop_stalls import SOME_CALLS, Turns, assert_loop_goes_on
from diskless_core.testing.patience import within
from diskless_core.testing.wal_object_store_conditions import ConditionalWritesContract
from diskless_core.testing.wal_object_store_failures import ObjectStoreFailureContract
from diskless_core.testing.wal_object_store_listing import ObjectListingContract
from diskless_core.testing.wal_object_store_tools import (
    KEY,
    MEBIBYTE,
    TIMEOUT_S,
    ObjectBackDoor,
    body,
    end_of,
    listed,
    read_whole,
)


class WalObjectStoreContract(ObjectListingContract, ConditionalWritesContract, ObjectStoreFailureContract):
    """An object store plugin passes if a subclass with these and those of the other parts overridden does.

    The optional fixtures are those of `ObjectStoreFailureContract`.

    Attributes:
        large_object_bytes: size of the object that the tests of wholeness move.
    """

    large_object_bytes: ClassVar[int] = 8 * MEBIBYTE

    @pytest.mark.asyncio
    async def test_stop_may_be_called_twice_and_before_start(self, store: WalObjectStore) -> None:
        await store.stop()
        await store.stop()

    @pytest.mark.asyncio
    async def test_stop_may_be_called_twice_after_start(self, store: WalObjectStore) -> None:
        await store.start()
        await store.put(KEY, b"data")
        await store.stop()
        await store.stop()

    @pytest.mark.asyncio
    async def test_a_store_opened_for_reading_gets_and_lists_what_is_there(
        self, store: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        back_door.write(KEY, b"data")
        await store.start_reading()
        try:
            assert list(await listed(store)) == [KEY]
            assert bytes(await store.get(KEY, 1, 3)) == b"at"
        finally:
            await store.stop()

    @pytest.mark.asyncio
    async def test_a_put_stores_exactly_the_bytes_given(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        data = bytes(range(256)) * 3 + b"\r\n\x00"
        await started.put(KEY, data)
        assert back_door.read(KEY) == data

    @pytest.mark.asyncio
    async def test_bytes_that_look_like_a_protocol_are_only_bytes(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        data = b"a\r\n--==0==--\r\n\n--==0==\n\n--==0==--" + bytes(range(256)) + b"0\r\n\r\n"
        await started.put(KEY, data)
        assert back_door.read(KEY) == data

    @pytest.mark.asyncio
    async def test_a_bytearray_is_stored_and_is_the_callers_again_at_return(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        data = bytearray(body(70_000))
        await started.put(KEY, data)
        given = bytes(data)
        data[:] = bytes(len(data))
        del data[100:]
        assert back_door.read(KEY) == given
        assert await read_whole(started, KEY) == given

    @pytest.mark.asyncio
    async def test_a_memoryview_is_stored_as_the_bytes_that_it_shows(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        data = body(3 * mmap.PAGESIZE)
        with memoryview(mmap.mmap(-1, len(data))) as aligned, memoryview(data) as readonly:
            aligned[:] = data
            for number, view in enumerate((aligned, aligned[:-1], aligned[1:], aligned[:0], readonly[5:-5])):
                await started.put(f"view/{number}", view)
                assert back_door.read(f"view/{number}") == bytes(view)
                view.release()

    @pytest.mark.asyncio
    async def test_writing_into_what_was_read_changes_no_object(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        back_door.write(KEY, body(20_000))
        for start, end in ((0, 20_000), (4096, 8192), (5, 19_000)):
            with memoryview(await started.get(KEY, start, end)) as found:
                if not found.readonly:
                    found[:] = bytes(len(found))
            assert await read_whole(started, KEY) == body(20_000)
        assert back_door.read(KEY) == body(20_000)

    @pytest.mark.asyncio
    async def test_what_was_read_is_the_callers_and_stays_as_it_is(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        for seed in range(4):
            back_door.write(f"stays/{seed}", body(100_000, seed))
        windows = ((0, 100_000), (10, 50_000), (3, 7))
        found = {(seed, window): await started.get(f"stays/{seed}", *window) for seed in range(4) for window in windows}
        await started.put("stays/0", body(100_000, 9))
        await started.delete(["stays/1"])
        for (seed, (start, end)), data in found.items():
            assert data == body(100_000, seed)[start:end], "what was read has changed since"

    @pytest.mark.asyncio
    async def test_a_put_leaves_its_argument_alone(self, started: WalObjectStore) -> None:
        data = bytearray(body(5000))
        await started.put(KEY, data)
        assert data == body(5000)

    @pytest.mark.asyncio
    async def test_an_empty_object_can_be_stored_read_and_listed(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        await started.put(KEY, b"")
        assert back_door.read(KEY) == b""
        assert await started.get(KEY, 0, 10) == b""
        assert (await listed(started))[KEY].size_bytes == 0

    @pytest.mark.asyncio
    @pytest.mark.parametrize("size_bytes", [1, 4095, 65_537, MEBIBYTE + 1])
    async def test_objects_of_odd_sizes_come_back_whole(self, started: WalObjectStore, size_bytes: int) -> None:
        await started.put(KEY, body(size_bytes))
        assert await started.get(KEY, 0, size_bytes) == body(size_bytes)

    @pytest.mark.asyncio
    async def test_a_large_object_is_stored_and_any_part_of_it_read(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        size = self.large_object_bytes
        data = body(size)
        await started.put(KEY, data)
        assert back_door.read(KEY) == data
        for start, end in ((0, size), (0, 1), (size - 1, size), (size // 2 - 7, size // 2 + 100_000)):
            assert await started.get(KEY, start, end) == data[start:end]

    @pytest.mark.asyncio
    async def test_putting_a_key_again_replaces_the_object(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        await started.put(KEY, b"the first, longer one")
        assert await read_whole(started, KEY) == b"the first, longer one"
        assert (await listed(started))[KEY].size_bytes == len(b"the first, longer one")
        await started.put(KEY, b"the second")
        assert back_door.read(KEY) == b"the second"
        assert await read_whole(started, KEY) == b"the second"
        assert (await listed(started))[KEY].size_bytes == len(b"the second")

    @pytest.mark.asyncio
    @pytest.mark.parametrize(
        "key",
        [
            "flat",
            "a/b/c/d/e",
            "with-._~+=,@ dash",
            "p/UPPER",
            "p/upper",
            "p/" + "k" * 200,
            "p.tmp",
            "p/.dot",
            "p/%41%2fb",
            "p/#x?y=z&w",
            "p/(a)'!$*;:[b]",
        ],
    )
    async def test_keys_are_taken_as_they_are(
        self, started: WalObjectStore, back_door: ObjectBackDoor, key: str
    ) -> None:
        await started.put(key, key.encode())
        assert back_door.read(key) == key.encode()
        assert await read_whole(started, key) == key.encode()
        assert list(await listed(started)) == [key]
        assert list(await started.delete([key])) == [key]
        assert back_door.read(key) is None

    @pytest.mark.asyncio
    async def test_keys_that_look_alike_are_those_of_different_objects(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        long = "p/" + "k" * 180
        keys = [
            "p/a",
            "p/A",
            "p/aa",
            "p/a.tmp",
            "p/a-",
            "p/0",
            "p/00",
            "p/a%20",
            "p/a%2520",
            "q/a",
            f"{long}1",
            f"{long}2",
        ]
        for key in keys:
            await started.put(key, key.encode())
        assert {key: back_door.read(key) for key in keys} == {key: key.encode() for key in keys}
        assert {key: await read_whole(started, key) for key in keys} == {key: key.encode() for key in keys}
        assert set(await listed(started)) == set(keys)
        assert list(await started.delete(["p/a"])) == ["p/a"]
        assert set(await listed(started)) == {*keys} - {"p/a"}

    @pytest.mark.asyncio
    async def test_a_read_gives_the_range_from_start_inclusive_to_end_exclusive(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        data = body(1000)
        back_door.write(KEY, data)
        for start, end in ((0, 1000), (0, 1), (1, 2), (999, 1000), (100, 900)):
            found = await started.get(KEY, start, end)
            assert found == data[start:end]

    @pytest.mark.asyncio
    async def test_a_read_beyond_the_end_gives_what_there_is(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        data = body(1000)
        back_door.write(KEY, data)
        for start, end in ((0, 2**40), (990, 1010), (999, 1001), (1000, 1001), (5000, 6000)):
            assert await started.get(KEY, start, end) == data[start:end]

    @pytest.mark.asyncio
    async def test_an_empty_range_is_empty(self, started: WalObjectStore, back_door: ObjectBackDoor) -> None:
        back_door.write(KEY, body(10))
        for position in (0, 5, 10, 20):
            assert await started.get(KEY, position, position) == b""

    @pytest.mark.asyncio
    @pytest.mark.parametrize("window", [(0, 10), (0, 0), (5, 2**40)])
    async def test_reading_an_absent_object_says_that_there_is_none(
        self, started: WalObjectStore, back_door: ObjectBackDoor, window: tuple[int, int]
    ) -> None:
        back_door.write(f"{KEY}-other", b"x")
        for absent in (KEY, "prefix/ab", "nowhere/at/all"):
            with pytest.raises(ObjectNotFoundError) as caught:
                await started.get(absent, *window)
            assert caught.value.key == absent
            assert not caught.value.retriable

    @pytest.mark.asyncio
    async def test_many_objects_are_written_and_read_at_once(self, started: WalObjectStore) -> None:
        objects = {f"many/{number % 7}/{number:03}": body(10_000 + number, number) for number in range(100)}
        async with within("what the store was asked for ends"):
            await asyncio.gather(*(started.put(key, data) for key, data in objects.items()))
            found = await asyncio.gather(*(read_whole(started, key) for key in objects))
            parts = await asyncio.gather(*(started.get(key, 100, 200) for key in objects))
        assert dict(zip(objects, found, strict=True)) == objects
        assert list(parts) == [data[100:200] for data in objects.values()]
        assert (await listed(started, "many/")).keys() == objects.keys()

    @pytest.mark.asyncio
    async def test_ranges_of_one_object_are_read_at_once(self, started: WalObjectStore) -> None:
        data = body(100_000)
        await started.put(KEY, data)
        windows = [(start, start + 3000 + start % 7) for start in range(0, 90_000, 2000)]
        async with within("ranges that are read at once come"):
            found = await asyncio.gather(*(started.get(KEY, start, end) for start, end in windows))
        assert [bytes(part) for part in found] == [data[start:end] for start, end in windows]

    @pytest.mark.asyncio
    async def test_puts_of_one_key_at_once_leave_one_of_them_whole(self, started: WalObjectStore) -> None:
        self.require_shared_keys()
        bodies = [body(200_000 + number, number) for number in range(8)]
        async with within("what the store was asked for ends"):
            await asyncio.gather(*(started.put(KEY, data) for data in bodies))
        assert await read_whole(started, KEY) in bodies

    @pytest.mark.asyncio
    async def test_nobody_sees_a_part_of_an_object(self, started: WalObjectStore) -> None:
        size = self.large_object_bytes
        data = body(size)
        async with within("what the store was asked for ends"):
            writing = asyncio.create_task(started.put(KEY, data))
            while not writing.done():
                await asyncio.sleep(0)
                found = await listed(started)
                assert set(found) <= {KEY}, f"a listing shows what is half written: {set(found)}"
                assert all(info.size_bytes == size for info in found.values()), "a part of an object is listed"
                assert (await end_of(started, size)) in (None, data[-1000:])
            await writing
        assert {key: info.size_bytes for key, info in (await listed(started)).items()} == {KEY: size}

    @pytest.mark.asyncio
    async def test_while_an_object_is_replaced_readers_see_the_old_or_the_new_one_whole(
        self, started: WalObjectStore, back_door: ObjectBackDoor
    ) -> None:
        self.require_shared_keys()
        old, new = body(MEBIBYTE, 1), body(MEBIBYTE, 2)
        back_door.write(KEY, old)
        seen: set[bytes] = set()
        async with within("what the store was asked for ends"):
            writing = asyncio.create_task(started.put(KEY, new))
            while not writing.done():
                await asyncio.sleep(0)
                seen.add(bytes(await started.get(KEY, 0, MEBIBYTE)))
            await writing
        assert seen <= {old, new}
        assert await started.get(KEY, 0, MEBIBYTE) == new

    @pytest.mark.asyncio
    async def test_a_put_that_returned_is_seen_by_every_reader_at_once(self, started: WalObjectStore) -> None:
        for number in range(20):
            key = f"seen/{number}"
            with pytest.raises(ObjectNotFoundError):
                await started.get(key, 0, 100)
            assert key not in await listed(started, "seen/")
            await started.put(key, b"x" * number)
            assert len(await started.get(key, 0, 100)) == number
            assert key in await listed(started, "seen/")

    @pytest.mark.asyncio
    @pytest.mark.parametrize("method", ["put", "get", "list", "delete"])
    async def test_the_event_loop_is_not_blocked(self, started: WalObjectStore, method: str) -> None:
        data = body(MEBIBYTE)
        await started.put(KEY, data)

        async def use() -> None:
            for _ in range(SOME_CALLS):
                match method:
                    case "put":
                        await started.put(KEY, data)
                    case "get":
                        await started.get(KEY, 0, len(data))
                    case "list":
                        await listed(started)
                    case _:
                        await started.delete([KEY, "absent"])

        async with asyncio.timeout(TIMEOUT_S):
            await assert_loop_goes_on(method, use)

    @pytest.mark.asyncio
    async def test_others_get_their_turns_while_large_objects_move(self, started: WalObjectStore) -> None:
        async with Turns() as turns, within("a large object is moved"):
            await started.put(KEY, body(self.large_object_bytes))
            after_put = turns.count
            await started.get(KEY, 0, self.large_object_bytes)
        assert 0 < after_put < turns.count
