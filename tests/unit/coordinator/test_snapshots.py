"""Snapshots of a shard on fakes: what comes back after the log was pruned, and when nothing may be pruned."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from diskless_core.clock import SystemClock
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.log_identity import LogName
from diskless_core.coordinator.shard_store import StoreThread
from diskless_core.coordinator.snapshots import Beginning, Snapshots
from diskless_core.coordinator.snapshotter import RETRY, SnapshotRules, Snapshotter
from diskless_core.diskless.commands import PartitionKey
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.snapshot.format import Manifest, SnapshotError
from diskless_core.snapshot.reading import MANIFEST_SUFFIX
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from diskless_core.testing.fakes.store import MemorySnapshot, _MemoryShard
from tests.support.shards import SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.stores import FailingStore
from tests.support.virtual_time import VirtualClock, run

P0 = PartitionKey(TOPIC, 0)
SMALL = SnapshotRules(least_bytes=2_000, max_age_ms=3_600_000)
LARGE = SnapshotRules(least_bytes=1 << 30, max_age_ms=3_600_000)


class Place:
    """A shard with a snapshotter on a shared log and object store."""

    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.objects = MemoryWalObjectStore(self.clock)
        self.snapshots = Snapshots(self.objects, "snapshots", self.clock)
        self.node = ShardNode(SharedLog(), self.clock, snapshots=self.snapshots)
        self.committed = 0

    async def start(self) -> None:
        await self.node.start()
        if self.node.shard.head(P0) is None:
            await self.node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])

    def snapshotter(self, rules: SnapshotRules = SMALL) -> Snapshotter:
        return Snapshotter(self.node.shard, self.node.log, self.snapshots, rules, self.clock)

    async def commit(self, count: int) -> None:
        for _ in range(count):
            await self.node.commit(commit_of(f"object-{self.committed:04d}", batch(producer=(7, 0, self.committed))))
            self.committed += 1

    async def log_start(self) -> int:
        return (await self.node.log.bounds(SHARD_ID)).start

    async def log_end(self) -> int:
        return (await self.node.log.bounds(SHARD_ID)).end

    async def restart_without_store(self) -> None:
        await self.node.kill()
        self.node.store = FailingStore()
        await self.start()

    async def keys_read(self) -> list[str]:
        return [found.object_key for found in await self.node.read_all(P0)]


def on_a_place(story: Callable[[Place], Awaitable[None]]) -> None:
    async def main() -> None:
        place = Place()
        await place.start()
        await story(place)
        await place.node.stop()

    run(main)


def test_a_lost_store_is_filled_again_from_snapshot_and_log():
    async def story(place: Place) -> None:
        await place.commit(30)
        await place.snapshotter().take()
        assert await place.log_start() > 0, "the log is pruned"
        await place.commit(5)
        before = place.node.tables()
        await place.restart_without_store()
        assert await place.keys_read() == [f"object-{number:04d}" for number in range(35)]
        after = place.node.tables()
        assert {name: rows for name, rows in after.items() if name != "acceptance"} == {
            name: rows for name, rows in before.items() if name != "acceptance"
        }
        again = await place.node.commit(commit_of("object-0034", batch(producer=(7, 0, 34))))
        assert again[0].base_offset == 34, "a repeated commit gets its first answer"

    on_a_place(story)


def test_it_is_announced_that_a_store_begins_empty_on_a_log_that_does_not():
    async def story(place: Place) -> None:
        await place.commit(3)
        with capture_logs() as logged:
            await place.restart_without_store()
        [line] = [entry for entry in logged if "the coordinator store is empty" in entry["event"]]
        assert line["log_end"] == await place.log_end() - 1  # one more is the claim of the new term

    on_a_place(story)


def test_a_store_that_is_ahead_of_the_snapshot_is_kept():
    async def story(place: Place) -> None:
        await place.commit(10)
        await place.snapshotter().take()
        await place.commit(10)
        await place.node.stop()
        with_answers = place.objects.calls[Operation.GET]
        await place.start()
        assert place.objects.calls[Operation.GET] == with_answers
        assert len(await place.keys_read()) == 20

    on_a_place(story)


def test_a_snapshot_that_the_store_refuses_for_now_is_taken_later_without_flooding_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(place: Place) -> None:
        await place.commit(30)

        async def refuse(*_: object) -> Manifest:
            raise CoordinatorStoreError("injected: it is still being checked for damage: try again")

        with monkeypatch.context() as patch, capture_logs() as logged:
            patch.setattr(place.snapshots, "take", refuse)
            running = asyncio.create_task(place.snapshotter().run())
            await asyncio.sleep(600)
        told = [line for line in logged if line["event"].startswith("a snapshot failed")]
        assert 600 / 45 <= len(told) <= 600 / 15
        assert await place.snapshots.newest(SHARD_ID) is None
        await asyncio.sleep(60)
        assert await place.snapshots.newest(SHARD_ID) is not None
        running.cancel()

    on_a_place(story)


def test_one_snapshot_is_kept():
    async def story(place: Place) -> None:
        for _ in range(3):
            await place.commit(5)
            await place.snapshotter().take()
        manifests = [key for key in place.objects.objects if key.endswith(MANIFEST_SUFFIX)]
        newest = await place.snapshots.newest(SHARD_ID)
        assert newest is not None
        assert len(manifests) == 1
        assert set(place.objects.objects) == {*manifests, *(part.key for part in newest.parts)}

    on_a_place(story)


def test_only_snapshots_of_its_own_log_are_removed_for_a_newer_one():
    async def story(place: Place) -> None:
        await place.commit(3)
        await place.node.shard.flush()
        other = LogName(place.clock.new_uuid(), place.node.shard.log_id)
        elsewhere = await place.node.shard.take_snapshot(place.snapshots, Beginning(other))
        await place.snapshotter().take()
        await place.commit(3)
        await place.snapshotter().take()
        await place.snapshots.require_whole(SHARD_ID, elsewhere)
        assert len([key for key in place.objects.objects if key.endswith(MANIFEST_SUFFIX)]) == 2

    on_a_place(story)


def test_a_log_is_not_pruned_for_a_snapshot_that_is_gone():
    async def story(place: Place) -> None:
        await place.commit(3)
        await place.snapshotter().take()
        start, older = await place.log_start(), set(place.objects.objects)
        await place.commit(3)
        barrier = place.node.shard.barrier

        async def slow() -> None:
            for key in set(place.objects.objects) - older:
                if not key.endswith(MANIFEST_SUFFIX):
                    del place.objects.objects[key]
            await barrier()

        place.node.shard.barrier = slow
        with pytest.raises(SnapshotError, match="is no longer whole"):
            await place.snapshotter().take()
        assert await place.log_start() == start
        assert set(place.objects.objects) >= older
        place.node.shard.barrier = barrier
        await place.restart_without_store()
        assert len(await place.keys_read()) == 6

    on_a_place(story)


def test_a_leader_that_was_deposed_while_it_took_a_snapshot_prunes_nothing_and_removes_nothing():
    async def story(place: Place) -> None:
        await place.commit(3)
        await place.snapshotter().take()
        start, older = await place.log_start(), set(place.objects.objects)
        await place.commit(3)
        put = place.objects.put

        async def deposed(key, data):
            await put(key, data)
            if key.endswith(MANIFEST_SUFFIX):
                place.node.shared.set_leader(SHARD_ID, 2)
                other = ShardNode(place.node.shared, place.clock, 2, snapshots=place.snapshots)
                await other.start()
                await other.stop()

        place.objects.put = deposed
        await place.snapshotter().take()
        assert await place.log_start() == start
        assert set(place.objects.objects) > older
        place.objects.put = put

    on_a_place(story)


def test_a_shard_in_which_nothing_happens_gets_no_further_snapshot_by_age():
    async def story(place: Place) -> None:
        await place.commit(1)
        rules = SnapshotRules(least_bytes=1 << 30, max_age_ms=1)
        snapshotter = place.snapshotter(rules)
        for _ in range(2):
            await snapshotter.look()
            await asyncio.sleep(1)
        first = set(place.objects.objects)
        assert first
        for _ in range(3):
            await asyncio.sleep(1)
            await snapshotter.look()
        assert set(place.objects.objects) == first
        await place.commit(1)
        await snapshotter.look()
        assert set(place.objects.objects) != first

    on_a_place(story)


def test_a_log_without_an_id_gets_no_snapshot():
    async def story(place: Place) -> None:
        unnamed = ShardNode(SharedLog(), place.clock)
        await unnamed.start()
        await unnamed.commit(commit_of("object", batch()))
        rules = SnapshotRules(least_bytes=1, max_age_ms=1)
        await Snapshotter(unnamed.shard, unnamed.log, place.snapshots, rules, place.clock).look()
        assert place.objects.objects == {}
        await unnamed.stop()

    on_a_place(story)


def test_a_snapshot_is_due_by_size_and_by_age():
    assert SMALL.is_due(2_000, 0, 1_000)
    assert not SMALL.is_due(1_999, 3_599_999, 1_000)
    assert SMALL.is_due(1, 3_600_000, 1_000)
    assert not SMALL.is_due(0, 10**9, 1_000), "nothing new"


def test_the_distance_to_the_next_one_grows_with_the_state():
    assert not SMALL.is_due(4_999, 0, 5_000)
    assert SMALL.is_due(5_000, 0, 5_000)
    assert SMALL.is_due(1, 3_600_000, 5_000)


def test_what_snapshots_write_stays_in_proportion_to_the_log():
    """The log brings more and more rows, and each snapshot has all of them."""

    async def story(place: Place) -> None:
        snapshotter, written, parts = place.snapshotter(), 0, set()
        for _ in range(40):
            await place.commit(10)
            await snapshotter.look()
            newest = await place.snapshots.newest(SHARD_ID)
            if newest is not None and newest.parts[0].key not in parts:
                parts.add(newest.parts[0].key)
                written += newest.size_bytes
                assert place.node.shard.snapshot_bytes == newest.size_bytes
        assert len(parts) > 3
        assert written < 2 * place.node.shard.applied_bytes

    on_a_place(story)


def test_a_leader_that_comes_into_office_knows_how_large_the_last_one_is():
    async def story(place: Place) -> None:
        await place.commit(200)
        await place.snapshotter().take()
        first = set(place.objects.objects)
        newest = await place.snapshots.newest(SHARD_ID)
        assert newest is not None
        assert newest.size_bytes > SMALL.least_bytes + 1_000
        await place.node.stop()
        await place.start()
        snapshotter, before = place.snapshotter(), place.node.shard.applied_bytes
        while place.node.shard.applied_bytes - before < SMALL.least_bytes:
            await place.commit(1)
        await snapshotter.look()
        assert set(place.objects.objects) == first
        while place.node.shard.applied_bytes - before < newest.size_bytes:
            await place.commit(1)
        await snapshotter.look()
        assert set(place.objects.objects) != first

    on_a_place(story)


def test_a_follower_that_comes_to_lead_takes_one_only_when_the_log_has_grown_enough_since_the_newest():
    async def story(place: Place) -> None:
        other = ShardNode(place.node.shared, place.clock, 2, snapshots=place.snapshots)
        shard = await other.start(lead=False)
        await place.commit(100)
        await place.snapshotter().take()
        first = set(place.objects.objects)
        newest = await place.snapshots.newest(SHARD_ID)
        assert newest is not None
        place.node.shared.set_leader(SHARD_ID, 2)
        await shard.until_leading()
        snapshotter = Snapshotter(shard, other.log, place.snapshots, SMALL, place.clock)
        assert shard.applied_bytes > newest.size_bytes + SMALL.least_bytes, "that of the whole log would make it due"
        await snapshotter.look()
        assert set(place.objects.objects) == first
        written = 0
        while written < newest.size_bytes:
            before = shard.applied_bytes
            await other.commit(commit_of(f"later-{written}", batch()))
            written += shard.applied_bytes - before
        await snapshotter.look()
        assert set(place.objects.objects) != first
        await other.stop()

    on_a_place(story)


def test_it_is_taken_when_the_log_has_grown_enough():
    async def story(place: Place) -> None:
        snapshotter = place.snapshotter()
        await place.commit(1)
        await snapshotter.look()
        assert place.objects.objects == {}
        await place.commit(30)
        await snapshotter.look()
        first = set(place.objects.objects)
        assert first
        await place.commit(1)
        await snapshotter.look()
        assert set(place.objects.objects) == first, "counted from the last one on"

    on_a_place(story)


def test_age_counts_from_the_snapshot_that_an_earlier_process_took():
    async def story(place: Place) -> None:
        await place.commit(1)
        await place.snapshotter(LARGE).take()
        first = set(place.objects.objects)
        await asyncio.sleep(3_000)
        await place.node.stop()
        await place.start()
        await place.commit(1)
        snapshotter = place.snapshotter(LARGE)
        await snapshotter.look()
        assert set(place.objects.objects) == first
        await asyncio.sleep(601)
        await snapshotter.look()
        assert set(place.objects.objects) != first

    on_a_place(story)


@pytest.mark.parametrize("puts_that_work", [0, 1])
def test_a_snapshot_that_could_not_be_written_prunes_nothing_and_is_tried_again(puts_that_work):
    async def story(place: Place) -> None:
        await place.commit(30)
        if puts_that_work:
            place.objects.fail_next(Operation.GET)
        else:
            place.objects.fail_next(Operation.PUT)
        working = asyncio.create_task(place.snapshotter().run())
        await asyncio.sleep(1)
        assert await place.log_start() == 0
        await asyncio.sleep(2 * RETRY.max_ms / 1000)
        assert await place.log_start() > 0
        working.cancel()
        await place.restart_without_store()
        assert len(await place.keys_read()) == 30

    on_a_place(story)


def test_a_snapshot_that_reads_back_damaged_prunes_nothing_and_is_gone():
    async def story(place: Place) -> None:
        await place.commit(3)
        put = place.objects.put

        async def damaging(key, data):
            await put(key, bytes(data)[:-1] + b"!" if not key.endswith(MANIFEST_SUFFIX) else data)

        place.objects.put = damaging
        with pytest.raises(SnapshotError, match="not what was written"):
            await place.snapshotter().take()
        assert await place.log_start() == 0
        assert await place.snapshots.newest(SHARD_ID) is None

    on_a_place(story)


def test_a_shard_whose_log_is_pruned_and_whose_snapshot_is_gone_says_so():
    async def story(place: Place) -> None:
        await place.commit(3)
        await place.snapshotter().take()
        kept = dict(place.objects.objects)
        place.objects.objects.clear()
        with pytest.raises(CoordinatorError, match="no snapshot is in"):
            await place.restart_without_store()
        place.objects.objects.update(kept)
        place.objects.fail_next(Operation.GET)
        with pytest.raises(CoordinatorError, match="503"):
            await place.node.start()
        await place.node.start()
        assert len(await place.keys_read()) == 3

    on_a_place(story)


def test_a_restore_that_was_interrupted_begins_anew():
    async def story(place: Place) -> None:
        await place.commit(40)
        await place.snapshotter().take()
        await place.node.kill()
        place.node.store = FailingStore()
        place.objects.fail_next(Operation.GET)
        with pytest.raises(CoordinatorError):
            await place.node.start()
        await place.node.start()
        assert len(await place.keys_read()) == 40

    on_a_place(story)


def test_leftovers_of_an_attempt_that_failed_go_with_the_next_snapshot():
    async def story(place: Place) -> None:
        await place.commit(3)
        with place.objects.failing(Operation.GET), pytest.raises(WalObjectStoreError):
            await place.snapshotter().take()
        left = set(place.objects.objects)
        await place.commit(1)
        await place.snapshotter().take()
        assert not left & set(place.objects.objects)

    on_a_place(story)


@pytest.mark.parametrize("damage_manifest", [True, False])
def test_a_snapshot_that_was_damaged_later_is_passed_over_for_the_one_before(damage_manifest):
    async def story(place: Place) -> None:
        await place.commit(3)
        await place.node.shard.flush()
        older = await place.node.shard.take_snapshot(place.snapshots)
        await place.commit(3)
        await place.node.shard.flush()
        known = set(place.objects.objects)
        await place.node.shard.take_snapshot(place.snapshots)
        for key in set(place.objects.objects) - known:
            if key.endswith(MANIFEST_SUFFIX) == damage_manifest:
                place.objects.objects[key] = b"?" * len(place.objects.objects[key])
        await place.node.log.prune(SHARD_ID, older.applied_offset)
        await place.commit(1)
        await place.restart_without_store()
        assert len(await place.keys_read()) == 7
        await place.snapshotter().take()
        await place.restart_without_store()
        assert len(await place.keys_read()) == 7

    on_a_place(story)


def test_a_damaged_manifest_does_not_keep_new_snapshots_from_being_taken():
    async def story(place: Place) -> None:
        await place.commit(30)
        await place.snapshotter().take()
        for key in place.objects.objects:
            if key.endswith(MANIFEST_SUFFIX):
                place.objects.objects[key] = b"?"
        await place.commit(1)
        await place.snapshotter(SnapshotRules(least_bytes=1, max_age_ms=1)).look()
        await place.restart_without_store()
        assert len(await place.keys_read()) == 31

    on_a_place(story)


def test_a_snapshot_before_the_logs_start_is_none():
    async def story(place: Place) -> None:
        await place.commit(3)
        await place.node.shard.flush()
        await place.node.shard.take_snapshot(place.snapshots)
        await place.commit(3)
        await place.node.log.prune(SHARD_ID, await place.log_end())
        with pytest.raises(CoordinatorError, match="what lies between is in neither"):
            await place.restart_without_store()

    on_a_place(story)


async def test_what_a_snapshot_is_read_from_is_not_closed_under_the_thread_that_reads_it() -> None:
    """A native store would crash the broker."""
    begun, may_end = threading.Event(), threading.Event()
    closed_while_read: list[bool] = []

    class SlowView(MemorySnapshot):
        def applied_offset(self) -> int:
            begun.set()
            may_end.wait(60)
            return super().applied_offset()

        def __exit__(self, *_: object) -> None:
            closed_while_read.append(not may_end.is_set())

    class Store:
        async def read(self, work: Callable[[Any], Any]) -> Any:
            return work(self)

        def snapshot(self) -> MemorySnapshot:
            return SlowView(_MemoryShard({}))

    snapshots = Snapshots(MemoryWalObjectStore(SystemClock()), "snapshots", SystemClock())
    taking = asyncio.create_task(snapshots.take(SHARD_ID, [], cast("StoreThread", Store())))
    await asyncio.to_thread(begun.wait, 60)
    taking.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert closed_while_read == [False]
