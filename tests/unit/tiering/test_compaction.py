"""Compactions of a real shard: what moves, what stays, and what is left when they are ended at any step."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.coordinator.errors import OutcomeUnknownError
from diskless_core.log import producer_snapshot
from diskless_core.log.producer_snapshot import ProducerEntry
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_core.plugin.remote_storage import IndexType, RemoteStorageError
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentState
from diskless_core.testing.fakes.objects import Operation
from diskless_core.tiering.report import JobState
from tests.support.compaction_world import RULES, CompactionWorld, Step
from tests.support.produce_path import ProducePath, batch_of, key_of
from tests.support.virtual_time import START_MS, run


def test_everything_goes_into_segments_that_consumers_can_read() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill()
            report = await world.compact()
            assert report.failures == []
            head = world.shard.head(key_of(0))
            assert head is not None
            assert head.local_start_offset == head.next_offset == 16
            assert len(world.tiered_ids()) == report.segments > 1
            await world.check()
            await world.check_clean()

    run(main)


def test_what_makes_no_full_segment_stays_in_wal_objects() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill()
            await world.compact(everything=False)
            head = world.shard.head(key_of(0))
            assert head is not None
            assert 0 < head.local_start_offset < head.next_offset
            await world.check()
            await world.fill(batches=3)
            await world.compact()
            await world.check()
            await world.check_clean()

    run(main)


class Killed:
    """Lets so many steps pass, then the job that takes one more ends there for good."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.reached = asyncio.Event()

    async def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.reached.set()
            await asyncio.Event().wait()


async def kill_after(world: CompactionWorld, steps: int, *, node_id: int = 1) -> bool:
    """Run a job that ends after so many steps. Whether it was killed: False when it came to its end before."""
    killed = Killed(steps)
    compactor = world.compactor(killed.step, node_id=node_id)
    job = asyncio.create_task(world.compact(compactor))
    reached = asyncio.create_task(killed.reached.wait())
    await asyncio.wait([job, reached], return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    await compactor.stop()
    await asyncio.gather(job, reached, return_exceptions=True)
    return killed.reached.is_set()


def test_after_a_job_was_killed_at_any_step_the_next_one_leaves_nothing_behind() -> None:
    async def main(steps: int) -> bool:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill(batches=6)
            was_killed = await kill_after(world, steps)
            await world.check()
            complete = complete_copies(world)
            report = await world.compact()
            assert report.failures == []
            assert complete <= set(world.tiered_ids()), "what is complete is not copied again"
            await world.check()
            await world.check_clean()
            return was_killed

    steps = 0
    while run(lambda steps=steps: main(steps)):
        steps += 1
    assert steps > 20


def complete_copies(world: CompactionWorld) -> set[RemoteLogSegmentId]:
    """Those that the coordinator has not taken yet, and those that it has."""
    known = world.metadata.ledger.log(world.partition()).segments()
    return {one.segment_id for one in known if one.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED}


def test_a_job_that_was_killed_twice_is_made_good_by_the_third() -> None:
    async def main(first: int, second: int) -> bool:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill(batches=4)
            was_killed = await kill_after(world, first)
            await kill_after(world, second)
            await world.compact()
            await world.check()
            await world.check_clean()
            return was_killed

    first = 0
    while run(lambda first=first: main(first, (first * 7) % 11)):
        first += 1


def test_records_that_are_deleted_after_a_kill_are_not_served_and_their_copies_go() -> None:
    async def main(steps: int) -> bool:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill(batches=6)
            was_killed = await kill_after(world, steps)
            await world.delete_records(5)
            await world.check()
            await world.compact()
            await world.check()
            await world.check_clean()
            return was_killed

    steps = 0
    while run(lambda steps=steps: main(steps)):
        steps += 1


def test_an_error_at_any_step_is_retried() -> None:
    class Failing:
        def __init__(self, at: int) -> None:
            self.left = at

        async def step(self) -> None:
            self.left -= 1
            if self.left == -1:
                raise NextError.error

    class NextError:
        error: Exception

    async def main(steps: int) -> bool:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill(batches=4)
            failing = Failing(steps)
            report = await world.compact(world.compactor(failing.step))
            assert report.failures == []
            await world.check()
            await world.check_clean()
            return failing.left < 0

    for error in (OutcomeUnknownError("lost"), RemoteStorageError("503"), RemoteLogMetadataError("503")):
        NextError.error = error
        steps = 0
        while run(lambda steps=steps: main(steps)):
            steps += 1


class Turns:
    """Actors that take steps one at a time, in an order that is given."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = defaultdict(deque)

    def step_of(self, actor: str) -> Step:
        async def step() -> None:
            turn = asyncio.get_running_loop().create_future()
            self._waiting[actor].append(turn)
            await turn

        return step

    async def play(self, order: Sequence[str], actors: Mapping[str, asyncio.Task[object]]) -> None:
        """Let those who are named take a step each, then all in turn."""
        for actor in order:
            await self._go_on(actor)
        while not all(task.done() for task in actors.values()):
            for actor in actors:
                await self._go_on(actor)
        for task in actors.values():
            task.result()

    async def _go_on(self, actor: str) -> None:
        await asyncio.sleep(60)  # until all that can go on waits for its turn
        waiting = self._waiting[actor]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


ACTORS = ("a", "b", "others")


@settings(deadline=None, max_examples=60)
@given(
    order=st.lists(st.sampled_from(ACTORS), max_size=70),
    actions=st.lists(st.sampled_from(["produce", "delete 3", "delete 9", "retire"]), max_size=3),
    nodes=st.sampled_from([(1, 2), (1, 1)]),
)
def test_two_jobs_at_once_beside_others_lose_and_leave_nothing(
    order: list[str], actions: list[str], nodes: tuple[int, int]
) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill(batches=5)
            turns = Turns()
            actors: dict[str, asyncio.Task[object]] = {
                name: asyncio.create_task(world.compact(world.compactor(turns.step_of(name), node_id=node_id)))
                for name, node_id in zip("ab", nodes, strict=True)
            }
            actors["others"] = asyncio.create_task(act(world, turns.step_of("others"), actions))
            await turns.play(order, actors)
            await world.check()
            await world.check_clean()
            await world.compact()
            await world.check()
            await world.check_clean()

    run(main)


async def act(world: CompactionWorld, step: Step, actions: Sequence[str]) -> None:
    for action in actions:
        await step()
        if action == "produce":
            await world.fill(batches=2)
        elif action == "retire":
            await world.delete_records(-1)
        else:
            await world.delete_records(int(action.split()[1]))
        await world.check()


def test_a_topic_that_is_deleted_at_any_step_leaves_no_bytes() -> None:
    async def main(steps: int) -> bool:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill(batches=4)
            turns = Turns()
            step = turns.step_of("a")
            taken = 0

            async def counted() -> None:
                nonlocal taken
                taken += 1
                if taken > steps:
                    await step()

            job = asyncio.create_task(world.compact(world.compactor(counted)))
            await asyncio.sleep(60)
            was_under_way = not job.done()
            await world.delete_topic()
            await turns.play([], {"a": job})
            await world.remove_all()
            assert world.remote.segments == {}
            assert list(world.metadata.ledger.log(world.partition()).segments()) == []
            return was_under_way

    steps = 0
    while run(lambda steps=steps: main(steps)):
        steps += 1
    assert steps > 10


def test_a_damaged_object_ends_its_partition_and_no_other() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill(0, batches=2)
            key = next(iter(path.objects.objects))
            data = bytearray(path.objects.objects[key])
            data[60] ^= 1
            path.objects.objects[key] = bytes(data)
            await world.fill(1, batches=4)
            report = await world.compact()
            assert report.state is JobState.FAILED
            [failure] = report.failures
            assert "t-0" in failure
            assert "checksum" in failure
            assert world.tiered_ids(0) == []
            assert len(world.tiered_ids(1)) > 1
            await world.check(1)
            await world.check_clean(0)
            await world.check_clean(1)

    run(main)


def test_partitions_of_one_object_are_read_together() -> None:
    async def main() -> None:
        async with ProducePath(linger_ms=100) as path:
            world = CompactionWorld(path)
            for _ in range(6):
                answers = [path.produce((partition, batch_of(b"x" * 30))) for partition in range(4)]
                await asyncio.gather(*answers)
            assert len(path.objects.objects) == 6
            before = path.objects.calls[Operation.GET]
            report = await world.compact(world.compactor(parallel_partitions=4))
            assert report.segments == 8
            assert path.objects.calls[Operation.GET] - before <= 8

    run(main)


def test_the_worker_finds_full_segments_and_asks_the_store_for_nothing_else() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            compactor = world.compactor()
            await world.fill(batches=1)
            report = await compactor.compact_due()
            assert report is not None
            assert report.segments == 0
            assert await compactor.compact_due() is None, "nothing new, nothing due"
            await world.fill(batches=8)
            report = await compactor.compact_due()
            assert report is not None
            assert report.segments > 1
            await world.check()
            world.is_tiered = False
            await world.fill(batches=8)
            assert await compactor.compact_due() is None

    run(main)


def test_an_old_rest_is_compacted_when_its_time_has_come() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path, replace(RULES, segment_ms=3_600_000))
            compactor = world.compactor()
            await world.fill(batches=1)
            await compactor.compact_due()
            await asyncio.sleep(3_590)
            assert await compactor.compact_due() is None
            await asyncio.sleep(20)
            report = await compactor.compact_due()
            assert report is not None
            assert report.segments == 1
            await world.check()

    run(main)


def test_producers_are_carried_from_segment_to_segment_and_forgotten_when_they_are_silent() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            producer = {"producer_epoch": 0, "base_sequence": 0}
            await world.produce(0, b"first" * 30, producer_id=7, **producer)
            await world.produce(0, b"first" * 30, producer_id=8, **producer)
            await world.compact()
            later = START_MS + 59_000
            await world.produce(0, b"x" * 300, producer_id=8, producer_epoch=0, base_sequence=1, timestamp_ms=later)
            await world.compact()
            assert sorted(snapshot(world)) == [7, 8]
            await world.produce(0, b"x" * 300, timestamp_ms=later + 2_000)
            await world.compact()
            assert sorted(snapshot(world)) == [8]
            [entry] = snapshot(world).values()
            assert (entry.last_sequence, entry.last_offset) == (1, 2)

    run(main)


def snapshot(world: CompactionWorld) -> dict[int, ProducerEntry]:
    last = world.remote.segments[world.tiered_ids()[-1]]
    return producer_snapshot.decode(last.indexes[IndexType.PRODUCER_SNAPSHOT])
