"""Reads all records of segments, for tests of what reads them."""

from __future__ import annotations

from diskless_core.diskless.commands import PartitionKey
from diskless_core.protocol import record_batch
from tests.support.produce_path import batch_of, key_of
from tests.support.tiered_path import TieredPath

KEY = key_of(0)


async def fill(path: TieredPath, batches: int, *, size: int = 100, partition: int = 0) -> None:
    """As many batches of one to three records."""
    for number in range(batches):
        await path.produce((partition, batch_of(*[b"%d" % number * (size // 3)] * (1 + number % 3))))


async def read_all(path: TieredPath, offset: int = 0, max_bytes: int = 1000, *, key: PartitionKey = KEY) -> list[int]:
    """The offsets of all records of segments, as one reader gets them, which is right if nothing is left out."""
    offsets: list[int] = []
    while True:
        read = await path.segments.read(path.node.shard, key, offset, max_bytes)
        if not read.data:
            return offsets
        for position, header in record_batch.walk(read.data):
            assert header.partition_leader_epoch == 0
            batch = read.data[position : position + header.size]
            assert record_batch.crc_is_valid(batch, 0, header)
            offsets += [record.offset for record in record_batch.records(batch)]
        assert offsets[-1] == read.next_offset - 1
        offset = read.next_offset
