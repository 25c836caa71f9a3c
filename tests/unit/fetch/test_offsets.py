"""ListOffsets by time, where a part of what it has to look into cannot be read."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.diskless.commands import SpecialTimestamp
from diskless_core.fetch.offsets import ListedOffset
from diskless_core.protocol.errors import ErrorCode
from tests.support.produce_path import ProducePath, batch_of, key_of
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
