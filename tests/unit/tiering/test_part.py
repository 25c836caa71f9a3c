"""Tiered storage as a part: made from fakes, it compacts, serves and removes by itself until it is stopped."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.config.tiering import TieringConfig
from diskless_core.testing.fakes.remote_log_metadata import MemoryRemoteLogMetadata
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage
from diskless_core.tiering.part import CompactionForbiddenError, Tiering
from diskless_core.tiering.planning import TopicTiering
from tests.support.compaction_world import RULES
from tests.support.produce_path import ProducePath, batch_of, key_of
from tests.support.tiering_part import tiering_on
from tests.support.virtual_time import run

SETTINGS = TieringConfig(remote_log_storage_system_enable=True)
ROUND_S = SETTINGS.remote_log_manager_task_interval_ms / 1000
KEY = key_of(0)


def tiering_of(path: ProducePath, storage: MemoryRemoteStorage, settings: TieringConfig = SETTINGS) -> Tiering:
    rules = TopicTiering(topic="t", rules=RULES, is_tiered=True)
    return tiering_on(path, settings, lambda: rules, remote_storage=storage, metadata=MemoryRemoteLogMetadata())


def test_it_compacts_serves_and_removes_until_it_is_stopped() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            storage = MemoryRemoteStorage()
            tiering = tiering_of(path, storage)
            before = asyncio.all_tasks()
            await tiering.start()
            for number in range(20):
                await path.produce((0, batch_of(b"%d" % number * 20)))
            await asyncio.sleep(ROUND_S + 1)
            assert tiering.is_tiered(KEY)
            segments = await tiering.remote_log.segments(topic="t", partition=0)
            assert len(segments) == len(storage.segments) > 1
            assert (await tiering.reader.read(path.node.shard, KEY, 0, 1)).next_offset > 0
            assert (await tiering.times.first_at_or_after(path.node.shard, KEY, 0, 0)).offset == 0
            await path.node.shard.delete_records(KEY, segments[0].end_offset + 1)
            await asyncio.sleep(1)
            assert len(storage.segments) == len(segments) - 1
            await tiering.stop()
            assert asyncio.all_tasks() - before == set()

    run(main)


def test_where_compaction_is_not_enabled_segments_are_made_on_demand_only() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            storage = MemoryRemoteStorage()
            tiering = tiering_of(path, storage, TieringConfig())
            await tiering.start()
            for number in range(20):
                await path.produce((0, batch_of(b"%d" % number * 20)))
            await asyncio.sleep(10 * ROUND_S)
            assert not storage.segments
            await tiering.stop()

    run(main)


def test_what_must_not_be_compacted_periodically_is_refused_before_anything_starts() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            path.objects.is_process_local = False
            with pytest.raises(CompactionForbiddenError, match="to the memory of this process"):
                tiering_of(path, MemoryRemoteStorage())

    run(main)
