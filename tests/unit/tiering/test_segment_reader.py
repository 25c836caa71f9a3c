"""Reads of segments: what a reader gets, what it costs, what happens when something is missing or damaged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from diskless_core.log import offset_index
from diskless_core.log.segment_indexer import SegmentIndexer
from diskless_core.plugin.remote_storage import IndexType, RemoteResourceNotFoundError, RemoteStorageError
from diskless_core.protocol import record_batch
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from diskless_core.testing.fakes.remote_log_metadata import Operation as MetadataOperation
from diskless_core.testing.fakes.remote_storage import Operation
from diskless_core.tiering.remote_reads import ReaderBusyError
from tests.support.guarantees import guarantee
from tests.support.produce_path import batch_of, key_of, records_of
from tests.support.segment_reads import KEY, fill, read_all
from tests.support.stored_batches import store_batches
from tests.support.tiered_path import TieredPath, small_chunks
from tests.support.virtual_time import run


def test_from_any_offset_all_that_follows_is_read() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 40)
            for through in (17, 40, 60):
                await path.tier(through=through, interval_bytes=300)
            head = path.node.shard.head(KEY)
            assert head is not None
            for chunk_bytes in (200, 1000, 1 << 20):
                with small_chunks(chunk_bytes):
                    for offset in range(head.local_start_offset):
                        found = await read_all(path, offset)
                        assert found == list(range(found[0], head.local_start_offset))
                        assert found[0] <= offset < found[0] + 3

    run(main)


def test_a_read_has_at_least_one_batch_and_else_keeps_to_its_limit() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 12)
            await path.tier()
            sizes = [header.size for _, header in record_batch.walk(await path.batches_from(0, 0, 0))]
            assert len((await path.segments.read(path.node.shard, KEY, 0, 0)).data) == sizes[0]
            for max_bytes in (sizes[0], sizes[0] + 1, 600, 1500):
                read = await path.segments.read(path.node.shard, KEY, 0, max_bytes)
                assert len(read.data) <= max_bytes
                following = await path.segments.read(path.node.shard, KEY, read.next_offset, 0)
                assert len(read.data) + len(following.data) > max_bytes

    run(main)


def test_leader_epochs_of_other_clusters_become_0_and_offsets_that_no_record_has_are_passed_over() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 6)
            await path.tier(through=3, leader_epoch=7)
            metadata = await path.tier(through=7, leader_epoch=9)
            assert b"\x00\x00\x00\x09\x02" in path.storage.segments[metadata.segment_id].log
            assert await read_all(path, 0, 150) == list(range(metadata.end_offset + 1))

    run(main)


def test_an_index_with_an_entry_for_each_append_of_several_batches_will_do() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 60)
            metadata = await path.tier()
            stored = path.storage.segments[metadata.segment_id]
            batches = list(record_batch.walk(stored.log))
            appends = [batches[begin : begin + 5] for begin in range(0, 60, 5)]
            stored.indexes[IndexType.OFFSET] = b"".join(
                offset_index.pack(append[-1][1].last_offset, append[0][0], 0) for append in appends[1:]
            )
            with small_chunks(700):
                for offset in range(metadata.end_offset + 1):
                    found = await read_all(path, offset)
                    assert found == list(range(found[0], metadata.end_offset + 1))
                    assert found[0] <= offset < found[0] + 3
            assert path.metrics.remote_fetch_bytes._value.get() < 2 * metadata.segment_size_bytes

    run(main)


def test_where_a_segment_ends_before_its_last_offset_it_goes_on_with_what_becomes_the_next_one() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            for _ in range(8):
                await path.produce((0, batch_of(b"value")))
            data = await path.batches_from(0, 0, 3)
            indexer = SegmentIndexer(0)
            for _, header in record_batch.walk(data[: len(data) // 4 * 3]):
                indexer.add(header)
            await path.take(await path.copy(0, bytes(data[: len(data) // 4 * 3]), indexer, end_offset=3))
            with path.storage.hold(Operation.FETCH) as hold:
                reading = asyncio.create_task(path.segments.read(path.node.shard, KEY, 3, 1000))
                await hold.reached()
                await path.tier(through=5)
            read = await reading
            assert record_batch.read_header(read.data).base_offset == 4
            assert read.next_offset == 6

    run(main)


Damage = str


async def damaged(path: TieredPath, metadata: RemoteLogSegmentMetadata, damage: Damage) -> None:
    indexes = path.storage.segments[metadata.segment_id].indexes
    whole = indexes[IndexType.OFFSET]
    match damage:
        case "missing":
            del indexes[IndexType.OFFSET], indexes[IndexType.TIMESTAMP]
        case "torn":
            indexes[IndexType.OFFSET] = whole[:-3]
        case "random":
            indexes[IndexType.OFFSET] = random.Random(1).randbytes(len(whole))
        case "shifted":  # as another segment's: it leads to the middle of batches
            entries = bytearray(whole)
            for at in range(7, len(entries), 8):
                entries[at] ^= 3
            indexes[IndexType.OFFSET] = bytes(entries)
        case "sparse":
            indexes[IndexType.OFFSET] = b""


@pytest.mark.parametrize("damage", ["missing", "torn", "random", "shifted"])
def test_an_index_that_is_missing_or_damaged_is_built_again_from_the_log(damage: Damage) -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 40)
            metadata = await path.tier(interval_bytes=100)
            await damaged(path, metadata, damage)
            with small_chunks(700):
                for offset in (70, 0):
                    found = await read_all(path, offset)
                    assert found == list(range(found[0], metadata.end_offset + 1))
                    assert found[0] <= offset

    run(main)


def test_an_index_with_too_few_entries_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 40, size=3000)
            metadata = await path.tier()
            await damaged(path, metadata, "sparse")
            with small_chunks(1000):
                monkeypatch.setattr("diskless_core.tiering.segment_reader.MAX_CHUNK_BYTES", 20_000)
                assert await read_all(path) == list(range(metadata.end_offset + 1))
            assert max(chunk.size_bytes for chunk in path.segments._chunks._values.values()) < 20_000

    run(main)


@pytest.mark.parametrize("rebuilt", [False, True])
@pytest.mark.parametrize("what", ["checksum", "length", "offset", "magic", "end"])
def test_what_comes_before_a_damaged_batch_is_read_and_then_comes_an_error(what: str, rebuilt: bool) -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 40)
            metadata = await path.tier(interval_bytes=100)
            stored = path.storage.segments[metadata.segment_id]
            position, header = list(record_batch.walk(stored.log))[25]
            sound = stored.log
            log = bytearray(sound)
            match what:
                case "checksum":
                    log[position + 70] ^= 1
                case "length":
                    log[position + 10] ^= 0x7F
                case "offset":
                    log[position + 7] ^= 0x40
                case "magic":
                    log[position + 16] = 1
                case "end":
                    del log[position + 5 :]
            stored.log = bytes(log)
            if rebuilt:
                await damaged(path, metadata, "missing")
            with small_chunks(700):
                offset = 0
                while offset < header.base_offset:
                    offset = (await path.segments.read(path.node.shard, KEY, offset, 400)).next_offset
                assert offset == header.base_offset
                with pytest.raises(CorruptBatchError):
                    await path.segments.read(path.node.shard, KEY, offset, 400)
                stored.log = sound
                if not rebuilt and what == "checksum":  # what came damaged is not kept
                    assert await read_all(path) == list(range(metadata.end_offset + 1))

    run(main)


@guarantee(
    "Reads",
    "A consumer that is set behind a batch with a wrong checksum goes on there, in WAL objects and in segments.",
)
@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("number", [0, 4, 9])
def test_what_follows_a_batch_with_a_wrong_checksum_is_read_from_there_on(number: int, is_compacted: bool) -> None:
    async def main() -> None:
        async with TieredPath(chunk_cache_bytes=0) as path:
            batches = [batch_of(b"a%d" % one, b"b%d" % one) for one in range(10)]
            await store_batches(path, *batches)
            if is_compacted:
                metadata = await path.tier(interval_bytes=100)
                stored = path.storage.segments[metadata.segment_id]
                log = bytearray(stored.log)
                log[number * len(batches[0]) + 70] ^= 1
                stored.log = bytes(log)
            else:
                [key] = path.objects.objects
                content = bytearray(path.objects.objects[key])
                content[16 + number * len(batches[0]) + 70] ^= 1
                path.objects.objects[key] = bytes(content)

            async def fetched(offset: int) -> tuple[ErrorCode, list[int]]:
                [answer] = await path.fetch((0, offset))
                return answer.error, [offset for offset, _ in records_of(answer)]

            for offset in range(20):
                error, offsets = await fetched(offset)
                if offset // 2 == number:
                    assert (error, offsets) == (ErrorCode.CORRUPT_MESSAGE, [])
                else:
                    end = 2 * number if offset < 2 * number else 20
                    assert (error, offsets) == (ErrorCode.NONE, list(range(offset // 2 * 2, end)))

    run(main)


def test_a_damaged_batch_whose_header_does_not_lead_to_the_next_one_hides_what_follows() -> None:
    async def main() -> None:
        async with TieredPath(chunk_cache_bytes=0) as path:
            await fill(path, 10)
            metadata = await path.tier()
            stored = path.storage.segments[metadata.segment_id]
            log = bytearray(stored.log)
            position, header = list(record_batch.walk(stored.log))[4]
            log[position + 26] ^= 1  # the last offset delta
            stored.log = bytes(log)
            for offset in (header.base_offset, header.last_offset + 2):
                with pytest.raises(CorruptBatchError):
                    await path.segments.read(path.node.shard, KEY, offset, 4000)

    run(main)


async def swapped(path: TieredPath, metadata: RemoteLogSegmentMetadata) -> None:
    """Another copy of the same records in its place, under an id that the coordinator knows."""
    stored = path.storage.segments.pop(metadata.segment_id)
    path.storage.segments[metadata.segment_id._replace(id=path.clock.new_uuid())] = stored


def test_a_segment_that_vanished_is_looked_up_anew_once_before_it_is_an_error() -> None:
    async def main() -> None:
        async with TieredPath(chunk_cache_bytes=0, index_cache_bytes=0) as path:
            await fill(path, 10)
            metadata = await path.tier(interval_bytes=0)
            with small_chunks(700):
                await read_all(path)
            path.metadata.calls.clear()
            await swapped(path, metadata)
            with small_chunks(700), pytest.raises(RemoteResourceNotFoundError):
                await path.segments.read(path.node.shard, KEY, 0, 100)
            assert path.metadata.calls[MetadataOperation.FIND] == 1

    run(main)


def test_a_copy_that_is_not_known_to_be_complete_is_not_read_and_not_remembered() -> None:
    """The reader of `remote_log_metadata` on this node can be behind the coordinator."""

    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 10)
            metadata = await path.tier()
            find, listed = path.metadata.find, path.metadata.list

            async def find_nothing(*_: object) -> None:
                return None

            async def list_begun(*_: object) -> list[RemoteLogSegmentMetadata]:
                return [replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)]

            path.metadata.find, path.metadata.list = find_nothing, list_begun  # type: ignore[method-assign]
            with pytest.raises(RemoteResourceNotFoundError, match="or not that it is complete"):
                await path.segments.read(path.node.shard, KEY, 0, 100)
            path.metadata.find, path.metadata.list = find, listed  # type: ignore[method-assign]
            found = await path.segments.segment(path.node.shard, KEY, metadata.segment_id.id.bytes, 0)
            assert found.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
            assert await read_all(path) == list(range(metadata.end_offset + 1))

    run(main)


def test_copies_that_nobody_took_are_not_read() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 20)
            data = await path.batches_from(0, 0, 100)
            indexer = SegmentIndexer(0)
            for _, header in record_batch.walk(data):
                indexer.add(header)
            taken = await path.tier(through=15)
            other = await path.copy(0, bytes(len(data)), indexer)
            found = await path.metadata.find(other.segment_id.topic_id_partition, 0, 3)
            assert found is not None
            assert found.segment_id == other.segment_id
            assert await read_all(path) == list(range(taken.end_offset + 1))
            await path.note(taken, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)

    run(main)


def test_beyond_the_limits_reads_wait_and_then_are_refused() -> None:
    async def main() -> None:
        async with TieredPath(at_once=2, max_waiting=3) as path:
            for partition in range(4):
                await fill(path, 3, partition=partition)
                any_segment = await path.tier(partition)

            async def read(partition: int) -> Sequence[int]:
                return await read_all(path, key=key_of(partition))

            with path.storage.hold(Operation.FETCH_INDEX) as hold:
                reads = [asyncio.create_task(read(partition)) for partition in range(4)]
                await hold.reached(2)
                await asyncio.sleep(1)
                assert hold.waiting == 2
                assert path.metrics.remote_reader_queue._value.get() == 2
                more = asyncio.create_task(path.reads.fetch(any_segment, 0, 1))
                await asyncio.sleep(1)
                with pytest.raises(ReaderBusyError):
                    await path.reads.fetch(any_segment, 0, 1)
                assert path.metrics.remote_fetch_refusals._value.get() == 1
            assert all(await asyncio.gather(*reads))
            await more
            assert path.metrics.remote_reader_queue._value.get() == 0

    run(main)


def test_who_gives_up_leaves_the_read_to_the_others_and_errors_come_to_all() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 10)
            await path.tier()
            with path.storage.hold(Operation.FETCH) as hold:
                reads = [asyncio.create_task(read_all(path)) for _ in range(3)]
                await hold.reached()
                reads[0].cancel()
                await asyncio.sleep(0)
            assert (await asyncio.gather(*reads[1:]))[0]
            assert path.storage.calls[Operation.FETCH] == 1
        async with TieredPath() as path:
            await fill(path, 10)
            await path.tier()
            path.storage.fail_next(Operation.FETCH)
            outcomes = await asyncio.gather(*(read_all(path) for _ in range(3)), return_exceptions=True)
            assert all(isinstance(outcome, RemoteStorageError) for outcome in outcomes)
            assert path.metrics.remote_fetch_errors._value.get() == 1
            assert await read_all(path)

    run(main)
