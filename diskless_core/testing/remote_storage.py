"""Contract suite of the noun `remote_storage`: what every plugin that keeps segments has to pass.

Subclass `RemoteStorageContract` in a test module and give it the fixture `make_storage`; needs pytest and
pytest-asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from diskless_core.plugin.remote_storage import (
    IndexType,
    LogSegmentData,
    RemoteStorage,
)
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.remote_log.metadata import RemoteLogSegmentState
from diskless_core.testing.loop_stalls import SOME_CALLS, Turns, assert_loop_goes_on
from diskless_core.testing.remote_storage_failures import SegmentFailureContract
from diskless_core.testing.remote_storage_tools import (
    MEBIBYTE,
    TIMEOUT_S,
    BrokenLogError,
    assert_absent,
    assert_not_found,
    assert_stored,
    body,
    copied,
    make_segment,
    read_indexes,
    read_log,
)


class RemoteStorageContract(SegmentFailureContract):
    """A storage passes if a subclass with `make_storage` overridden does."""

    @pytest.mark.asyncio
    async def test_stop_may_be_called_twice_and_before_start(self, make_storage: Callable[[], RemoteStorage]) -> None:
        storage = make_storage()
        await storage.stop()
        await storage.stop()

    @pytest.mark.asyncio
    async def test_stop_may_be_called_twice_after_start(self, make_storage: Callable[[], RemoteStorage]) -> None:
        storage = make_storage()
        await storage.start()
        await copied(storage, make_segment())
        await storage.stop()
        await storage.stop()

    @pytest.mark.asyncio
    async def test_a_copied_segment_is_read_by_another_broker(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        await assert_stored(reader, await copied(storage, make_segment()))

    @pytest.mark.asyncio
    async def test_a_copy_that_returned_is_seen_by_every_reader_at_once(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        for number in range(10):
            segment = await copied(storage, make_segment(100 + number, number, start_offset=number * 100))
            await assert_stored(reader, segment)

    @pytest.mark.asyncio
    @pytest.mark.parametrize("absent", [(), tuple(IndexType), *((index,) for index in IndexType)])
    async def test_an_index_is_there_if_it_was_copied_and_only_then(
        self, storage: RemoteStorage, reader: RemoteStorage, absent: tuple[IndexType, ...]
    ) -> None:
        segment = await copied(storage, make_segment(absent=absent))
        for index in IndexType:
            if index in absent:
                await assert_not_found(f"{index} was not copied", partial(reader.fetch_index, segment.metadata, index))
            else:
                assert await reader.fetch_index(segment.metadata, index) == segment.indexes[index]

    @pytest.mark.asyncio
    async def test_an_empty_index_is_there_and_empty(self, storage: RemoteStorage, reader: RemoteStorage) -> None:
        segment = replace(make_segment(), indexes=dict.fromkeys(IndexType, b""))
        await assert_stored(reader, await copied(storage, segment))

    @pytest.mark.asyncio
    async def test_large_indexes_are_read_whole(self, storage: RemoteStorage, reader: RemoteStorage) -> None:
        segment = replace(make_segment(), indexes={index: body(2 * MEBIBYTE + 1, index) for index in IndexType})
        await assert_stored(reader, await copied(storage, segment))

    @pytest.mark.asyncio
    async def test_of_a_segment_that_was_never_copied_there_is_nothing(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        await assert_absent(storage, make_segment())
        await copied(storage, make_segment(number=1))
        await assert_absent(reader, make_segment(number=2))

    @pytest.mark.asyncio
    async def test_a_fetch_gives_the_range_from_start_inclusive_to_end_exclusive(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        segment = await copied(storage, make_segment(10_000))
        for start, end in ((0, 10_000), (0, 1), (1, 2), (9_999, 10_000), (100, 9_000), (4096, 8192), (4095, 8193)):
            assert await reader.fetch(segment.metadata, start, end) == segment.log[start:end]

    @pytest.mark.asyncio
    async def test_a_fetch_beyond_the_end_gives_what_there_is(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        segment = await copied(storage, make_segment(1_000))
        for start, end in ((0, 2**40), (990, 1010), (999, 1001), (1000, 1001), (5000, 6000)):
            assert await reader.fetch(segment.metadata, start, end) == segment.log[start:end]

    @pytest.mark.asyncio
    async def test_an_empty_range_is_empty(self, storage: RemoteStorage, reader: RemoteStorage) -> None:
        segment = await copied(storage, make_segment(1_000))
        for position in (0, 500, 1_000, 2_000):
            assert await reader.fetch(segment.metadata, position, position) == b""

    @pytest.mark.asyncio
    async def test_writing_into_what_was_read_changes_nothing(self, storage: RemoteStorage) -> None:
        segment = await copied(storage, make_segment(20_000))
        reads = [storage.fetch(segment.metadata, start, end) for start, end in ((0, 20_000), (4096, 8192), (5, 19_000))]
        reads += [storage.fetch_index(segment.metadata, index) for index in segment.indexes]
        for read in reads:
            with memoryview(await read) as found:
                if not found.readonly:
                    found[:] = bytes(len(found))
        await assert_stored(storage, segment)

    @pytest.mark.asyncio
    @pytest.mark.parametrize("size_bytes", [1, 4095, 4096, 65_537, MEBIBYTE + 1])
    async def test_logs_of_any_size_come_back_whole(
        self, storage: RemoteStorage, reader: RemoteStorage, size_bytes: int
    ) -> None:
        await assert_stored(reader, await copied(storage, make_segment(size_bytes)))

    @pytest.mark.asyncio
    @pytest.mark.parametrize("pieces", [(1,), (4096,), (100, 1, 3), (1 << 40,)], ids=str)
    async def test_the_pieces_in_which_a_log_comes_do_not_matter(
        self, storage: RemoteStorage, reader: RemoteStorage, pieces: tuple[int, ...]
    ) -> None:
        segment = make_segment(9_001)
        await assert_stored(
            reader, await copied(storage, replace(segment, pieces=[min(piece, 9_001) for piece in pieces]))
        )

    @pytest.mark.asyncio
    async def test_pieces_may_be_empty_and_of_any_kind_of_bytes(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        segment = make_segment(5_000)
        kinds: list[Callable[[bytes], ObjectData]] = [bytes, bytearray, memoryview]

        async def log() -> AsyncIterator[ObjectData]:
            for number, kind in enumerate(kinds):
                yield b""
                yield kind(segment.log[number * 2_000 : number * 2_000 + 2_000])

        custom = await storage.copy(segment.metadata, LogSegmentData(log=log, indexes=lambda: segment.indexes))
        await assert_stored(reader, segment.known_with(custom))

    @pytest.mark.asyncio
    @pytest.mark.parametrize("odd_bytes", [0, 1, 12_345])
    async def test_a_large_log_comes_back_whole_and_in_any_part(
        self, storage: RemoteStorage, reader: RemoteStorage, odd_bytes: int
    ) -> None:
        size = self.large_log_bytes + odd_bytes
        segment = await copied(storage, make_segment(size))
        await assert_stored(reader, segment)
        for start, end in ((0, 1), (size - 1, size), (size // 2 - 7, size // 2 + 100_000)):
            assert await reader.fetch(segment.metadata, start, end) == segment.log[start:end]

    @pytest.mark.asyncio
    async def test_a_large_log_may_come_in_one_piece(self, storage: RemoteStorage, reader: RemoteStorage) -> None:
        segment = make_segment(self.large_log_bytes)
        await assert_stored(reader, await copied(storage, replace(segment, pieces=(self.large_log_bytes,))))

    @pytest.mark.asyncio
    async def test_indexes_are_asked_for_when_the_log_has_gone_by(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        segment = make_segment()
        made: dict[IndexType, bytes] = {}

        async def log() -> AsyncIterator[ObjectData]:
            yield segment.log
            made.update(segment.indexes)

        custom = await storage.copy(segment.metadata, LogSegmentData(log=log, indexes=lambda: made))
        await assert_stored(reader, segment.known_with(custom))

    @pytest.mark.asyncio
    async def test_copies_of_the_same_offsets_are_apart(self, storage: RemoteStorage, reader: RemoteStorage) -> None:
        segments = [
            await copied(storage, make_segment(1_000 * number, number, absent=(list(IndexType)[number],)))
            for number in range(1, 4)
        ]
        await assert_stored(reader, *segments)
        await storage.delete(segments[1].metadata)
        await assert_absent(reader, segments[1])
        await assert_stored(reader, segments[0], segments[2])
        with pytest.raises(BrokenLogError):
            await storage.copy(segments[1].metadata, segments[1].broken_data(100))
        await assert_stored(reader, segments[0], segments[2])

    @pytest.mark.asyncio
    async def test_segments_of_different_partitions_and_offsets_are_apart(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        places = [("t", 1), ("t-1", 1), ("t", 11), ("T", 1), ("with.dots_and-dashes", 0), ("x" * 200, 2**31 - 1)]
        segments = [
            await copied(storage, make_segment(500 + number, number, topic=topic, partition=partition, start_offset=at))
            for number, ((topic, partition), at) in enumerate(product(places, (0, 2**62)))
        ]
        await assert_stored(reader, *segments)
        await storage.delete(segments[0].metadata)
        await assert_stored(reader, *segments[1:])

    @pytest.mark.asyncio
    @pytest.mark.parametrize("state", RemoteLogSegmentState)
    async def test_a_segment_is_found_in_every_state_and_whoever_asks(
        self, storage: RemoteStorage, reader: RemoteStorage, state: RemoteLogSegmentState
    ) -> None:
        segment = await copied(storage, make_segment())
        later = replace(segment.metadata, state=state, broker_id=7, event_timestamp_ms=1_800_000_000_000)
        known = replace(segment, metadata=later)
        await assert_stored(reader, known)
        await reader.delete(known.metadata)
        await assert_absent(storage, known)

    @pytest.mark.asyncio
    async def test_many_segments_are_copied_and_read_at_once(
        self, storage: RemoteStorage, reader: RemoteStorage
    ) -> None:
        segments = [make_segment(300_000 + number, number, partition=number % 3) for number in range(12)]
        async with asyncio.timeout(TIMEOUT_S):
            known = await asyncio.gather(*(copied(storage, segment) for segment in segments))
            logs = await asyncio.gather(*(read_log(reader, segment) for segment in known))
            indexes = await asyncio.gather(*(read_indexes(reader, segment) for segment in known))
            parts = await asyncio.gather(*(reader.fetch(segment.metadata, 100, 200) for segment in known))
        assert logs == [segment.log for segment in segments]
        assert indexes == [segment.indexes for segment in segments]
        assert parts == [segment.log[100:200] for segment in segments]

    @pytest.mark.asyncio
    async def test_large_segments_are_copied_at_once(self, storage: RemoteStorage, reader: RemoteStorage) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            known = await asyncio.gather(
                *(copied(storage, make_segment(self.large_log_bytes + number, number)) for number in range(2))
            )
        await assert_stored(reader, *known)

    @pytest.mark.asyncio
    @pytest.mark.parametrize("method", ["copy", "fetch", "fetch_index", "delete"])
    async def test_the_event_loop_is_not_blocked(self, storage: RemoteStorage, method: str) -> None:
        segment = make_segment(MEBIBYTE)
        known = await copied(storage, segment)

        async def use() -> None:
            for _ in range(SOME_CALLS):
                match method:
                    case "copy":
                        await storage.copy(segment.metadata, segment.data())
                    case "fetch":
                        await storage.fetch(known.metadata, 0, len(segment.log))
                    case "fetch_index":
                        await storage.fetch_index(known.metadata, IndexType.OFFSET)
                    case _:
                        await storage.delete(known.metadata)

        async with asyncio.timeout(TIMEOUT_S):
            await assert_loop_goes_on(method, use)

    @pytest.mark.asyncio
    async def test_others_get_their_turns_while_large_logs_move(self, storage: RemoteStorage) -> None:
        async with Turns() as turns, asyncio.timeout(TIMEOUT_S):
            segment = await copied(storage, make_segment(self.large_log_bytes))
            after_copy = turns.count
            await storage.fetch(segment.metadata, 0, self.large_log_bytes)
        assert 0 < after_copy < turns.count
