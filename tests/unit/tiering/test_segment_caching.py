"""What reads of segments cost: what is fetched once, read ahead, kept, and let go of."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.plugin.remote_storage import IndexType
from diskless_core.testing.fakes.remote_storage import Operation
from tests.support.produce_path import key_of
from tests.support.segment_reads import KEY, fill, read_all
from tests.support.tiered_path import TieredPath, small_chunks
from tests.support.virtual_time import run


def test_each_byte_is_fetched_once_however_many_read_it_at_once() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 40)
            metadata = await path.tier(interval_bytes=0)
            with small_chunks(700):
                read = await asyncio.gather(*(read_all(path) for _ in range(5)))
            assert all(offsets == read[0] for offsets in read)
            assert path.storage.calls[Operation.FETCH_INDEX] == 1
            assert path.metrics.remote_fetch_bytes._value.get() == metadata.segment_size_bytes + len(
                path.storage.segments[metadata.segment_id].indexes[IndexType.OFFSET]
            )

    run(main)


def test_what_does_not_fit_the_caches_is_read_again() -> None:
    async def main() -> None:
        async with TieredPath(chunk_cache_bytes=1500, index_cache_bytes=10) as path:
            for partition in (0, 1):
                await fill(path, 40, partition=partition)
                metadata = await path.tier(partition, interval_bytes=0)
            size = len(path.storage.segments[metadata.segment_id].indexes[IndexType.OFFSET])
            with small_chunks(700):
                assert await read_all(path) == await read_all(path)
                await read_all(path, key=key_of(1))
                assert path.segments.indexes.size_bytes <= size
                assert path.segments._chunks.size_bytes <= 1500
                fetched = path.storage.calls[Operation.FETCH_INDEX]
                await read_all(path)
                assert path.storage.calls[Operation.FETCH_INDEX] > fetched

    run(main)


def test_who_reads_on_finds_the_next_chunk_loaded_across_segments() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 60)
            await path.tier(through=40, interval_bytes=0)
            await path.tier(interval_bytes=0)
            with small_chunks(700):
                offset, waited = 0, 0
                while True:
                    before = path.storage.calls[Operation.FETCH]
                    read = await path.segments.read(path.node.shard, KEY, offset, 700)
                    if not read.data:
                        break
                    waited += path.storage.calls[Operation.FETCH] > before and offset > 0
                    offset = read.next_offset
                    await asyncio.sleep(1)  # the consumer is busy with what it has
            assert waited <= 1  # for the second chunk: nobody knew yet that it would go on

    run(main)


def test_who_jumps_about_reads_nothing_ahead() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 60)
            await path.tier(interval_bytes=0)
            with small_chunks(700):
                for offset in (100, 50, 0):
                    await path.segments.read(path.node.shard, KEY, offset, 100)
                    fetched = path.storage.calls[Operation.FETCH]
                    await asyncio.sleep(1)
                    assert path.storage.calls[Operation.FETCH] == fetched

    run(main)


@pytest.mark.parametrize("chunks_per_reader", [0.2, 1, 2, 3, 8, 20])
def test_however_many_readers_there_are_each_byte_is_read_about_once(chunks_per_reader: float) -> None:
    async def main() -> None:
        readers, chunk_bytes = 10, 1000
        cache_bytes = int(readers * chunks_per_reader * chunk_bytes * 1.3)  # a chunk counts for more than its bytes
        async with TieredPath(chunk_cache_bytes=cache_bytes) as path:
            await fill(path, 400)
            metadata = await path.tier(interval_bytes=0)
            share = (metadata.end_offset + 1) // readers
            offsets = [reader * share for reader in range(readers)]
            delivered = 0
            with small_chunks(chunk_bytes):
                while any(offset < (reader + 1) * share for reader, offset in enumerate(offsets)):
                    for reader, offset in enumerate(offsets):
                        if offset < (reader + 1) * share:
                            read = await path.segments.read(path.node.shard, KEY, offset, 1500)
                            offsets[reader] = read.next_offset
                            delivered += len(read.data)
                            await asyncio.sleep(0.1)  # others go on, and what is read ahead comes
            index = len(path.storage.segments[metadata.segment_id].indexes[IndexType.OFFSET])
            fetched = path.metrics.remote_fetch_bytes._value.get() - index
            assert fetched <= 1.2 * delivered

    run(main)


def test_what_nobody_had_the_time_to_wait_for_is_there_for_who_asks_again() -> None:
    async def main() -> None:
        async with TieredPath(chunk_cache_bytes=0, index_cache_bytes=0) as path:
            await fill(path, 10)
            await path.tier()
            path.storage.delay(Operation.FETCH_INDEX, 0.6)
            path.storage.delay(Operation.FETCH, 0.6)
            for _ in ("the index", "the chunk"):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await path.segments.read(path.node.shard, KEY, 0, 1000)
                await asyncio.sleep(0.15)
            async with asyncio.timeout(0.5):
                assert (await path.segments.read(path.node.shard, KEY, 0, 1000)).data

    run(main)


def test_a_small_part_of_a_chunk_does_not_keep_all_of_it_in_memory() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 40)
            metadata = await path.tier()
            for max_bytes in (100, 1000, metadata.segment_size_bytes // 2, metadata.segment_size_bytes):
                read = await path.segments.read(path.node.shard, KEY, 0, max_bytes)
                assert memoryview(read.data.obj).nbytes <= 2 * len(read.data) + 300

    run(main)
