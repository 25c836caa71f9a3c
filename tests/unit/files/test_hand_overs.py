"""Handing objects over, whatever gets lost on the way and whoever leads when: at each point where it may be cut off."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from structlog.testing import capture_logs

from diskless_core.diskless.commands import HandOver
from diskless_core.diskless.file_stages import Stage
from diskless_core.files import hand_overs
from diskless_core.files.deletion_plan import ANSWERS_KEPT_MS
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.objects import Operation
from tests.support.file_life import DELAY_MS, FileLife
from tests.support.hand_over_post import Loss
from tests.support.shards import batch
from tests.support.virtual_time import VirtualTimeLoop, run

DELAY_S = DELAY_MS / 1000
KEPT_S = ANSWERS_KEPT_MS / 1000
KEY = "wal/ab/1699999999999-shared"


async def old_object(life: FileLife, *partitions: int) -> None:
    """An object whose first owner is that of the first partition, long after its commit."""
    await life.create_topic(life.shards)
    await life.put(KEY, *map(batch, partitions))
    await asyncio.sleep(2 * DELAY_S)


async def all_dead(life: FileLife) -> None:
    for partition in range(life.shards):
        await life.delete_records(partition=partition)


async def nothing_is_left(life: FileLife) -> None:
    """In the end, the horizon having passed all that happened."""
    await asyncio.sleep(KEPT_S + 10 * DELAY_S)
    assert life.stored == set()
    await life.raise_horizons()
    await asyncio.sleep(KEPT_S + 10 * DELAY_S)
    for index in range(life.shards):
        rows = await life.rows(index)
        assert not any(rows[name] for name in rows if name.endswith("files")), rows


@pytest.mark.parametrize("loss", list(Loss))
def test_a_hand_over_without_an_answer_is_repeated(loss: Loss) -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await old_object(life, 0, 1)
            life.post.losses += [loss, loss]
            life.run_in_background()
            await life.delete_records(partition=0)
            await asyncio.sleep(30)
            assert life.post.calls == [(KEY, 1)] * 3
            assert await life.stages(0) == {KEY: Stage.GONE}
            assert await life.stages(1) == {KEY: Stage.LIVE}
            await life.post.deliver_late()
            await life.delete_records(partition=1)
            await nothing_is_left(life)

    run(main)


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_hand_over_that_comes_again_when_the_receiver_is_long_through_with_it_ends_too(forgotten: bool) -> None:
    async def main() -> None:
        async with FileLife(3) as life:
            await old_object(life, 0, 1, 2)
            life.post.losses.append(Loss.LATE)
            life.run_in_background()
            await life.delete_records(partition=0)
            await life.delete_records(partition=1)
            await asyncio.sleep(10)
            assert await life.stages(1) == {KEY: Stage.GONE}
            if forgotten:
                await asyncio.sleep(KEPT_S + DELAY_S)
                assert await life.stages(1) == {}
            await life.post.deliver_late()
            await asyncio.sleep(KEPT_S)
            assert life.stored == {KEY}, "it is live in its last owner"
            assert await life.stages(2) == {KEY: Stage.LIVE}
            await life.delete_records(partition=2)
            await nothing_is_left(life)

    run(main)


def test_a_hand_over_that_comes_again_when_the_object_is_long_gone_resurrects_nothing() -> None:
    async def main() -> None:
        async with FileLife(3) as life:
            await old_object(life, 0, 1, 2)
            life.post.losses.append(Loss.LATE)
            life.run_in_background()
            await all_dead(life)
            await asyncio.sleep(2 * KEPT_S)
            assert [await life.stages(index) for index in range(3)] == [{}] * 3
            await life.post.deliver_late()
            await nothing_is_left(life)
            rounds = Counter(life.post.calls)
            assert rounds == {(KEY, 1): 2, (KEY, 2): 2}, "the tombstone went round once"

    run(main)


async def before(life: FileLife) -> None:
    await life.trim()


async def sent(life: FileLife) -> None:
    """The receiver has it, the giver does not know it."""
    life.post.losses.append(Loss.ANSWER)
    await life.trim()
    giver = life.processes[0].maintenance.deleters[0]
    await giver.round()
    await asyncio.sleep(0.1)
    assert life.post.calls == [(KEY, 1)]


async def noted(life: FileLife) -> None:
    await life.trim()
    await life.delete_dead()
    assert await life.stages(0) == {KEY: Stage.GONE}


async def deleted(life: FileLife) -> None:
    """The object is gone, and nobody could note it."""
    await noted(life)
    await asyncio.sleep(DELAY_S)
    await life.objects.delete([KEY])


async def over(life: FileLife) -> None:
    await noted(life)
    await asyncio.sleep(DELAY_S)
    await life.delete_dead()
    assert life.stored == set()


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("step", [before, sent, noted, deleted, over])
def test_nodes_that_die_after_any_step_go_on_from_there(step, empty: bool) -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await old_object(life, 0, 1)
            await all_dead(life)
            await step(life)
            await life.restart(with_empty_stores=empty)
            life.run_in_background()
            await nothing_is_left(life)

    run(main)


@pytest.mark.parametrize("step", [before, sent, noted, deleted, over])
def test_another_leader_goes_on_where_the_one_before_was(step) -> None:
    async def main() -> None:
        async with FileLife(2, nodes=2) as life:
            await old_object(life, 0, 1)
            await all_dead(life)
            await step(life)
            for index in (0, 1):
                await life.let_lead(life.processes[(index + 1) % 2], index)
            life.run_in_background()
            await nothing_is_left(life)

    run(main)


def test_a_node_that_is_down_gets_its_objects_when_it_is_back() -> None:
    async def main() -> None:
        async with FileLife(2, nodes=2) as life:
            await old_object(life, 0, 1)
            life.run_in_background()
            await life.delete_records(partition=1)
            await life.processes[1].kill()
            await life.delete_records(partition=0)
            await asyncio.sleep(3600)
            assert life.stored == {KEY}
            assert 60 <= len(life.post.calls) <= 200
            await life.processes[1].start()
            life.processes[1].maintenance.start()
            await nothing_is_left(life)

    run(main)


def test_an_owner_that_cannot_be_reached_holds_up_only_what_is_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_overs, "PAGE_FILES", 2)
    monkeypatch.setattr(hand_overs, "WAITING_FILES", 5)

    async def main() -> None:
        async with FileLife(3) as life:
            await life.create_topic(3)
            for number in range(9):
                await life.put(f"for 1, {number}", batch(0), batch(1))
                await life.put(f"for 2, {number}", batch(0), batch(2))
                await life.put(f"own, {number}", batch(0))
            await asyncio.sleep(DELAY_S)
            life.post.unreachable.add(1)
            life.run_in_background()
            await all_dead(life)
            await asyncio.sleep(10 * DELAY_S)
            assert life.stored == {f"for 1, {number}" for number in range(9)}
            life.post.unreachable.clear()
            await asyncio.sleep(10 * DELAY_S)
            assert life.stored == set()

    run(main)


def test_objects_that_their_owner_refuses_hold_up_no_others_and_are_handed_over_once_it_accepts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hand_overs, "PAGE_FILES", 8)

    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic(2)
            keys = [f"object {number:02}" for number in range(40)]
            for key in keys:
                await life.put(key, batch(0), batch(1))
            await asyncio.sleep(DELAY_S)
            life.post.invalid.update(keys[:3], keys[20:22])
            life.run_in_background()
            with capture_logs() as logs:
                await all_dead(life)
                await asyncio.sleep(10 * DELAY_S)
            assert life.stored == life.post.invalid
            told = [line for line in logs if line["event"].startswith("objects could not be handed over")]
            assert (told[-1]["refused"], told[-1]["objects"]) == (5, 5)
            life.post.calls.clear()
            await asyncio.sleep(3600)
            assert 40 <= len(life.post.calls) <= 200, "one is tried again at a time, about once a minute"
            assert {key for key, _ in life.post.calls} == life.post.invalid
            life.post.invalid.clear()
            await nothing_is_left(life)

    run(main)


def test_a_leader_that_lost_the_shard_hands_nothing_over_any_more() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await old_object(life, 0, 1)
            life.post.unreachable.add(1)
            life.run_in_background()
            await life.delete_records(partition=0)
            await asyncio.sleep(10)
            life.shared.set_leader(life.nodes[0].shard_id, 7)
            await asyncio.sleep(DELAY_S)
            calls = len(life.post.calls)
            await asyncio.sleep(KEPT_S)
            assert len(life.post.calls) == calls
            life.shared.set_leader(life.nodes[0].shard_id, 1)
            life.post.unreachable.clear()
            await asyncio.sleep(DELAY_S)
            assert await life.stages(0) == {KEY: Stage.GONE}

    run(main)


def test_the_answer_to_a_commit_outlives_the_hand_over() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            requests = life.upload(KEY, batch(0), batch(1))
            first = {index: await life.commit(index, request) for index, request in requests.items()}
            life.run_in_background()
            await all_dead(life)
            await asyncio.sleep(KEPT_S - 10)
            assert life.stored == set()
            for index, request in requests.items():
                assert await life.commit(index, request) == first[index]
            assert await life.live_runs() == []

    run(main)


@pytest.mark.parametrize("commit_first", [True, False])
def test_of_a_commit_and_a_hand_over_under_way_at_once_the_first_in_the_log_decides(commit_first: bool) -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            request = life.upload(KEY, batch(0), batch(1))[1]
            receiver = life.nodes[1]
            life.shared.hold_high_watermark(receiver.shard_id)

            async def commit() -> ErrorCode:
                [result] = await receiver.shard.commit_file(request)
                return result.error

            async def hand_over() -> None:
                await receiver.shard.hand_over([HandOver(KEY, (0, 1), 0, 0)])

            tasks = []
            for call in (commit, hand_over) if commit_first else (hand_over, commit):
                tasks.append(asyncio.create_task(call()))
                await asyncio.sleep(1)
            life.shared.release_high_watermark(receiver.shard_id)
            error = next(answer for answer in await asyncio.gather(*tasks) if answer is not None)
            assert error is (ErrorCode.NONE if commit_first else ErrorCode.KAFKA_STORAGE_ERROR)
            assert await life.stages(1) == {KEY: Stage.LIVE if commit_first else Stage.TO_DELETE}

    run(main)


def test_a_commit_that_is_stored_while_a_hand_over_looks_into_the_store_is_not_overlooked() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            request = life.upload(KEY, batch(0), batch(1))[1]
            receiver = life.nodes[1].shard
            await asyncio.sleep(1)
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop)
            loop.executor_delay_s = lambda: 5.0
            hand_over = asyncio.create_task(receiver.hand_over([HandOver(KEY, (0, 1), 0, 0)]))
            await asyncio.sleep(1)
            loop.executor_delay_s = lambda: 0.1
            [result] = await receiver.commit_file(request)
            await receiver.flush()
            assert not hand_over.done()
            await hand_over
            assert result.error is ErrorCode.NONE
            assert await life.stages(1) == {KEY: Stage.LIVE}

    run(main)


def test_objects_that_were_handed_over_are_deleted_once() -> None:
    async def main() -> None:
        async with FileLife(3, nodes=2) as life:
            await old_object(life, 0, 1, 2)
            life.run_in_background()
            await all_dead(life)
            await asyncio.sleep(2 * KEPT_S)
            assert life.objects.calls[Operation.DELETE] == 1

    run(main)
