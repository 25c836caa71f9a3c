"""A CommitFile that is sent again after its answer was forgotten: what it speaks of is gone, and stays gone."""

from __future__ import annotations

import asyncio

from diskless_core.diskless.commands import BatchResult
from diskless_core.diskless.operations import HORIZON_AGE_MS
from diskless_core.files.deletion_plan import ANSWERS_KEPT_MS
from diskless_core.protocol.errors import ErrorCode
from diskless_core.wal.format import object_key
from tests.support.file_life import DELAY_MS, FileLife
from tests.support.shards import batch
from tests.support.virtual_time import run

ALL_OVER_S = (ANSWERS_KEPT_MS + 2 * DELAY_MS) / 1000


def new_key(life: FileLife, ahead_ms: int = 0) -> str:
    return object_key("wal", life.clock.now_ms() + ahead_ms, life.clock.new_uuid())


def test_an_object_that_was_deleted_and_forgotten_is_not_committed_by_the_same_commit_file_again() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic(1)
            life.run_in_background()
            [request] = life.upload(new_key(life), batch()).values()
            assert (await life.commit(0, request))[0].error is ErrorCode.NONE
            await life.delete_records()
            await asyncio.sleep(ALL_OVER_S)
            assert (life.stored, (await life.known_files())["known"]) == (set(), set())
            [late] = await life.commit(0, request)
            assert late == BatchResult(ErrorCode.KAFKA_STORAGE_ERROR, append_time=late.append_time)
            assert await life.live_runs() == []

    run(main)


def test_an_object_from_a_clock_that_is_ahead_is_remembered_until_a_horizon_may_pass_it() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic(1)
            life.run_in_background()
            ahead_ms = 2 * ANSWERS_KEPT_MS
            key = new_key(life, ahead_ms)
            await life.put(key, batch())
            await life.delete_records()
            await asyncio.sleep(ALL_OVER_S)
            assert (life.stored, (await life.known_files())["known"]) == (set(), {key})
            await asyncio.sleep((ahead_ms + 2 * HORIZON_AGE_MS) / 1000)
            assert (await life.known_files())["known"] == set()

    run(main)


def test_objects_that_are_young_when_another_is_forgotten_can_still_be_committed() -> None:
    async def main() -> None:
        async with FileLife() as life:
            await life.create_topic(1)
            life.run_in_background()
            await life.put(new_key(life), batch())
            await life.delete_records()
            await asyncio.sleep(1)
            [later] = life.upload(new_key(life), batch()).values()
            await asyncio.sleep(ALL_OVER_S)
            assert (await life.known_files())["known"] == set()
            assert (await life.commit(0, later))[0].error is ErrorCode.NONE

    run(main)
