"""Retention on shards: when it is checked, what a check costs, and what stands in its way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.run_lookup import PAGE_RUNS
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import PartitionHead
from diskless_core.files.retention import OFF, RetentionRules
from diskless_core.files.retention_worker import PARALLEL_PARTITIONS, RetentionSchedule
from tests.support.file_life import FileLife
from tests.support.guarantees import guarantee
from tests.support.shards import BATCH_BYTES, TOPIC, batch, commit_of
from tests.support.virtual_time import START_MS, run

HOUR_MS = 3_600_000


def by_size(batches: int) -> RetentionRules:
    return RetentionRules(retention_ms=OFF, retention_bytes=batches * BATCH_BYTES)


def by_time(milliseconds: int) -> RetentionRules:
    return RetentionRules(retention_ms=milliseconds, retention_bytes=OFF)


def head_of(life: FileLife, partition: int = 0) -> PartitionHead:
    head = life.node_of(partition).shard.head(PartitionKey(TOPIC, partition))
    assert head is not None
    return head


class Counted:
    """How often a shard is asked for pages of runs, and its store for anything."""

    def __init__(self, shard: DisklessShard, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pages = self.store_reads = 0
        monkeypatch.setattr(shard, "runs_from", self._counting(shard.runs_from, "pages"))
        monkeypatch.setattr(shard, "with_store", self._counting(shard.with_store, "store_reads"))

    def _counting(self, call: Callable[..., Awaitable[Any]], name: str) -> Callable[..., Awaitable[Any]]:
        async def counted(*arguments: Any) -> Any:
            setattr(self, name, getattr(self, name) + 1)
            return await call(*arguments)

        return counted


def test_the_first_check_comes_after_the_initial_delay_and_others_after_the_interval() -> None:
    async def main() -> None:
        schedule = RetentionSchedule(initial_delay_ms=30_000, interval_ms=300_000)
        async with FileLife(schedule=schedule) as life:
            await life.create_topic()
            life.rules = by_size(0)
            life.run_in_background()
            await life.put("a", batch())
            await asyncio.sleep(29)
            assert head_of(life).log_start_offset == 0
            await asyncio.sleep(2)
            assert head_of(life).log_start_offset == 1
            await life.put("b", batch())
            await asyncio.sleep(298)
            assert head_of(life).log_start_offset == 1
            await asyncio.sleep(3)
            assert head_of(life).log_start_offset == 2

    run(main)


def test_by_size_and_by_time_the_oldest_go_and_the_rest_can_be_read() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            for number in range(10):
                await life.put(f"{number}", batch(max_timestamp=START_MS + number * HOUR_MS))
            life.rules = by_size(7)
            await life.check_retention()
            assert [one.object_key for one in await life.live_runs()] == list("3456789")
            life.rules = by_time(HOUR_MS)
            await asyncio.sleep(5 * 3600 + 1)
            await life.check_retention()
            assert [one.object_key for one in await life.live_runs()] == list("56789")
            await asyncio.sleep(30 * 3600)
            await life.check_retention()
            assert await life.live_runs() == []
            assert (head_of(life).log_start_offset, head_of(life).next_offset) == (10, 10)

    run(main)


def test_a_deletion_that_failed_is_tried_again_at_the_next_check() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            await life.put("old", batch(max_timestamp=START_MS))
            await life.put("new", batch(max_timestamp=START_MS + 100 * HOUR_MS))
            life.rules = by_time(HOUR_MS)
            await asyncio.sleep(2 * 3600)
            life.shared.fail_next_append(shard=life.nodes[0].shard_id)
            await life.check_retention()
            assert head_of(life).log_start_offset == 0
            await life.nodes[0].shard.until_leading()
            await life.check_retention()
            assert [one.object_key for one in await life.live_runs()] == ["new"]

    run(main)


@guarantee("Deletion and retention", "Retention costs what it removes: a partition that loses nothing costs nothing.")
def test_a_partition_that_loses_nothing_costs_neither_store_nor_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic(50)
            for partition in range(50):
                await life.put(f"{partition}", batch(partition, max_timestamp=START_MS))
            await life.restart()
            life.rules = by_time(HOUR_MS)
            await life.check_retention()
            counted = Counted(life.nodes[0].shard, monkeypatch)
            end = life.shared.state(life.nodes[0].shard_id).end
            for _ in range(5):
                await life.check_retention()
            assert (counted.pages, counted.store_reads) == (0, 0)
            assert life.shared.state(life.nodes[0].shard_id).end == end
            await asyncio.sleep(3601)
            await life.check_retention()
            assert await life.live_runs() == []

    run(main)


def test_the_oldest_run_that_is_remembered_is_not_taken_for_one_that_is_still_there() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            await life.put("future", batch(max_timestamp=START_MS + 100 * HOUR_MS))
            await life.put("past", batch(max_timestamp=START_MS - HOUR_MS))
            await life.put("now", batch(max_timestamp=START_MS))
            life.rules = by_time(HOUR_MS - 1)
            await life.check_retention()
            assert len(await life.live_runs()) == 3
            await life.delete_records(1)
            await life.check_retention()
            assert [one.object_key for one in await life.live_runs()] == ["now"]

    run(main)


@guarantee("Deletion and retention", "Retention costs what it removes: a partition that loses nothing costs nothing.")
def test_a_huge_partition_is_removed_at_the_cost_of_its_pages_and_in_one_log_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic(1)
            for number in range(4 * PAGE_RUNS):
                await life.nodes[0].commit(commit_of(f"{number}", batch()))
            await life.restart()
            counted = Counted(life.nodes[0].shard, monkeypatch)
            end = life.shared.state(life.nodes[0].shard_id).end
            life.rules = by_size(PAGE_RUNS)
            await life.check_retention()
            assert head_of(life).log_start_offset == 3 * PAGE_RUNS
            assert counted.pages <= 6
            assert life.shared.state(life.nodes[0].shard_id).end - end <= 2

    run(main)


def test_several_partitions_are_on_their_way_through_the_log_at_once() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic(40)
            await life.put("a", *(batch(partition) for partition in range(40)))
            life.rules = by_size(0)
            shard = life.nodes[0].shard
            life.shared.hold_high_watermark(shard.id)
            check = asyncio.create_task(life.check_retention())
            await asyncio.sleep(1)
            assert shard.pending_commands == PARALLEL_PARTITIONS
            life.shared.release_high_watermark(shard.id)
            await check
            assert await life.live_runs() == []

    run(main)


def test_others_get_their_turn_between_partitions() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic(400)
            for partition in range(400):
                await life.put(f"{partition}", batch(partition, max_timestamp=START_MS))
            life.rules = by_time(HOUR_MS)
            turns = 0

            async def others() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(others())
            await life.check_retention()
            task.cancel()
            assert turns >= 400 / 10

    run(main)


def test_a_node_that_does_not_lead_removes_nothing() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            await life.put("a", batch(0), batch(1))
            life.rules = by_size(0)
            life.shared.set_leader(life.nodes[0].shard_id, 2)
            await asyncio.sleep(1)
            await life.check_retention()
            assert [head_of(life, partition).log_start_offset for partition in (0, 1)] == [0, 1]

    run(main)


def test_leadership_that_is_lost_in_the_middle_puts_the_rest_off_to_the_next_check() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic(40)
            await life.put("a", *(batch(partition) for partition in range(40)))
            life.rules = by_size(0)
            life.shared.hold_high_watermark(life.nodes[0].shard_id)
            check = asyncio.create_task(life.check_retention())
            await asyncio.sleep(1)
            life.shared.set_leader(life.nodes[0].shard_id, 2)
            await check
            life.shared.release_high_watermark(life.nodes[0].shard_id)
            assert head_of(life, 38).log_start_offset == 0
            assert all(head_of(life, partition).log_start_offset == 1 for partition in range(1, 40, 2))
            life.shared.set_leader(life.nodes[0].shard_id, 1)
            await life.nodes[0].shard.until_leading()
            await life.check_retention()
            assert await life.live_runs() == []

    run(main)


@guarantee("Deletion and retention", "Retention keeps up with producers.")
def test_it_keeps_up_with_producers() -> None:
    async def main() -> None:
        async with FileLife(schedule=RetentionSchedule(initial_delay_ms=0, interval_ms=1000)) as life:
            await life.create_topic(1)
            life.rules = by_size(3)
            life.run_in_background()
            for number in range(300):
                await life.put(f"{number}", batch())
                await asyncio.sleep(0.1)
                assert head_of(life).size_bytes <= 15 * BATCH_BYTES
                assert {one.object_key for one in await life.live_runs()} <= life.stored
            await asyncio.sleep(1000)
            assert life.stored == {"297", "298", "299"}
            assert head_of(life).next_offset == 300

    run(main)
