"""Backups and restores that use one place at the same time, stand still, and are killed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from diskless_core.cli.backup import Backup
from diskless_core.cli.backup_attempts import Attempt, BackupAttempts
from diskless_core.cli.backup_places import BackupError
from diskless_core.cluster.tables import CLUSTER, CLUSTER_ID
from diskless_core.coordinator.new_log import MigrationRefusedError, NewLog
from diskless_core.coordinator.snapshots import Snapshots, snapshot_prefix
from diskless_core.plugin.wal_object_store import ObjectData, ObjectInfo
from diskless_core.shards import CLUSTER_SHARD
from diskless_core.snapshot import reading
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from tests.support.backups import CONFIG, TOPIC_ID, World, content, snapshots_in, story

Pause = Callable[[], Coroutine[Any, Any, None]]

SNAPSHOTS = snapshot_prefix(CONFIG)
REFUSED = (BackupError, MigrationRefusedError)


class SlowStore(MemoryWalObjectStore):
    """Every request may take long, before it takes effect and afterwards."""

    pause: Pause

    async def put(self, key: str, data: ObjectData) -> None:
        await self.pause()
        await super().put(key, data)
        await self.pause()

    async def get(self, key: str, start: int, end: int) -> ObjectData:
        await self.pause()
        found = await super().get(key, start, end)
        await self.pause()
        return found

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        await self.pause()
        async for page in super().list(prefix):
            yield page
            await self.pause()

    async def delete(self, keys: Sequence[str]) -> Sequence[str]:
        await self.pause()
        for key in keys:
            await super().delete([key])
            await self.pause()
        return list(keys)


class SlowWorld(World):
    """Its target is slow, as a seed says."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        store = SlowStore(self.clock)
        store.pause = self.pause
        self.target = replace(self.target, objects=store)
        self.is_slow = False
        self.serving = asyncio.Lock()
        self.new_log.append_delay_s = lambda: self.random.choice([0.0, 0.1, 3.0]) if self.is_slow else 0.0

    async def pause(self) -> None:
        if self.is_slow:
            await asyncio.sleep(self.random.choice([0.0, 0.0, 0.1, 1.0, 5.0]))

    async def require_unused(self) -> None:
        await self.pause()
        await super().require_unused()
        await self.pause()

    def attempts(self) -> BackupAttempts:
        return BackupAttempts(CONFIG, self.target.objects)

    async def serve(self) -> None:
        """A broker with empty folders starts, and takes a snapshot."""
        async with self.serving, self.restored() as led:
            assert led.cluster.state.get(CLUSTER, CLUSTER_ID) == "c"
            assert [topic_id for topic_id, _ in led.diskless[1].topics()] == [TOPIC_ID]
            await led.cluster.flush()
            await led.cluster.take_snapshot(Snapshots.of(CONFIG, self.target.objects, self.clock))


def slow_story(work: Callable[[SlowWorld], Coroutine[Any, Any, None]], seed: int = 0) -> None:
    async def main() -> None:
        await work(SlowWorld(seed))

    story(lambda _: main())


@pytest.mark.parametrize("seed", range(25))
def test_whatever_backups_and_restores_do_at_once_the_restored_cluster_has_what_it_needs(seed: int) -> None:
    async def work(world: SlowWorld) -> None:
        await world.begin()
        first = await world.backup()
        finished = [first]
        world.is_slow, draw = True, world.random
        restored = asyncio.Event()

        async def back_up() -> None:
            finished.append(await world.backup())

        async def begin_a_cluster() -> None:
            await world.restore()
            restored.set()
            await world.serve()

        async def act(what: Callable[[], Coroutine[Any, Any, None]]) -> None:
            await asyncio.sleep(draw.uniform(0, 60))
            with suppress(TimeoutError, *REFUSED):
                async with asyncio.timeout(draw.choice([None, None, draw.uniform(1, 200)])):  # killed
                    await what()

        actors = [back_up] * draw.randint(1, 3) + [begin_a_cluster] * draw.randint(0, 2)
        async with asyncio.TaskGroup() as group:
            for actor in actors:
                group.create_task(act(actor))
        world.is_slow = False
        if not restored.is_set():
            while True:
                with suppress(MigrationRefusedError):  # two restores met: it says to run it again
                    await world.restore()
                    break
        await world.serve()
        await world.serve()
        found = await world.attempts().find()
        if begin_a_cluster not in actors:
            begun = max(Attempt.parsed(one.attempt) or Attempt(0, TOPIC_ID) for one in finished)
            assert found.latest is not None
            assert found.latest >= begun, "one that was killed after its description counts too"

    slow_story(work, seed)


async def stopped_before_its_description(world: SlowWorld) -> tuple[asyncio.Task[Backup], asyncio.Event]:
    """A backup that has put its points, and stands still."""
    stands, goes_on = asyncio.Event(), asyncio.Event()
    describe = BackupAttempts.describe

    async def slow(self: BackupAttempts, attempt: Attempt, text: str) -> None:
        stands.set()
        await goes_on.wait()
        await describe(self, attempt, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BackupAttempts, "describe", slow)
        backup = asyncio.create_task(world.backup())
        await stands.wait()
    return backup, goes_on


def test_a_backup_that_is_finished_after_its_place_was_restored_says_so_and_removes_nothing_of_the_cluster() -> None:
    async def work(world: SlowWorld) -> None:
        await world.begin()
        await world.backup()
        late, goes_on = await stopped_before_its_description(world)
        await world.restore()
        await world.serve()
        before = snapshots_in(world.target)
        goes_on.set()
        with pytest.raises(BackupError, match="a cluster was restored in the place of the backup"):
            await late
        assert snapshots_in(world.target) == before
        await world.restore()
        await world.serve()

    slow_story(work)


def test_of_two_backups_at_once_the_one_that_began_later_is_restored_whichever_ends_first() -> None:
    async def work(world: SlowWorld) -> None:
        await world.begin()
        earlier, goes_on = await stopped_before_its_description(world)
        await asyncio.sleep(1)
        later = await world.backup()
        before = snapshots_in(world.target)
        goes_on.set()
        with pytest.raises(BackupError, match="another backup into the same place"):
            await earlier
        assert snapshots_in(world.target) == before
        found = await world.attempts().find()
        assert [str(one) for one in found.known] == [later.attempt]
        await world.restore()
        await world.serve()

    slow_story(work)


def test_a_backup_that_ends_first_leaves_one_alone_that_began_later_and_goes_on() -> None:
    async def work(world: SlowWorld) -> None:
        await world.begin()
        earlier, ends = await stopped_before_its_description(world)
        await asyncio.sleep(1)
        later, goes_on = await stopped_before_its_description(world)
        ends.set()
        await earlier
        goes_on.set()
        made = await later
        assert [str(one) for one in (await world.attempts().find()).known] == [made.attempt]
        await world.restore()
        await world.serve()

    slow_story(work)


def test_a_restore_that_stood_still_before_it_claimed_begins_with_the_backup_that_was_finished_meanwhile() -> None:
    async def work(world: SlowWorld) -> None:
        await world.begin()
        await world.backup()
        stands, goes_on = asyncio.Event(), asyncio.Event()
        claim = NewLog.claim

        async def slow(self: NewLog, *given: Any) -> int | None:
            stands.set()
            await goes_on.wait()
            return await claim(self, *given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(NewLog, "claim", slow)
            restoring = asyncio.create_task(world.restore())
            await stands.wait()
            await asyncio.sleep(1)
            made = await world.backup()
            goes_on.set()
            await restoring
        await world.serve()
        async with world.restored() as led:
            assert str(led.cluster.log_id) == next(one.log_id for one in made.shards)

    slow_story(work)


@pytest.mark.parametrize("is_finished", [True, False])
def test_the_latest_backup_is_restored_even_if_an_earlier_one_was_made_on_a_machine_whose_clock_is_ahead(
    is_finished: bool,
) -> None:
    async def work(world: SlowWorld) -> None:
        await world.begin()
        world.clock.skew_ms = 24 * 3_600_000
        if is_finished:
            await world.backup()
        else:
            killed, _ = await stopped_before_its_description(world)
            killed.cancel()
            await asyncio.gather(killed, return_exceptions=True)
        world.clock.skew_ms = 0
        began_ms = world.clock.now_ms()
        made = await world.backup()
        assert made.began_ms == began_ms, "the time is the true one"
        assert str((await world.attempts().find()).latest) == made.attempt
        await world.restore()
        await world.serve()
        async with world.restored() as led:
            assert str(led.cluster.log_id) == made.shards[0].log_id

    slow_story(work)


def test_a_backup_fails_if_a_later_one_was_finished_that_has_not_superseded_it_yet() -> None:
    async def work(world: SlowWorld) -> None:
        await world.begin()
        earlier, ends = await stopped_before_its_description(world)
        await asyncio.sleep(1)
        supersede = BackupAttempts.supersede
        stands, goes_on = asyncio.Event(), asyncio.Event()

        async def slow(self: BackupAttempts, *given: Any) -> None:
            stands.set()
            await goes_on.wait()
            await supersede(self, *given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BackupAttempts, "supersede", slow)
            later = asyncio.create_task(world.backup())
            await stands.wait()
        ends.set()
        with pytest.raises(BackupError, match="another backup into the same place"):
            await earlier
        goes_on.set()
        made = await later
        assert str((await world.attempts().find()).latest) == made.attempt
        await world.restore()
        await world.serve()

    slow_story(work)


def test_a_backup_removes_those_before_it_and_what_was_killed_and_no_other_snapshots() -> None:
    async def work(world: SlowWorld) -> None:
        await world.begin()
        await world.backup()
        killed, _ = await stopped_before_its_description(world)
        killed.cancel()
        await asyncio.gather(killed, return_exceptions=True)
        await world.put_other_snapshot()
        await asyncio.sleep(1)
        made = await world.backup()
        found = await world.attempts().find()
        assert [str(one) for one in found.begun] == [str(one) for one in found.described] == [made.attempt]
        [own] = found.begun
        names = [reading.folder_name_of(SNAPSHOTS, CLUSTER_SHARD, key) for key in snapshots_in(world.target)]
        left = {name.log_id for name in names if name is not None}
        assert own.log_id(CLUSTER_SHARD) in left
        assert len(left) == 2, "its own one, and the one that belongs to no attempt"

    slow_story(work)


def test_a_restore_that_was_interrupted_goes_on_with_the_backup_that_the_cluster_has_begun_with() -> None:
    async def work(world: SlowWorld) -> None:
        await world.begin()
        first = await world.backup()
        late, goes_on = await stopped_before_its_description(world)
        killed = asyncio.Event()

        async def stand(*_: object) -> None:
            killed.set()
            await asyncio.Event().wait()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BackupAttempts, "remove_points", stand)
            interrupted = asyncio.create_task(world.restore())
            await killed.wait()
            interrupted.cancel()
            await asyncio.gather(interrupted, return_exceptions=True)
        goes_on.set()
        with pytest.raises(BackupError):
            await late
        await world.restore()
        await world.serve()
        async with world.restored() as led:
            wanted = Attempt.parsed(first.attempt)
            assert wanted is not None
            assert led.cluster.log_id == wanted.log_id(CLUSTER_SHARD)

    slow_story(work)


def test_a_restore_that_goes_on_when_the_cluster_has_long_moved_on_removes_none_of_its_snapshots() -> None:
    async def work(world: SlowWorld) -> None:
        await world.begin()
        await world.backup()
        stands, goes_on = asyncio.Event(), asyncio.Event()
        remove = BackupAttempts.remove_points

        async def slow(self: BackupAttempts, *given: Any) -> None:
            stands.set()
            await goes_on.wait()
            await remove(self, *given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BackupAttempts, "remove_points", slow)
            late = asyncio.create_task(world.restore())
            await stands.wait()
        await world.restore()
        await world.serve()
        await world.put_other_snapshot()  # such as with which the cluster is about to begin on a further log
        before = snapshots_in(world.target)
        goes_on.set()
        with suppress(MigrationRefusedError):
            await late
        assert snapshots_in(world.target) == before

    slow_story(work)


def test_a_log_that_was_not_begun_with_a_backup_from_this_place_is_in_use() -> None:
    async def work(world: SlowWorld) -> None:
        await world.begin()
        await world.backup()
        await world.restore()
        for key in [key for key in content(world.target.objects) if "-backup/" in key]:
            await world.target.objects.delete([key])
        with pytest.raises(MigrationRefusedError, match="in use"):
            await world.restore()

    slow_story(work)


def test_without_a_backup_that_was_finished_there_is_nothing_to_restore() -> None:
    async def work(world: SlowWorld) -> None:
        await world.begin()
        with pytest.raises(BackupError, match=r"there is no backup that was finished$"):
            await world.restore()
        killed, _ = await stopped_before_its_description(world)
        killed.cancel()
        await asyncio.gather(killed, return_exceptions=True)
        with pytest.raises(BackupError, match="only attempts that were not"):
            await world.restore()

    slow_story(work)
