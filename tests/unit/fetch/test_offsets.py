"""ListOffsets by time, where what it has to look into is large, or cannot be read in part."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.diskless.commands import SpecialTimestamp
from diskless_core.fetch.offsets import ListedOffset
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.record_batch import RecordData, build
from tests.support.guarantees import guarantee
from tests.support.produce_path import ProducePath, batch_of, key_of
from tests.support.tiered_path import TieredPath
from tests.support.virtual_time import START_MS, run


@pytest.mark.parametrize("damage", ["corrupt", "missing"])
def test_a_time_is_looked_up_in_what_comes_before_the_damage_and_what_lies_behind_it_is_an_error(damage: str) -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0, linger_ms=50) as path:
            batches = [batch_of(b"value", timestamp_ms=START_MS + number) for number in range(4)]
            await asyncio.gather(*(path.produce((0, batch)) for batch in batches))
            [found] = (await path.node.shard.find(key_of(0), 0, 1)).runs
            content = bytearray(path.objects.objects[found.object_key])
            content[found.byte_offset + len(batches[0]) + len(batches[1]) + 65] ^= 1
            path.objects.objects[found.object_key] = bytes(content)
            if damage == "missing":
                del path.objects.objects[found.object_key]
            error = ErrorCode.CORRUPT_MESSAGE if damage == "corrupt" else ErrorCode.KAFKA_STORAGE_ERROR

            async def listed(timestamp: int) -> ListedOffset:
                return await path.lookup.list(path.node.shard, key_of(0), timestamp)

            for number in (0, 1):
                expected = ListedOffset(offset=number, timestamp=START_MS + number)
                assert await listed(START_MS + number) == (expected if damage == "corrupt" else ListedOffset(error))
            for timestamp in (START_MS + 2, START_MS + 3, SpecialTimestamp.MAX_TIMESTAMP):
                assert await listed(timestamp) == ListedOffset(error)
            assert await listed(START_MS + 4) == ListedOffset()

    run(main)


@guarantee(
    "Reads",
    "A record is found by its timestamp whatever its batch unpacks to, in WAL objects and in segments.",
)
def test_a_record_of_a_batch_far_above_64_mib_is_found_by_time_before_and_after_compaction() -> None:
    large = RecordData(None, bytes(70 << 20), (), START_MS)
    batch = build([large, RecordData(None, b"last", (), START_MS + 7)], timestamp_ms=START_MS, compression=4)

    async def main() -> None:
        async with TieredPath() as path:
            await path.produce((0, batch))

            async def listed(timestamp: int) -> ListedOffset:
                return await path.lookup.list(path.node.shard, key_of(0), timestamp)

            for is_compacted in (False, True):
                if is_compacted:
                    await path.tier()
                assert await listed(START_MS) == ListedOffset(offset=0, timestamp=START_MS)
                assert await listed(START_MS + 1) == ListedOffset(offset=1, timestamp=START_MS + 7)
                assert await listed(SpecialTimestamp.MAX_TIMESTAMP) == ListedOffset(offset=1, timestamp=START_MS + 7)

    run(main)
