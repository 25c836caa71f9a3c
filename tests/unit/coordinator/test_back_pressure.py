"""A store that takes nothing: what memory keeps for it is bounded, and all goes on when it is back."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from diskless_core.coordinator import shard_store
from diskless_core.coordinator.errors import StoreBehindError
from diskless_core.coordinator.shard_store import SAY_AGAIN_S
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.coordinator.snapshotter import SnapshotRules, Snapshotter
from diskless_core.diskless.commands import PartitionKey
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from tests.support.shards import SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

P0 = PartitionKey(TOPIC, 0)
PAGE_ROWS = 10
MAX_ROWS = 50
ROWS_OF_A_COMMIT = 5
"""A run, a file and what is live of it, the partition's head, and whose entries count."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_store, "PAGE_ROWS", PAGE_ROWS)
    monkeypatch.setattr(shard_store, "MAX_UNSTORED_ROWS", MAX_ROWS)


async def started(shared: SharedLog | None = None, node_id: int = 1, *, lead: bool = True) -> ShardNode:
    node = ShardNode(shared or SharedLog(), VirtualClock(asyncio.get_running_loop()), node_id)
    await node.start(lead=lead)
    if lead:
        await node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
    return node


async def fill(node: ShardNode) -> list[str]:
    """Commit until the leader refuses; the objects that were acknowledged."""
    acknowledged = list[str]()
    while True:
        key = f"object-{len(acknowledged):04d}"
        try:
            await node.shard.commit_file(commit_of(key, batch()))
        except StoreBehindError:
            return acknowledged
        acknowledged.append(key)
        assert len(acknowledged) < MAX_ROWS


async def until(condition: Callable[[], bool]) -> None:
    """In virtual time, and not for ever."""
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it does not become so")


async def keys_read(node: ShardNode) -> list[str]:
    return [found.object_key for found in await node.read_all(P0)]


def metric(node: ShardNode, name: str) -> float:
    return node.metrics.registry.get_sample_value(f"diskless_coordinator_{name}", {"shard": str(SHARD_ID)}) or 0.0


def test_a_leader_refuses_commands_while_its_store_lacks_too_much_and_goes_on_when_it_has_caught_up() -> None:
    async def main() -> None:
        node = await started()
        with node.failing_store():
            acknowledged = await fill(node)
            assert node.shard.held_back
            assert MAX_ROWS <= node.shard.unflushed_rows < MAX_ROWS + PAGE_ROWS + ROWS_OF_A_COMMIT
            for _ in range(20):
                with pytest.raises(StoreBehindError, match=r"lacks \d+ rows.*mend the store"):
                    await node.shard.commit_file(commit_of("refused", batch()))
            assert node.shard.unflushed_rows < MAX_ROWS + PAGE_ROWS + ROWS_OF_A_COMMIT
            assert await keys_read(node) == acknowledged
        committing = asyncio.create_task(node.commit(commit_of("waits", batch())))
        [result] = await asyncio.wait_for(committing, 120)
        assert result.base_offset == len(acknowledged)
        assert not node.shard.held_back
        await node.kill()
        await node.start()
        assert await keys_read(node) == [*acknowledged, "waits"]
        await node.stop()

    run(main)


def test_a_leader_that_refuses_still_repeats_answers_and_serves_strict_reads() -> None:
    async def main() -> None:
        node = await started()
        with node.failing_store():
            acknowledged = await fill(node)
            request = commit_of(acknowledged[-1], batch())
            [again] = await node.shard.commit_file(request)
            assert again.base_offset == len(acknowledged) - 1
            await node.shard.barrier()
            assert node.shard.leading
            assert node.shard.obstacle is None
        await node.stop()

    run(main)


def test_a_follower_stops_reading_its_log_and_reads_on_when_its_store_has_caught_up() -> None:
    async def main() -> None:
        shared = SharedLog()
        leader = await started(shared)
        follower = await started(shared, 2, lead=False)
        with follower.failing_store():
            for number in range(MAX_ROWS):
                await leader.commit(commit_of(f"object-{number:04d}", batch()))
            await until(lambda: follower.shard.held_back)
            await asyncio.sleep(5)
            assert follower.shard.next_offset < leader.shard.next_offset
            assert follower.shard.unflushed_rows < MAX_ROWS + PAGE_ROWS + ROWS_OF_A_COMMIT
            assert "lacks too much" in str(follower.shard.obstacle)
            assert metric(follower, "refused_commands_total") == 0
        await until(lambda: follower.shard.next_offset == leader.shard.next_offset)
        assert follower.shard.obstacle is None
        assert follower.tables() == leader.tables()
        assert await keys_read(follower) == await keys_read(leader)
        await follower.stop()
        await leader.stop()

    run(main)


def test_who_waits_for_a_follower_is_told_when_its_store_has_caught_up_though_the_log_has_nothing_more() -> None:
    async def main() -> None:
        shared = SharedLog()
        leader = await started(shared)
        follower = await started(shared, 2, lead=False)
        with follower.failing_store():
            number = 0
            while not follower.shard.held_back:
                await leader.commit(commit_of(f"object-{number:04d}", batch()))
                number += 1
                await asyncio.sleep(0.1)
            assert follower.shard.next_offset == leader.shard.next_offset
            serving = asyncio.create_task(follower.shard.until_serving())
            await asyncio.sleep(1)
            assert not serving.done()
        await asyncio.wait_for(serving, 120)
        await follower.stop()
        await leader.stop()

    run(main)


def test_a_node_whose_store_is_away_from_its_start_on_leads_when_it_is_back() -> None:
    async def main() -> None:
        node = await started()
        for number in range(MAX_ROWS):
            await node.commit(commit_of(f"object-{number:04d}", batch()))
        await node.kill()
        node.store = type(node.store)()
        node.store.failing = True
        await node.start(lead=False)
        await until(lambda: node.shard.held_back)
        await asyncio.sleep(5)
        assert not node.shard.leading
        node.store.failing = False
        await asyncio.wait_for(node.shard.until_leading(), 120)
        assert len(await keys_read(node)) == MAX_ROWS
        await node.stop()

    run(main)


def test_each_try_hands_out_a_page_and_what_was_stored_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        node = await started()
        await node.shard.flush()
        sizes, offsets = list[int](), list[int]()
        write = shard_store.StoreThread.write

        async def noted(self: shard_store.StoreThread, page: shard_store.Page) -> None:
            sizes.append(sum(len(table.put) + len(table.delete) for table in page.changes().values()))
            offsets.append(page.applied_offset)
            await write(self, page)

        monkeypatch.setattr(shard_store.StoreThread, "write", noted)
        with node.failing_store():
            await fill(node)
            await until(lambda: len(sizes) >= 3)
        assert len(set(offsets)) == 1, "a page that was refused is handed out again"
        await until(lambda: node.shard.unflushed_rows == 0)
        assert max(sizes) < PAGE_ROWS + ROWS_OF_A_COMMIT
        assert sorted(set(offsets)) == list(dict.fromkeys(offsets))
        assert offsets[-1] == node.shard.stored_offset == node.shard.next_offset
        await node.stop()

    run(main)


def test_a_store_that_dies_between_two_pages_has_whole_entries_up_to_an_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        node = await started()
        with node.failing_store():
            acknowledged = await fill(node)
        write = shard_store.StoreThread.write
        written = 0

        async def dies(self: shard_store.StoreThread, page: shard_store.Page) -> None:
            nonlocal written
            if written == 2:
                raise CoordinatorStoreError("gone")
            await write(self, page)
            written += 1

        monkeypatch.setattr(shard_store.StoreThread, "write", dies)
        with pytest.raises(CoordinatorStoreError):
            await node.shard.flush()
        stored = node.shard.stored_offset
        assert stored < node.shard.next_offset
        await node.kill()
        monkeypatch.setattr(shard_store.StoreThread, "write", write)
        shard = await node.start(lead=False)
        assert shard.stored_offset >= stored
        await shard.until_leading()
        assert await keys_read(node) == acknowledged
        await node.stop()

    run(main)


def test_a_snapshot_of_what_the_store_has_can_be_taken_while_it_refuses() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        snapshots = Snapshots(MemoryWalObjectStore(clock), "snapshots", clock)
        node = ShardNode(SharedLog(), clock, snapshots=snapshots)
        await node.start()
        await node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
        await node.commit(commit_of("stored", batch()))
        await node.shard.flush()
        snapshotter = Snapshotter(
            node.shard, node.log, snapshots, SnapshotRules(least_bytes=1, max_age_ms=3_600_000), clock
        )
        with node.failing_store():
            acknowledged = await fill(node)
            await snapshotter.take()
            newest = await snapshots.newest(SHARD_ID)
            assert newest is not None
            assert newest.applied_offset == node.shard.stored_offset < node.shard.next_offset
            assert (await node.log.bounds(SHARD_ID)).start == node.shard.stored_offset
            with pytest.raises(CoordinatorStoreError):  # nothing has become of it since
                await snapshotter.take()
        await node.kill()
        node.store = type(node.store)()
        await node.start()
        assert await keys_read(node) == ["stored", *acknowledged]
        await node.stop()

    run(main)


def test_metrics_and_a_line_of_the_log_now_and_then_say_what_is_the_matter() -> None:
    async def main() -> None:
        node = await started()
        assert not node.shard.held_back
        with capture_logs() as logs:
            with node.failing_store():
                await fill(node)
                before = metric(node, "refused_commands_total")
                assert before == 1
                for _ in range(100):
                    with pytest.raises(StoreBehindError):
                        await node.shard.commit_file(commit_of("refused", batch()))
                assert metric(node, "refused_commands_total") == 101
                said = [line for line in logs if "too far behind" in line["event"]]
                assert len(said) == 1
                assert said[0]["unstored_rows"] == node.shard.unflushed_rows
                await asyncio.sleep(SAY_AGAIN_S)
                with pytest.raises(StoreBehindError):
                    await node.shard.commit_file(commit_of("refused", batch()))
            await until(lambda: not node.shard.held_back)
        assert len([line for line in logs if "too far behind" in line["event"]]) == 2
        assert len([line for line in logs if "caught up" in line["event"]]) == 1
        await node.stop()

    run(main)
