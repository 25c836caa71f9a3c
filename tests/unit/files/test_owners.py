"""Objects with batches of several shards: handed from one to the next, deleted by the last, and never before."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from diskless_core.diskless.file_stages import Stage
from diskless_core.files.deletion_plan import ANSWERS_KEPT_MS
from diskless_core.protocol.errors import ErrorCode
from diskless_core.wal.format import object_key
from tests.support.file_life import DELAY_MS, FileLife
from tests.support.guarantees import guarantee
from tests.support.shards import OTHER_TOPIC, TOPIC, batch, commit_of, wal_key
from tests.support.virtual_time import run

DELAY_S = DELAY_MS / 1000
KEPT_S = ANSWERS_KEPT_MS / 1000
SHARED = wal_key("shared")
GONE = {"live": set(), "dead": set(), "known": set()}


@guarantee(
    "Deletion and retention",
    "An object that several coordinators have batches of is kept until it is dead in all of them.",
)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("empty", [None, False, True])
def test_an_object_is_kept_until_it_is_dead_in_both(order: tuple[int, int], empty: bool | None) -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            await life.put(SHARED, batch(0), batch(1))
            first, last = order
            await life.delete_records(partition=first)
            if empty is not None:
                await life.restart(with_empty_stores=empty)
            life.run_in_background()
            await asyncio.sleep(KEPT_S + 10 * DELAY_S)
            assert life.stored == {SHARED}
            await life.delete_records(partition=last)
            await asyncio.sleep(DELAY_S - 1)
            assert life.stored == {SHARED}
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


def test_what_a_shard_shares_that_does_not_exist_is_kept_and_holds_up_nothing_else() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            await life.put_part("far", 0, (0, 5), batch(0))
            await life.put_part("before", 0, (7, 0), batch(0))
            await life.put("near", batch(0), batch(1))
            life.run_in_background()
            for partition in (0, 1):
                await life.delete_records(partition=partition)
            await asyncio.sleep(KEPT_S + 10 * DELAY_S)
            assert life.stored == {"far", "before"}
            assert await life.stages(0) == {"far": Stage.TO_HAND_OVER, "before": Stage.WAITING}

    run(main)


@pytest.mark.parametrize("owner_ids", [(), (1,), (0, 1, 0)])
def test_a_commit_whose_owners_make_no_sense_is_refused(owner_ids: tuple[int, ...]) -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            [result] = await life.commit(0, commit_of("a", batch(), owner_ids=owner_ids))
            assert result.error is ErrorCode.INVALID_REQUEST
            assert await life.known_files() == GONE

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


def test_an_object_that_its_first_owner_never_heard_of_goes_once_it_can_never_be_committed_there() -> None:
    async def main() -> None:
        async with FileLife(3) as life:
            await life.create_topic(3)
            key = object_key("wal", life.clock.now_ms(), life.clock.new_uuid())
            await life.put_part(key, 2, (0, 1, 2), batch(2))
            await life.delete_records(partition=2)
            life.run_in_background()
            await asyncio.sleep(10 * DELAY_S)
            assert life.stored == {key}, "the broker may yet commit with its first owner"
            assert await life.stages(2) == {key: Stage.WAITING}
            await life.raise_horizons()
            await asyncio.sleep(10 * DELAY_S)
            assert life.stored == set()
            assert life.post.calls == [(key, 0), (key, 1), (key, 2)]
            await asyncio.sleep(KEPT_S)
            assert [await life.known_files(index) for index in range(3)] == [GONE] * 3

    run(main)


def test_a_first_owner_that_has_the_object_is_reminded_of_it_once_and_goes_on_as_it_would_have() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            key = object_key("wal", life.clock.now_ms(), life.clock.new_uuid())
            await life.put(key, batch(0), batch(1))
            await life.delete_records(partition=1)
            await asyncio.sleep(DELAY_S)
            await life.raise_horizons()
            life.run_in_background()
            await asyncio.sleep(KEPT_S + 10 * DELAY_S)
            assert life.post.calls == [(key, 0)]
            assert [await life.stages(index) for index in (0, 1)] == [{key: Stage.LIVE}, {key: Stage.WAITING}]
            await life.delete_records(partition=0)
            await asyncio.sleep(10)
            assert life.post.calls == [(key, 0), (key, 1)]
            assert life.stored == {key}
            await asyncio.sleep(DELAY_S)
            assert life.stored == set()

    run(main)


def test_an_object_goes_from_owner_to_owner_in_their_order_and_is_deleted_by_the_last() -> None:
    async def main() -> None:
        async with FileLife(3, nodes=2) as life:
            await life.create_topic(3)
            await life.put("shared", batch(2), batch(0), batch(1))
            life.run_in_background()
            await asyncio.sleep(2 * DELAY_S)
            stages = []
            for partition in (0, 2, 1):
                await life.delete_records(partition=partition)
                await asyncio.sleep(10)
                stages.append([(await life.stages(index))["shared"] for index in (2, 0, 1)])
            assert stages == [
                [Stage.LIVE, Stage.WAITING, Stage.LIVE],
                [Stage.GONE, Stage.GONE, Stage.LIVE],
                [Stage.GONE, Stage.GONE, Stage.TO_DELETE],
            ]
            assert life.post.calls == [("shared", 0), ("shared", 1)]
            await asyncio.sleep(DELAY_S)
            assert life.stored == set()

    run(main)


def test_the_grace_period_is_counted_from_the_latest_death_wherever_it_was() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            await life.put("shared", batch(0), batch(1))
            life.run_in_background()
            await life.delete_records(partition=1)
            await asyncio.sleep(10 * DELAY_S)
            await life.delete_records(partition=0)
            await asyncio.sleep(DELAY_S - 1)
            assert life.stored == {"shared"}
            await asyncio.sleep(10)
            assert life.stored == set()

    run(main)


def test_an_object_whose_first_owner_refused_all_of_its_batches_goes_to_the_next_one() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic(1)
            await life.create_topic(2, OTHER_TOPIC)
            await life.put("shared", batch(1), batch(1, topic=OTHER_TOPIC), batch(0))
            await life.put("refused", batch(1), batch(0, topic=b"-" * 16))
            await life.delete_topic(OTHER_TOPIC)
            life.run_in_background()
            await asyncio.sleep(KEPT_S)
            assert [one.object_key for one in await life.live_runs()] == ["shared"]
            assert life.stored == {"shared"}
            await asyncio.sleep(KEPT_S)
            assert [await life.stages(index) for index in (0, 1)] == [{"shared": Stage.LIVE}, {}]

    run(main)


def test_no_commit_that_is_on_its_way_is_refused_because_another_owner_was_through_at_once() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            life.run_in_background()
            refused, accepted = life.upload("shared", batch(1, topic=b"-" * 16), batch(0)).items()
            await life.commit(*refused)
            await asyncio.sleep(DELAY_S - 5)
            [result] = await life.commit(*accepted)
            assert result.error is ErrorCode.NONE
            await asyncio.sleep(KEPT_S)
            assert life.stored == {"shared"}

    run(main)


def test_a_commit_that_comes_after_its_object_was_handed_over_is_refused_for_good() -> None:
    async def main() -> None:
        async with FileLife(3) as life:
            await life.create_topic(3)
            key = object_key("wal", life.clock.now_ms(), life.clock.new_uuid())
            first, late, last = life.upload(key, batch(0), batch(1), batch(2)).items()
            await life.commit(*first)
            await life.commit(*last)
            life.run_in_background()
            await life.delete_records(partition=0)
            await asyncio.sleep(2 * DELAY_S)
            assert await life.stages(1) == {key: Stage.GONE}
            assert await life.stages(2) == {key: Stage.LIVE}
            for _ in range(3):
                [result] = await life.commit(*late)
                assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
                await asyncio.sleep(KEPT_S)
                await life.restart(with_empty_stores=True)
                life.run_in_background()
            await life.raise_horizons()
            await asyncio.sleep(2 * KEPT_S)
            assert await life.stages(1) == {}, "the horizon stands in for it"
            [result] = await life.commit(*late)
            assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
            assert life.stored == {key}

    run(main)
