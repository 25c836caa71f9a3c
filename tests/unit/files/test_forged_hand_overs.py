"""Hand-overs that are not true: whoever deletes asks the other coordinators, and deletes nothing that is live."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

import pytest
from structlog.testing import capture_logs

from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.commands import HandOver
from diskless_core.diskless.file_stages import EndingFile, Stage
from diskless_core.diskless.tables import DeadFile, ReceivedFile
from diskless_core.files.deletion_plan import ANSWERS_KEPT_MS
from diskless_core.files.deletion_proof import DeletionProof, whom_to_ask
from diskless_core.passed_time import Passed
from diskless_core.protocol.errors import ErrorCode
from diskless_core.wal.format import object_key
from tests.support.file_life import DELAY_MS, FileLife
from tests.support.guarantees import guarantee
from tests.support.shards import batch, commit_of, wal_key
from tests.support.virtual_time import run

DELAY_S = DELAY_MS / 1000
KEPT_S = ANSWERS_KEPT_MS / 1000
LONG_S = KEPT_S + 10 * DELAY_S


async def is_live(life: FileLife, key: str) -> bool:
    return key in {found.object_key for found in await life.live_runs()}


@guarantee(
    "Deletion and retention",
    "An object that another coordinator has live batches of is not deleted, whatever a hand-over says.",
)
@pytest.mark.parametrize("owner_ids", [(1,), (2, 1), (1, 2)])
def test_an_object_that_is_live_in_another_shard_is_kept_whatever_a_hand_over_says(owner_ids: tuple[int, ...]) -> None:
    async def main() -> None:
        async with FileLife(3) as life:
            await life.create_topic(3)
            key = wal_key("live")
            await life.put(key, batch(0))
            life.run_in_background()
            with capture_logs() as logs:
                await life.nodes[1].shard.hand_over([HandOver(key, owner_ids, 0, 0)])
                await asyncio.sleep(2 * LONG_S)
            assert life.stored == {key}
            assert await is_live(life, key)
            told = [line for line in logs if line["log_level"] == "error"]
            assert [line["example"] for line in told] == [key], "the log is told once"
            await life.delete_records(partition=0)
            await asyncio.sleep(LONG_S)
            assert life.stored == set()

    run(main)


def test_a_shared_object_of_which_a_hand_over_was_forged_is_kept_until_it_is_dead_in_both() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            key = wal_key("shared")
            await life.put(key, batch(0), batch(1))
            life.run_in_background()
            await life.nodes[1].shard.hand_over([HandOver(key, (0, 1), 0, 0)])
            await life.delete_records(partition=1)
            await asyncio.sleep(LONG_S)
            assert life.stored == {key}
            assert await life.stages(1) == {key: Stage.TO_DELETE}
            await life.delete_records(partition=0)
            await asyncio.sleep(LONG_S)
            assert life.stored == set()

    run(main)


@pytest.mark.parametrize("owner_ids", [(1,), (0, 1)])
def test_a_commit_that_comes_after_a_forged_hand_over_of_its_object_counts(owner_ids: tuple[int, ...]) -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            key = object_key("wal", life.clock.now_ms(), life.clock.new_uuid())
            [request] = life.upload(key, batch(0)).values()
            life.run_in_background()
            await life.nodes[1].shard.hand_over([HandOver(key, owner_ids, 0, 0)])
            await asyncio.sleep(5 * DELAY_S)
            assert life.stored == {key}
            [result] = await life.commit(0, request)
            assert result.error is ErrorCode.NONE
            await asyncio.sleep(2 * LONG_S)
            assert life.stored == {key}
            assert await is_live(life, key)

    run(main)


def test_a_commit_that_comes_when_its_object_was_deleted_is_refused() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            key = object_key("wal", life.clock.now_ms(), life.clock.new_uuid())
            [request] = life.upload(key, batch(0)).values()
            life.run_in_background()
            await life.nodes[1].shard.hand_over([HandOver(key, (1,), 0, 0)])
            await asyncio.sleep(LONG_S)
            assert life.stored == set()
            [result] = await life.commit(0, request)
            assert result.error is ErrorCode.KAFKA_STORAGE_ERROR

    run(main)


def test_an_object_of_which_a_coordinator_says_nothing_is_kept_and_holds_up_no_other() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            shared, own = wal_key("shared"), wal_key("own")
            await life.put(shared, batch(0), batch(1))
            await life.put(own, batch(1))
            await asyncio.sleep(2 * DELAY_S)
            await life.delete_records(partition=0)
            await life.trim()
            await life.delete_dead()
            assert await life.stages(0) == {shared: Stage.GONE}
            life.post.unreachable.add(0)
            life.run_in_background()
            await life.delete_records(partition=1)
            await asyncio.sleep(LONG_S)
            assert life.stored == {shared}
            life.post.unreachable.clear()
            await asyncio.sleep(2 * DELAY_S)
            assert life.stored == set()

    run(main)


def test_an_object_with_an_owner_that_does_not_exist_is_kept_and_the_log_is_told_once() -> None:
    async def main() -> None:
        async with FileLife(2) as life:
            await life.create_topic()
            key = wal_key("far")
            life.objects.objects[key] = bytes(commit_of(key, batch()).file_size)
            life.run_in_background()
            with capture_logs() as logs:
                await life.nodes[1].shard.hand_over([HandOver(key, (7, 1), 0, 0)])
                await asyncio.sleep(2 * LONG_S)
            assert life.stored == {key}
            [told] = [line for line in logs if line["log_level"] == "error"]
            assert "set diskless.metadata.topic.num.partitions" in told["event"]
            assert (told["owners"], told["objects"], told["example"]) == ([7], 1, key)

    run(main)


@pytest.mark.parametrize(
    ("owner_ids", "received", "asked"),
    [
        ((1,), None, []),
        ((0, 2, 1), ReceivedFile(0, was_unknown=False), [0, 2]),
        ((0, 1), ReceivedFile(0, was_unknown=True), [0, 2, 3]),
        ((1,), ReceivedFile(0, was_unknown=True), [0, 2, 3]),
        ((7, 1), ReceivedFile(0, was_unknown=False), None),
    ],
)
def test_who_has_to_say_that_an_object_is_dead(
    owner_ids: tuple[int, ...], received: ReceivedFile | None, asked: list[int] | None
) -> None:
    file = EndingFile(wal_key("any"), DeadFile(0, 0, owner_ids), received)
    assert whom_to_ask(file, 1, dict.fromkeys(range(4))) == asked


def test_a_coordinator_that_has_not_answered_is_not_asked_again_and_its_objects_wait() -> None:
    asked: list[int] = []

    class Coordinator:
        def __init__(self, index: int) -> None:
            self.index = index

        async def describe_files(self, object_keys: Sequence[str]) -> Mapping[str, bool]:
            asked.append(self.index)
            return dict.fromkeys(object_keys, False)

    async def main() -> None:
        coordinators = cast("Mapping[int, DisklessCoordinator]", {index: Coordinator(index) for index in range(3)})
        received = ReceivedFile(0, was_unknown=False)
        files = [
            EndingFile(wal_key("of a silent one"), DeadFile(0, 0, (0, 1)), received),
            EndingFile(wal_key("of another"), DeadFile(0, 0, (2, 1)), received),
        ]
        proven = await DeletionProof(1, coordinators).of(files, Passed(now_ms=0), {0})
        assert [file.object_key for file in proven.files] == [wal_key("of another")]
        assert asked == [2]

    run(main)
