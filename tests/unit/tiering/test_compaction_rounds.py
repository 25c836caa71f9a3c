"""Rounds of the periodic compaction: what they look at, what they leave alone, and what they cost."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace

from diskless_core.diskless.commands import PartitionKey
from diskless_core.testing.fakes.remote_log_metadata import Operation
from diskless_core.testing.fakes.remote_storage import Operation as RemoteOperation
from diskless_core.tiering.compaction import PARTITIONS_AT_ONCE, Compactor
from diskless_core.tiering.planning import FIRST_PAUSE_MS, MAX_PAUSE_MS, TopicTiering
from diskless_core.tiering.report import JobState
from tests.support.compaction_world import RULES, CompactionWorld
from tests.support.produce_path import ProducePath
from tests.support.virtual_time import run

DAY_MS = 86_400_000
OTHER = uuid.UUID(int=9)


def test_a_rest_is_compacted_when_its_topic_has_other_settings() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path, replace(RULES, segment_bytes=1 << 30, segment_ms=7 * DAY_MS))
            compactor = world.compactor()
            await world.fill()
            await compactor.compact_due()
            assert await compactor.compact_due() is None
            world.rules = replace(world.rules, segment_bytes=RULES.segment_bytes)
            report = await compactor.compact_due()
            assert report is not None
            assert report.segments > 1
            await world.check()

    run(main)


def test_a_round_without_work_lets_others_go_on_and_asks_once_for_each_topic() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            count = 8 * PARTITIONS_AT_ONCE
            await world.shard.create_partitions(OTHER, "other", range(count))
            asked = list[bytes]()

            def topic_of(partition: PartitionKey) -> TopicTiering:
                asked.append(partition.topic_id)
                return TopicTiering(topic="t", rules=world.rules, is_tiered=True)

            compactor = Compactor(replace(world.compactor()._services, topic_of=topic_of))
            await compactor.compact_due()
            assert len(compactor._waits) > count
            asked.clear()
            turns = 0

            async def others() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            beside = asyncio.create_task(others())
            assert await compactor.compact_due() is None
            beside.cancel()
            assert len(asked) == 2
            assert turns >= count // PARTITIONS_AT_ONCE - 1
            await world.shard.delete_topic(OTHER)
            assert await compactor.compact_due() is None
            assert len(compactor._waits) < PARTITIONS_AT_ONCE, "what is gone is forgotten"

    run(main)


async def copies_begun(world: CompactionWorld, compactor: Compactor, hours: int) -> int:
    """Look every 30 seconds, for so long."""
    before = world.metadata.calls[Operation.ADD]
    for _ in range(hours * 120):
        await compactor.compact_due()
        await asyncio.sleep(30)
    return world.metadata.calls[Operation.ADD] - before


def test_a_partition_that_fails_is_tried_more_and_more_seldom_and_others_as_ever() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill(0, batches=4)
            damaged = list(path.objects.objects)[1]
            whole = path.objects.objects[damaged]
            path.objects.objects[damaged] = whole[:60] + bytes([whole[60] ^ 1]) + whole[61:]
            compactor = world.compactor()
            assert 10 < await copies_begun(world, compactor, 10) < 20
            await world.fill(1)
            assert await compactor.compact_due() is not None
            assert len(world.tiered_ids(1)) > 1
            assert (await world.compact(compactor)).state is JobState.FAILED, "whoever asks for it does not wait"
            path.objects.objects[damaged] = whole
            assert world.tiered_ids(0) == []
            assert await copies_begun(world, compactor, 1) > 0
            await world.check(0)
            await world.check_clean(0)

    run(main)


def test_a_job_that_was_asked_for_and_worked_ends_the_pause_of_a_partition() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill()
            compactor = world.compactor()
            with world.remote.failing(RemoteOperation.COPY):
                assert await copies_begun(world, compactor, 3) > 3
            assert await compactor.compact_due() is None
            await world.compact(compactor, everything=False)
            assert len(world.tiered_ids()) > 1
            await world.fill()
            assert await compactor.compact_due() is not None
            await world.check()

    run(main)


def test_after_some_segments_a_failure_counts_as_the_first_one() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            compactor = world.compactor()
            await world.fill()
            with world.remote.failing(RemoteOperation.COPY):
                await copies_begun(world, compactor, 3)
            await asyncio.sleep(MAX_PAUSE_MS / 1000)
            await world.fill()
            path.objects.objects.pop(list(path.objects.objects)[-4])
            report = await compactor.compact_due()
            assert report is not None
            assert report.failures
            assert report.segments > 0
            await asyncio.sleep(FIRST_PAUSE_MS / 1000)
            assert await compactor.compact_due() is not None

    run(main)
