"""Long commands are judged, and long entries replayed, in slices: others run meanwhile, and see all or nothing."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest

from diskless_core.cluster import operations as cluster_operations
from diskless_core.cluster import state_machine as cluster_state_machine
from diskless_core.cluster.operations import NewTopic
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.tables import LOADS, PLACEMENTS, TOPICS
from diskless_core.coordinator import entries, shard, shard_store, slices
from diskless_core.coordinator.errors import CoordinatorError, CoordinatorLoadingError, NotCoordinatorError
from diskless_core.coordinator.shard import ShardServices
from diskless_core.diskless import shard as diskless_shard
from diskless_core.diskless.commands import MAX_COMMIT_BATCHES, CommitFile
from diskless_core.protocol.errors import ErrorCode
from diskless_core.shards import CLUSTER
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.shards import SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

PARTITIONS = 300
SLICE_UNITS = 32
SLICES = PARTITIONS // SLICE_UNITS
"""That judging or replaying `large` takes at least, after the first."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_UNITS", SLICE_UNITS)
    monkeypatch.setattr(shard, "SLICE_LOG_BYTES", 1 << 10)
    monkeypatch.setattr(diskless_shard, "PARTITIONS_IN_ONE_ENTRY", 50)


def large(key: str = "large", *, sequence: int = 0) -> CommitFile:
    return commit_of(key, *(batch(partition, producer=(7, 0, sequence)) for partition in range(PARTITIONS)))


async def started(shared: SharedLog | None = None) -> ShardNode:
    node = ShardNode(shared or SharedLog(), VirtualClock(asyncio.get_running_loop()))
    await node.start()
    await node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", range(PARTITIONS))
    return node


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not become so")


async def passes_during(work: Awaitable[object]) -> int:
    """How often the event loop comes round while `work` is done."""
    passes, over = 0, False

    async def count() -> None:
        nonlocal passes
        while not over:
            passes += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await work
    over = True
    await counting
    return passes


async def being_judged(node: ShardNode, request: CommitFile) -> asyncio.Task[object]:
    """A commit of which some slices are over, and not the last one."""
    task: asyncio.Task[object] = asyncio.create_task(node.shard.commit_file(request))
    await until(lambda: node.shard._judging.locked())
    return task


def test_a_large_commit_is_judged_in_slices_and_a_small_one_at_once() -> None:
    async def main() -> None:
        node = await started()
        small = await passes_during(node.shard.commit_file(commit_of("small", batch())))
        of_large = await passes_during(node.shard.commit_file(large()))
        assert of_large >= small + 2 * SLICES
        await node.stop()

    run(main)


def test_commands_that_come_while_one_is_judged_are_judged_after_it_in_their_order() -> None:
    async def main() -> None:
        node = await started()
        judging = await being_judged(node, large())
        others = [asyncio.create_task(node.shard.commit_file(commit_of(f"{n}", batch(n % 2)))) for n in range(4)]
        await asyncio.sleep(0)
        assert node.shard.pending_commands == 0
        await judging
        found = [await other for other in others]
        assert [[result.base_offset for result in results] for results in found] == [[1], [1], [2], [2]]
        await node.stop()

    run(main)


def test_nobody_sees_what_is_half_judged() -> None:
    async def main() -> None:
        node = await started()
        judging = await being_judged(node, large())
        seen = set()
        while not judging.done():
            seen.add(frozenset(head.next_offset for head in node.shard.heads().values()))
            await asyncio.sleep(0)
        assert seen == {frozenset({0}), frozenset({1})}
        await node.stop()

    run(main)


def test_a_commit_whose_term_ends_while_it_is_judged_did_not_happen() -> None:
    async def main() -> None:
        node = await started()
        judging = await being_judged(node, large())
        end = (await node.log.bounds(SHARD_ID)).end
        node.shard._leader.step_down("for the test")
        with pytest.raises((NotCoordinatorError, CoordinatorLoadingError)):
            await judging
        assert {head.next_offset for head in node.shard.heads().values()} == {0}
        await node.shard.until_leading()
        assert (await node.log.bounds(SHARD_ID)).end == end + 1, "a claim, and nothing else"
        results = await node.commit(large())
        assert {(result.error, result.base_offset, result.is_duplicate) for result in results} == {
            (ErrorCode.NONE, 0, False)
        }
        await node.stop()

    run(main)


def test_a_commit_that_another_term_overtakes_while_it_is_judged_did_not_happen() -> None:
    async def main() -> None:
        node = await started()
        judging = await being_judged(node, large())
        end = (await node.log.bounds(SHARD_ID)).end
        node.shard._leader.step_down("for the test")
        node.shard._leader.leadership.term = end  # as if the next claim had been read between two slices
        with pytest.raises(NotCoordinatorError, match="is over"):
            await judging
        node.shard._leader.step_down("for the test")
        assert (await node.log.bounds(SHARD_ID)).end == end
        await node.stop()

    run(main)


def test_a_commit_that_is_given_up_while_it_is_judged_did_not_happen_and_holds_up_nobody() -> None:
    async def main() -> None:
        node = await started()
        judging = await being_judged(node, large())
        judging.cancel()
        await asyncio.gather(judging, return_exceptions=True)
        [result] = await node.shard.commit_file(commit_of("next", batch()))
        assert result.base_offset == 0
        await node.stop()

    run(main)


def test_a_commit_that_had_to_wait_knows_what_left_memory_meanwhile() -> None:
    async def main() -> None:
        node = await started()
        store_asked = asyncio.Event()
        prefetch = node.shard._replica.flusher.prefetch

        async def noted(*arguments: object) -> object:
            found = await prefetch(*arguments)  # type: ignore[arg-type]
            store_asked.set()
            return found

        node.shard._replica.flusher.prefetch = noted  # type: ignore[method-assign,assignment]
        first = await being_judged(node, large())
        request = commit_of("same", batch())
        store_asked.clear()
        once = asyncio.create_task(node.shard.commit_file(request))
        await store_asked.wait()
        second = asyncio.create_task(node.shard.commit_file(large("another", sequence=1)))
        store_asked.clear()
        await store_asked.wait()
        again = asyncio.create_task(node.shard.commit_file(request))  # judged after `second`, asked the store before
        store_asked.clear()
        await store_asked.wait()
        await once
        assert not second.done()
        await node.shard.flush()  # the object's row is in the store only now
        assert not again.done()
        await asyncio.gather(first, second)
        assert await again == await once
        assert (await once)[0].error is ErrorCode.NONE
        await node.stop()

    run(main)


def test_a_replica_replays_a_large_entry_in_slices_and_applies_it_at_once() -> None:
    async def main() -> None:
        shared = SharedLog()
        node = await started(shared)
        follower = ShardNode(shared, VirtualClock(asyncio.get_running_loop()), 2)
        await follower.start(lead=False)
        await until(lambda: follower.shard.next_offset == node.shard.next_offset)
        shared.pause_reads(2)
        await node.shard.commit_file(large())
        end = node.shard.next_offset
        seen = set[frozenset[int]]()

        async def follow() -> None:
            shared.resume_reads(2)
            while follower.shard.next_offset < end:
                seen.add(frozenset(head.next_offset for head in follower.shard.heads().values()))
                await asyncio.sleep(0)
            seen.add(frozenset(head.next_offset for head in follower.shard.heads().values()))

        assert await passes_during(follow()) > SLICES
        assert seen == {frozenset({0}), frozenset({1})}
        assert follower.tables() == node.tables()
        await follower.stop()
        await node.stop()

    run(main)


def test_a_topic_of_many_partitions_is_deleted_in_slices_and_at_once() -> None:
    async def main() -> None:
        node = await started()
        seen = set[int]()

        async def delete() -> None:
            deleting = asyncio.create_task(node.shard.delete_topic(uuid.UUID(bytes=TOPIC)))
            while not deleting.done():
                seen.add(len(node.shard.heads()))
                await asyncio.sleep(0)
            assert await deleting is ErrorCode.NONE

        assert await passes_during(delete()) > SLICES
        assert seen <= {PARTITIONS, 0}
        assert node.shard.heads() == {}
        await node.stop()

    run(main)


def test_a_start_that_has_much_to_read_lets_others_run() -> None:
    async def main() -> None:
        node = await started()
        await asyncio.gather(*(node.commit(commit_of(f"{number}", batch(number))) for number in range(PARTITIONS)))
        content = sum(len(found.data) for found in node.shared.content(SHARD_ID))
        await node.kill()
        node.store = type(node.store)()
        passes = await passes_during(node.start())
        assert passes > content // (4 << 10)
        await node.stop()

    run(main)


def test_a_commit_of_more_batches_than_an_object_may_have_is_refused() -> None:
    async def main() -> None:
        node = await started()
        end = (await node.log.bounds(SHARD_ID)).end
        results = await node.shard.commit_file(commit_of("too many", *[batch()] * (MAX_COMMIT_BATCHES + 1)))
        assert {result.error for result in results} == {ErrorCode.INVALID_REQUEST}
        assert len(results) == MAX_COMMIT_BATCHES + 1
        assert (await node.log.bounds(SHARD_ID)).end == end
        results = await node.shard.commit_file(commit_of("just enough", *[batch()] * MAX_COMMIT_BATCHES))
        assert [result.base_offset for result in results] == list(range(MAX_COMMIT_BATCHES))
        await node.stop()

    run(main)


def test_many_partitions_are_created_by_several_entries_and_again_by_none() -> None:
    async def main() -> None:
        node = await started()
        sizes = [
            len(entry.records)
            for found in node.shared.content(SHARD_ID)
            if isinstance(entry := entries.decode(found.data), entries.Entry)
        ]
        assert len(sizes) == PARTITIONS // 50
        assert sum(sizes) == len(sizes)  # of one record each
        end = (await node.log.bounds(SHARD_ID)).end
        await node.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", range(PARTITIONS))
        assert (await node.log.bounds(SHARD_ID)).end == end
        await node.stop()

    run(main)


def test_a_creation_that_was_interrupted_is_completed_when_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        node = ShardNode(SharedLog(), VirtualClock(asyncio.get_running_loop()))
        await node.start()
        monkeypatch.setattr(shard_store, "MAX_UNSTORED_ROWS", 100)
        monkeypatch.setattr(shard_store, "PAGE_ROWS", 40)
        topic_id = uuid.UUID(bytes=TOPIC)
        with node.failing_store(), pytest.raises(CoordinatorError):
            await node.shard.create_partitions(topic_id, "t", range(PARTITIONS))
        assert 0 < len(node.shard.heads()) < PARTITIONS
        await node.shard.flush()
        for _ in range(PARTITIONS):
            try:
                await node.shard.create_partitions(topic_id, "t", range(PARTITIONS))
                break
            except CoordinatorError:
                await asyncio.sleep(1)
        assert {key.partition for key in node.shard.heads()} == set(range(PARTITIONS))
        await node.stop()

    run(main)


def test_a_topic_of_many_partitions_is_there_with_all_of_them_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cluster_operations, cluster_state_machine):
        monkeypatch.setattr(module, "PARTITIONS_IN_ONE_RECORD", 20)

    async def main() -> None:
        shared = SharedLog()
        shards = []
        for node_id in (1, 2):
            log = shared.node(node_id)
            await log.start()
            services = ShardServices(
                node_id=node_id,
                clock=VirtualClock(asyncio.get_running_loop()),
                log=log,
                store=MemoryCoordinatorStore(),
            )
            shards.append(ClusterShard(CLUSTER.shard(0), services))
            await shards[-1].start()
        leader, follower = shards
        await leader.until_leading()
        new = NewTopic(topic_id=b"t" * 16, name="t", partition_count=PARTITIONS, shard_count=2, configs={})
        seen = set[tuple[int, int]]()
        creating = asyncio.create_task(
            leader.submit_in_slices(lambda command: cluster_operations.create_topic(command, new))
        )

        async def follow() -> None:
            while not creating.done() or follower.next_offset < leader.next_offset:
                for one in shards:
                    topic = one.state.committed(TOPICS, (b"t" * 16,))
                    seen.add((topic.partition_count if topic else 0, sum(size for _, size in one.state.rows(LOADS))))
                await asyncio.sleep(0)

        assert await passes_during(follow()) > 2 * PARTITIONS // 20  # judged, replayed
        assert seen == {(0, 0), (PARTITIONS, PARTITIONS)}
        assert follower.state.committed(PLACEMENTS, (b"t" * 16,)) == (0, 1) * (PARTITIONS // 2)
        for one in shards:
            await one.stop()

    run(main)
