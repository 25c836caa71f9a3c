"""When objects are deleted and when they are forgotten, whatever fails or goes down in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.producer_expiry import ExpirationRules, ProducerExpiry
from diskless_core.files import deletion
from diskless_core.files.deletion_plan import ANSWERS_KEPT_MS
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.objects import Operation, access_denied, slow_down
from tests.support.file_life import DELAY_MS, FileLife
from tests.support.guarantees import guarantee
from tests.support.shards import OTHER_TOPIC, batch, commit_of
from tests.support.virtual_time import VirtualTimeLoop, run

DELAY_S = DELAY_MS / 1000
KEPT_S = ANSWERS_KEPT_MS / 1000
EXPIRATION = ExpirationRules(expiration_ms=86_400_000, check_interval_ms=600_000)


async def passes(seconds: float) -> None:
    await asyncio.sleep(seconds)


@guarantee(
    "Deletion and retention",
    "An object is deleted when its last live batch, over all partitions, is gone and the grace period is over.",
)
def test_an_object_goes_when_its_last_batch_went_and_the_grace_period_is_over() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic(2)
            await life.put("shared", batch(0), batch(1))
            life.run_in_background()
            await life.delete_records(partition=0)
            await passes(10 * DELAY_S)
            assert life.stored == {"shared"}
            await life.delete_records(partition=1)
            await passes(DELAY_S - 1)
            assert life.stored == {"shared"}
            await passes(10)
            assert life.stored == set()
            assert life.forgotten_by_cache == ["shared"]

    run(main)


@guarantee("Deletion and retention", "An object with a live batch is never deleted.")
def test_what_has_a_live_batch_is_never_deleted() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            for key in "abc":
                await life.put(key, batch(count=2), batch(count=2))
            life.run_in_background()
            await life.delete_records(6)
            await passes(KEPT_S + 10 * DELAY_S)
            assert life.stored == {"b", "c"}
            assert [one.object_key for one in await life.live_runs()] == ["b", "c"]

    run(main)


def test_of_a_deleted_topic_nothing_is_left() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            await life.create_topic(topic=OTHER_TOPIC)
            await life.put("a", batch(0, producer=(7, 0, 0)), batch(1))
            await life.put("both", batch(0), batch(0, topic=OTHER_TOPIC))
            life.run_in_background()
            await life.delete_topic()
            await ProducerExpiry(life.nodes[0].shard, EXPIRATION, life.clock).look()
            await passes(KEPT_S + 10 * DELAY_S)
            assert life.stored == {"both"}
            assert await life.known_files() == {"live": {"both"}, "dead": set(), "known": {"both"}}
            rows = await life.rows()
            for table in ("topics", "partitions", "producers", "batches", "trims"):
                assert all(row[0] == OTHER_TOPIC for row in rows[table]), table
            await life.delete_topic(OTHER_TOPIC)
            await passes(KEPT_S + 10 * DELAY_S)
            assert life.stored == set()
            assert [table for table, kept in (await life.rows()).items() if kept] == ["producer_ids"], "of all topics"

    run(main)


@guarantee("Offsets", "An object all of whose batches were refused is never committed later, and is deleted.")
def test_an_object_all_of_whose_batches_were_refused_goes_too_and_stays_refused_meanwhile() -> None:
    async def main() -> None:
        async with FileLife() as life:
            life.run_in_background()
            await life.put("refused", batch())
            await passes(DELAY_S - 1)
            assert life.stored == {"refused"}
            await passes(10)
            assert life.stored == set()
            await life.create_topic()
            [result] = await life.nodes[0].commit(commit_of("refused", batch()))
            assert result.error is ErrorCode.UNKNOWN_TOPIC_ID
            await passes(KEPT_S)
            assert await life.known_files() == {"live": set(), "dead": set(), "known": set()}

    run(main)


def test_a_commit_that_is_sent_again_after_its_object_went_gets_its_first_answer_and_is_not_taken_for_a_new_one() -> (
    None
):
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            request = commit_of("a", batch())
            life.objects.objects["a"] = b""
            first = await life.nodes[0].commit(request)
            life.run_in_background()
            await life.delete_records()
            await passes(KEPT_S - 5)
            assert life.stored == set()
            assert await life.nodes[0].commit(request) == first
            assert await life.live_runs() == []

    run(main)


def test_a_new_leader_keeps_the_answers_as_long_as_somebody_may_ask_for_them() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            await life.put("a", batch())
            await passes(2 * KEPT_S)
            await life.restart()
            life.run_in_background()
            await life.delete_records()
            await passes(KEPT_S - 5)
            assert (life.stored, (await life.known_files())["known"]) == (set(), {"a"})
            await passes(10 + DELAY_S)
            assert (await life.known_files())["known"] == set()

    run(main)


async def nothing(_: FileLife) -> None:
    pass


async def trimmed(life: FileLife) -> None:
    await life.trim()


async def deleted(life: FileLife) -> None:
    await life.trim()
    await passes(DELAY_S)
    await life.delete_dead()
    assert life.stored == {"kept"}


async def forgotten(life: FileLife) -> None:
    await deleted(life)
    await passes(KEPT_S)
    await life.delete_dead()
    await life.delete_dead()


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("step", [nothing, trimmed, deleted, forgotten])
def test_a_node_that_dies_after_any_step_goes_on_from_there(step, empty: bool) -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            for key in ("dead", "dead too", "kept"):
                await life.put(key, batch())
            await life.delete_records(2)
            await step(life)
            await life.restart(with_empty_stores=empty)
            assert [one.object_key for one in await life.live_runs()] == ["kept"]
            life.run_in_background()
            await passes(KEPT_S + 10 * DELAY_S)
            assert life.stored == {"kept"}
            assert await life.known_files() == {"live": {"kept"}, "dead": set(), "known": {"kept"}}
            assert (await life.rows())["trims"] == []
            assert [one.object_key for one in await life.live_runs()] == ["kept"]

    run(main)


@pytest.mark.parametrize("empty", [False, True])
def test_the_grace_period_is_kept_after_a_restart_too(empty: bool) -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            await life.put("a", batch())
            await life.delete_records()
            await life.trim()
            await passes(DELAY_S - 5)
            await life.restart(with_empty_stores=empty)
            life.run_in_background()
            await passes(4)
            assert life.stored == {"a"}
            await passes(2 * DELAY_S)
            assert life.stored == set()

    run(main)


@pytest.mark.parametrize("error", [slow_down, access_denied])
def test_a_store_that_refuses_is_asked_again_but_not_all_the_time(error) -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            await life.put("a", batch())
            life.run_in_background()
            with life.objects.failing(Operation.DELETE, error=error):
                await life.delete_records()
                await passes(DELAY_S + 3600)
                assert life.stored == {"a"}
                assert 60 <= life.objects.calls[Operation.DELETE] <= 200
            await passes(120)
            assert life.stored == set()

    run(main)


def test_a_deletion_whose_answer_was_lost_is_done_again_and_then_forgotten() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            await life.put("a", batch())
            life.objects.fail_next(Operation.DELETE, takes_effect=True)
            life.run_in_background()
            await life.delete_records()
            await passes(DELAY_S + 10)
            assert life.objects.calls[Operation.DELETE] == 2
            await passes(KEPT_S)
            assert (await life.known_files())["known"] == set()

    run(main)


@guarantee("Deletion and retention", "Only what the object store confirmed to be deleted is forgotten.")
def test_only_what_the_store_confirmed_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            for key in ("fine", "stuck"):
                await life.put(key, batch())
            really = life.objects.delete

            async def all_but_one(keys: Sequence[str]) -> Sequence[str]:
                return await really([key for key in keys if key != "stuck"])

            monkeypatch.setattr(life.objects, "delete", all_but_one)
            life.run_in_background()
            await life.delete_records()
            await passes(KEPT_S + 10 * DELAY_S)
            assert life.stored == {"stuck"}
            assert await life.known_files() == {"live": set(), "dead": {"stuck"}, "known": {"stuck"}}
            assert life.forgotten_by_cache == ["fine"]
            monkeypatch.undo()
            await passes(KEPT_S)
            assert (life.stored, (await life.known_files())["known"]) == (set(), set())

    run(main)


def test_what_is_live_or_unknown_cannot_be_forgotten() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            await life.put("live", batch())
            await life.nodes[0].shard.forget_files(["live", "unknown"])
            assert await life.known_files() == {"live": {"live"}, "dead": set(), "known": {"live"}}

    run(main)


def test_a_node_that_does_not_lead_deletes_nothing_and_trims_its_store_all_the_same() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            await life.put("a", batch())
            await life.delete_records()
            life.shared.set_leader(life.nodes[0].shard_id, 2)
            life.run_in_background()
            await passes(KEPT_S)
            assert life.stored == {"a"}
            assert await life.known_files() == {"live": set(), "dead": {"a"}, "known": {"a"}}
            life.shared.set_leader(life.nodes[0].shard_id, 1)
            await passes(10)
            assert life.stored == set()

    run(main)


def test_a_backlog_of_many_pages_is_deleted_in_calls_of_a_page_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "PAGE_FILES", 10)

    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            for number in range(35):
                await life.put(f"{number:02}", batch())
            await life.delete_records()
            await life.trim()
            await passes(DELAY_S)
            await life.delete_dead()
            assert life.stored == set()
            assert life.objects.calls[Operation.DELETE] == 4
            await passes(KEPT_S)
            await life.delete_dead()
            assert (await life.known_files())["known"] == set()

    run(main)


def test_a_round_that_fails_half_way_is_an_error_and_the_next_one_does_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deletion, "PAGE_FILES", 1)

    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            for key in "abc":
                await life.put(key, batch())
            await life.delete_records()
            await life.trim()
            await passes(DELAY_S)
            life.objects.fail_next(Operation.DELETE)
            with pytest.raises(WalObjectStoreError):
                await life.delete_dead()
            await life.delete_dead()
            assert life.stored == set()

    run(main)


def test_a_store_of_rows_that_fails_puts_trimming_and_deletion_off() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            await life.put("a", batch())
            life.run_in_background()
            with life.nodes[0].failing_store():
                await life.delete_records()
                await passes(KEPT_S)
                assert life.stored == {"a"}
            await passes(2 * DELAY_S + 60)
            assert life.stored == set()

    run(main)


def test_news_do_not_make_it_look_through_a_long_backlog_all_the_time() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic()
            await life.put("a", batch())
            await life.delete_records()
            await life.trim()
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop)
            loop.executor_delay_s = lambda: 3.0
            pause = await life.maintenance.deleters[0].round()
            assert pause.least_s >= 30

    run(main)


def test_of_a_shard_that_cannot_be_led_any_more_it_takes_its_leave_without_a_fuss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never() -> None:
        raise CoordinatorError("its log cannot be read")

    async def main() -> None:
        async with FileLife() as life:
            monkeypatch.setattr(life.nodes[0].shard, "until_leading", never)
            await asyncio.wait_for(life.maintenance.deleters[0].run(), 1)

    run(main)
