"""Reading objects through the cache: asked for once, checked once, prepared for readers once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from diskless_core.diskless.commands import TimestampType
from diskless_core.fetch.object_cache import Chunk, ObjectCache
from diskless_core.metrics import Metrics
from diskless_core.plugin.wal_object_store import ObjectNotFoundError
from diskless_core.protocol import record_batch
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_core.testing.fakes.objects import Operation
from diskless_core.wal.runs import Run
from tests.support.guarantees import guarantee
from tests.support.produce_path import RULES, ProducePath, batch_of, key_of, records_of
from tests.support.virtual_time import START_MS, run


async def run_of(path: ProducePath, partition: int) -> Run:
    [found] = (await path.node.shard.find(key_of(partition), 0, 1)).runs
    return found


def test_however_many_read_a_range_at_once_the_store_is_asked_once() -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            await path.produce((0, batch_of(b"a")))
            with path.objects.hold(Operation.GET) as hold:
                readers = [asyncio.create_task(path.read(0)) for _ in range(5)]
                await hold.reached()
                hold.release()
                found = await asyncio.gather(*readers)
            assert found == [[(0, b"a")]] * 5
            assert path.objects.calls[Operation.GET] == 1

    run(main)


def test_a_reader_that_gives_up_does_not_fail_the_others() -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            await path.produce((0, batch_of(b"a")))
            with path.objects.hold(Operation.GET) as hold:
                first, second = (asyncio.create_task(path.read(0)) for _ in range(2))
                await hold.reached()
                first.cancel()
                await asyncio.sleep(0)
                hold.release()
                assert await second == [(0, b"a")]

    run(main)


def test_what_is_wrong_with_one_object_is_told_for_its_runs_only() -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            runs = []
            for partition in range(3):
                await path.produce((partition, batch_of(b"value")))
                runs.append(await run_of(path, partition))
            del path.objects.objects[runs[0].object_key]
            damaged = bytearray(path.objects.objects[runs[1].object_key])
            damaged[runs[1].byte_offset + 70] ^= 1
            path.objects.objects[runs[1].object_key] = bytes(damaged)
            missing, corrupt, sound = await path.reader.read(runs)
            assert isinstance(missing.failure, ObjectNotFoundError)
            assert isinstance(corrupt.failure, CorruptBatchError)
            assert (sound.failure, sound.next_offset) == (None, 1)
            assert [len(read.data) for read in (missing, corrupt, sound)] == [0, 0, runs[2].byte_size]

    run(main)


def test_a_truncated_object_and_one_of_other_content_are_corrupt() -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            await path.produce((0, batch_of(b"a", b"b")))
            found = await run_of(path, 0)
            whole = path.objects.objects[found.object_key]
            other = batch_of(b"only one record")
            padded = whole[: found.byte_offset] + other + bytes(len(whole))
            for content in (whole[: found.byte_offset + 10], whole[:3], b"", padded):
                path.objects.objects[found.object_key] = content
                [outcome] = await path.reader.read([found])
                assert isinstance(outcome.failure, CorruptBatchError), content
                assert (len(outcome.data), outcome.next_offset) == (0, 0)

    run(main)


def cut_off(data: bytes) -> bytes:
    return data[:-10]


def nothing(data: bytes) -> bytes:
    return data[:0]


def flipped(data: bytes) -> bytes:
    return bytes([*data[:-1], data[-1] ^ 1])


@guarantee("Reads", "A read of an object that is short or damaged is done once more before a client hears of it.")
@pytest.mark.parametrize("damage", [cut_off, nothing, flipped])
@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_a_read_that_is_short_or_damaged_once_is_done_again_and_the_damage_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes], cache_bytes: int
) -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=cache_bytes) as path:
            await path.produce((0, batch_of(b"value")))
            found = await run_of(path, 0)
            path.reader.deleted(found.object_key)  # what the uploader left in the cache
            get, damages = path.objects.get, [damage]

            async def damaging(key: str, start: int, end: int) -> bytes:
                data = bytes(await get(key, start, end))
                return damages.pop()(data) if damages else data

            monkeypatch.setattr(path.objects, "get", damaging)
            assert await path.read(0) == [(0, b"value")]
            assert path.objects.calls[Operation.GET] == 2
            assert await path.read(0) == [(0, b"value")]
            assert path.objects.calls[Operation.GET] == (3 if not cache_bytes else 2)

    run(main)


def test_an_object_that_is_damaged_is_read_twice_and_then_told() -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            await path.produce((0, batch_of(b"value")))
            found = await run_of(path, 0)
            path.objects.objects[found.object_key] = flipped(
                path.objects.objects[found.object_key][: found.byte_offset + found.byte_size]
            )
            [read] = await path.reader.read([found])
            assert isinstance(read.failure, CorruptBatchError)
            assert path.objects.calls[Operation.GET] == 2

    run(main)


@guarantee("Reads", "What comes before the damage is read.")
@pytest.mark.parametrize("damage", ["a wrong checksum", "a torn length", "the object ends in it", "it ends before it"])
@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_the_batches_before_a_damaged_one_are_read_and_those_behind_it_where_it_is_known_where_it_ends(
    damage: str, cache_bytes: int
) -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=cache_bytes, linger_ms=50) as path:
            batches = [batch_of(b"value %d" % number) for number in range(5)]
            await asyncio.gather(*(path.produce((0, batch)) for batch in batches))
            found = await run_of(path, 0)
            assert found.last_offset == 4
            damaged_at = found.byte_offset + sum(map(len, batches[:3]))
            content = bytearray(path.objects.objects[found.object_key])
            if damage == "a wrong checksum":
                content[damaged_at + 65] ^= 1
            elif damage == "a torn length":
                content[damaged_at + 8 : damaged_at + 12] = b"\x7f\xff\xff\xff"
            else:
                del content[damaged_at + (30 if damage == "the object ends in it" else 0) :]
            path.objects.objects[found.object_key] = bytes(content)
            path.reader.deleted(found.object_key)  # what the uploader left in the cache is sound
            for _ in range(2):
                [read] = await path.reader.read([found])
                assert isinstance(read.failure, CorruptBatchError)
                assert read.next_offset == 3
                assert len(read.data) == damaged_at - found.byte_offset
            [answer] = await path.fetch((0, 1))
            assert answer.error is ErrorCode.NONE
            assert records_of(answer) == [(1, b"value 1"), (2, b"value 2")]
            nothing = (ErrorCode.CORRUPT_MESSAGE, [])
            ends_where_it_says = damage == "a wrong checksum"
            for offset, expected in (
                (3, nothing),
                (4, (ErrorCode.NONE, [(4, b"value 4")]) if ends_where_it_says else nothing),
            ):
                [answer] = await path.fetch((0, offset))
                assert (answer.error, records_of(answer)) == expected

    run(main)


def test_of_a_run_of_which_other_batches_are_there_nothing_is_read() -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0, linger_ms=50) as path:
            batches = [batch_of(b"a"), batch_of(b"b"), batch_of(b"c")]
            await asyncio.gather(*(path.produce((0, batch)) for batch in batches))
            found = await run_of(path, 0)
            for records in (1, 9):
                other = batch_of(*[b""] * records)
                content = bytearray(path.objects.objects[found.object_key])
                content[found.byte_offset : found.byte_offset + len(other)] = other
                whole = found._replace(byte_size=len(other))
                path.objects.objects[found.object_key] = bytes(content)
                [read] = await path.reader.read([whole])
                assert isinstance(read.failure, CorruptBatchError)
                assert len(read.data) == 0

    run(main)


def test_a_batch_on_broker_time_is_read_with_the_commits_time_and_a_good_checksum_also_from_the_store() -> None:
    async def main() -> None:
        for cache_bytes in (0, 1 << 20):
            async with ProducePath(cache_bytes=cache_bytes) as path:
                rules = replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME)
                [result] = await path.produce((0, batch_of(b"a", timestamp_ms=1)), rules=rules)
                assert result.append_time >= START_MS
                for _ in range(2):
                    [answer] = await path.fetch((0, 0))
                    [(_, header)] = record_batch.walk(answer.records[0])
                    assert header.is_log_append_time
                    assert header.max_timestamp == result.append_time
                    assert record_batch.crc_is_valid(answer.records[0], 0, header)
                stored = path.objects.objects[(await run_of(path, 0)).object_key]
                assert batch_of(b"a", timestamp_ms=1) in stored

    run(main)


def test_the_cache_lets_the_coldest_go_and_never_grows_beyond_its_bound() -> None:
    cache = ObjectCache(250, Metrics())
    for name in "abc":
        cache.put(Chunk(name, 0, memoryview(bytearray(100))))
        if name == "b":
            assert cache.find("a", 0, 100) is not None
    assert cache.size_bytes == 200
    assert [cache.find(name, 10, 20) is not None for name in "abc"] == [True, False, True]
    cache.put(Chunk("huge", 0, memoryview(bytearray(300))))
    assert cache.find("huge", 0, 1) is None
    assert cache.size_bytes == 200
    assert cache.find("a", 90, 101) is None
    cache.put(Chunk("a", 100, memoryview(bytearray(50))))
    assert cache.find("a", 100, 150) is not None
