"""How many objects there are in each stage of their lives, as metrics tell it."""

from __future__ import annotations

import asyncio

import pytest

from diskless_core.diskless.file_stages import Stage
from diskless_core.files import stage_counts
from diskless_core.files.stage_counts import INTERVAL_S, StageCounter
from tests.support.file_life import FileLife
from tests.support.shards import batch
from tests.support.virtual_time import run


def exported(life: FileLife, index: int = 0) -> dict[str, float | None]:
    shard = str(life.nodes[index].shard.id)
    sample = life.metrics.registry.get_sample_value
    return {stage: sample("diskless_wal_objects", {"shard": shard, "stage": stage}) for stage in Stage}


def test_objects_are_counted_by_stage_in_each_shard_again_and_again() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            await life.put("own", batch(0))
            await life.put("shared", batch(0), batch(1))
            counts = [
                asyncio.create_task(StageCounter(index, node.shard, life.metrics).run())
                for index, node in enumerate(life.nodes)
            ]
            for node in life.nodes:
                await node.shard.flush()
            await asyncio.sleep(INTERVAL_S + 10)
            assert exported(life, 0) == dict.fromkeys(Stage, 0) | {Stage.LIVE: 2}
            assert exported(life, 1) == dict.fromkeys(Stage, 0) | {Stage.LIVE: 1}
            await life.delete_records(partition=0)
            await life.trim()
            await asyncio.sleep(INTERVAL_S)
            assert exported(life, 0) == dict.fromkeys(Stage, 0) | {Stage.TO_DELETE: 1, Stage.TO_HAND_OVER: 1}
            assert exported(life, 1) == dict.fromkeys(Stage, 0) | {Stage.LIVE: 1}
            for task in counts:
                task.cancel()

    run(main)


def test_the_leader_tells_what_has_to_be_done_at_once() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            await life.put("a", batch(0))
            await life.delete_records()
            await life.trim()
            await life.delete_dead()
            assert exported(life)[Stage.TO_DELETE] == 1

    run(main)


def test_a_store_that_fails_is_asked_again_and_the_figures_stay() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            await life.put("a", batch(0))
            shard = life.nodes[0].shard
            await shard.flush()
            counting = asyncio.create_task(StageCounter(0, life.nodes[0].shard, life.metrics).run())
            await asyncio.sleep(10)
            await shard._replica.flusher.suspend()
            await asyncio.sleep(INTERVAL_S)
            assert exported(life)[Stage.LIVE] == 1
            shard._replica.flusher.resume()
            await life.put("b", batch(0))
            await asyncio.sleep(INTERVAL_S)
            assert exported(life)[Stage.LIVE] == 2
            counting.cancel()

    run(main)


def test_many_objects_are_counted_over_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_counts, "PAGE_ROWS", 3)

    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            for number in range(10):
                await life.put(f"object-{number}", batch(0))
            await life.nodes[0].shard.flush()
            counted = await StageCounter(0, life.nodes[0].shard, life.metrics).count()
            assert counted[Stage.LIVE] == 10

    run(main)
