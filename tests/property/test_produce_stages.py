"""Batches and all that can hold them up on their way: another codec, partitions that are created, large requests."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest

from diskless_core.diskless.commands import BatchResult
from diskless_core.produce import recompression, writer
from diskless_core.protocol.compression import Codec
from diskless_core.protocol.errors import ErrorCode
from tests.support import batches
from tests.support.produce_path import RULES, ProducePath, key_of
from tests.support.shards import TOPIC
from tests.support.virtual_time import VirtualTimeLoop, run

PARTITIONS = 6
"""Of which the last two are created on the way."""

PRODUCER = 7
CODECS = {"none": 0, "gzip": 1, "zstd": 4}
PACKED = replace(RULES, stored_with=Codec(CODECS["zstd"], 1))


@pytest.mark.parametrize("seed", range(25))
def test_every_batch_is_appended_once_and_in_order_whatever_holds_it_up(seed: int) -> None:
    """Each request has the next batches of some partitions, in sequence, and now and then one that was sent before."""
    chance = random.Random(seed)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        async with ProducePath(
            inflight_max_bytes=chance.choice((300, 3_000, 1 << 30)), buffer_max_bytes=chance.choice((200, 1 << 20))
        ) as path:
            loop.executor_delay_s = lambda: chance.choice((0.0, 0.0, 0.3))
            path.objects.delay_of = lambda _: chance.choice((0.0, 0.1, 2.0))
            awaited = {4, 5}
            path.awaited |= {key_of(partition) for partition in awaited}
            sent = {partition: list[tuple[int, bytes]]() for partition in range(PARTITIONS)}
            asked: list[tuple[Sequence[tuple[int, int]], asyncio.Future[Sequence[BatchResult]]]] = []
            for _ in range(40):
                request, places = [], []
                for partition in chance.choices(range(PARTITIONS), k=chance.randint(1, 8)):
                    if not sent[partition] or chance.random() < 0.85:
                        number = len(sent[partition])
                        value = f"{partition}/{number} ".encode() * chance.choice((1, 30))
                        sent[partition].append((number, value))
                    else:
                        number, value = sent[partition][-1]
                    codec = chance.choice(list(CODECS.values()))
                    request.append(
                        (
                            partition,
                            batches.batch_of(
                                value, compression=codec, producer_id=PRODUCER, producer_epoch=0, base_sequence=number
                            ),
                        )
                    )
                    places.append((partition, number))
                asked.append((places, path.produce(*request, rules=PACKED if chance.random() < 0.7 else RULES)))
                await asyncio.sleep(chance.choice((0, 0, 0.05, 1)))
                if awaited and chance.random() < 0.1:
                    created = awaited.pop()
                    await path.node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [created])
                    path.awaited.remove(key_of(created))
            for created in awaited:
                await path.node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [created])
                path.awaited.remove(key_of(created))
            async with asyncio.timeout(600):
                for places, answer in asked:
                    results = await answer
                    assert [(one.error, one.base_offset) for one in results] == [
                        (ErrorCode.NONE, number) for _, number in places
                    ]
            for partition, values in sent.items():
                assert [value for _, value in await path.read(partition)] == [value for _, value in values]
            assert path.released == len(asked)
            assert path.writer.backlog.size_bytes == 0

    with patch.object(writer, "MAX_COMMIT_BATCHES", 3), patch.object(recompression, "ROUND_BATCHES", 2):
        run(main)
