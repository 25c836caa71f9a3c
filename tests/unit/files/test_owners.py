"""Objects with batches of two shards: deleted when both say that they are dead, and never before."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from diskless_core.files.deletion import ANSWERS_KEPT_MS
from diskless_core.testing.fakes.objects import Operation
from diskless_core.wal.format import object_key
from tests.support.file_life import DELAY_MS, FileLife
from tests.support.shards import TOPIC, batch
from tests.support.virtual_time import run

DELAY_S = DELAY_MS / 1000
KEPT_S = ANSWERS_KEPT_MS / 1000
GONE = {"live": set(), "dead": set(), "known": set()}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("empty", [None, False, True])
def test_an_object_is_kept_until_it_is_dead_in_both(order: tuple[int, int], empty: bool | None) -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            await life.put("shared", batch(0), batch(1))
            first, last = order
            await life.delete_records(partition=first)
            if empty is not None:
                await life.restart(with_empty_stores=empty)
            life.run_in_background()
            await asyncio.sleep(KEPT_S + 10 * DELAY_S)
            assert life.stored == {"shared"}
            await life.delete_records(partition=last)
            await asyncio.sleep(DELAY_S - 1)
            assert life.stored == {"shared"}
            await asyncio.sleep(60)
            assert life.stored == set()
            await asyncio.sleep(KEPT_S)
            assert [await life.known_files(index) for index in (0, 1)] == [GONE, GONE]

    run(main)


def test_objects_of_one_shard_go_whatever_the_other_one_does() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            await life.put("own", batch(0))
            await life.put("other", batch(1))
            life.shared.set_leader(life.nodes[1].shard_id, 2)
            life.run_in_background()
            await life.delete_records(partition=0)
            await asyncio.sleep(DELAY_S + 10)
            assert life.stored == {"other"}

    run(main)


def test_an_object_that_another_shard_may_yet_commit_is_kept() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            await life.put_part("half", 0, (1, 0), batch(0))
            life.run_in_background()
            await life.delete_records(partition=0)
            await asyncio.sleep(KEPT_S + 10 * DELAY_S)
            assert life.stored == {"half"}
            await life.put_part("half", 1, (1, 0), batch(1))
            assert [one.object_key for one in await life.live_runs()] == ["half"]
            await asyncio.sleep(KEPT_S)
            assert life.stored == {"half"}
            await life.delete_records(partition=1)
            await asyncio.sleep(DELAY_S + 70)
            assert life.stored == set()

    run(main)


def test_what_a_shard_of_another_node_shares_is_kept() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            await life.put_part("far", 0, (0, 5), batch(0))
            life.run_in_background()
            await life.delete_records(partition=0)
            await asyncio.sleep(KEPT_S + 10 * DELAY_S)
            assert life.stored == {"far"}

    run(main)


def test_a_shard_that_dies_before_it_could_forget_learns_that_the_object_is_gone() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            await life.put("shared", batch(0), batch(1))
            for partition in (0, 1):
                await life.delete_records(partition=partition)
            await life.trim()
            await asyncio.sleep(DELAY_S)
            await life.maintenance.deleters[0].round()
            assert life.stored == set()
            await asyncio.sleep(KEPT_S)
            await life.maintenance.deleters[0].round()
            assert await life.known_files(0) == GONE
            await life.restart()
            deletions = life.objects.calls[Operation.DELETE]
            life.run_in_background()
            await asyncio.sleep(KEPT_S + 10 * DELAY_S)
            assert await life.known_files(1) == GONE
            assert life.objects.calls[Operation.DELETE] == deletions

    run(main)


def test_an_object_store_that_cannot_say_whether_it_has_an_object_is_asked_again() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            await life.put_part("half", 0, (1, 0), batch(0))
            life.run_in_background()
            await life.delete_records(partition=0)
            with life.objects.failing(Operation.GET):
                await asyncio.sleep(KEPT_S)
            assert life.stored == {"half"}
            assert await life.known_files(0) == {"live": set(), "dead": {"half"}, "known": {"half"}}

    run(main)


def test_a_topic_over_both_shards_leaves_nothing() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic(4)
            for number in range(5):
                await life.put(f"{number}", *(batch(partition) for partition in range(4)))
            life.run_in_background()
            for node in life.nodes:
                await node.shard.delete_topic(uuid.UUID(bytes=TOPIC))
            await asyncio.sleep(KEPT_S + 10 * DELAY_S)
            assert life.stored == set()
            assert [await life.known_files(index) for index in (0, 1)] == [GONE, GONE]

    run(main)


def test_an_object_that_another_shard_never_heard_of_goes_once_it_can_never_be_committed_there() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            key = object_key("wal", life.clock.now_ms(), life.clock.new_uuid())
            await life.put_part(key, 0, (0, 1), batch(0))
            await life.delete_records(partition=0)
            life.run_in_background()
            await asyncio.sleep(10 * DELAY_S)
            assert life.stored == {key}, "the broker may have died, or may yet commit"
            await life.nodes[1].shard.raise_horizon(life.clock.now_ms())
            await asyncio.sleep(10 * DELAY_S)
            assert life.stored == set()

    run(main)
