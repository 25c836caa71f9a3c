"""Contract suite of the noun `segment_compaction`: what every engine has to pass.

Subclass `SegmentCompactionContract` in a test module and give it the fixture `engine`; needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

import pytest

from diskless_core.log import leader_epochs, producer_snapshot
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.plugin.segment_compaction import SegmentCompaction, SegmentCompactionError
from diskless_core.testing.compaction_job import (
    APPEND_TIME_MS,
    EXPIRATION_MS,
    TIME_MS,
    FakeCompactionJob,
    a_batch,
    partition_of,
)
from diskless_core.testing.compaction_log import assert_same_log
from diskless_core.testing.leaks import CYCLES, Held, tasks_left
from diskless_core.testing.loop_stalls import assert_loop_goes_on
from diskless_core.testing.patience import within

PARTITIONS = 3
OBJECTS = 6


def filled_job(job: FakeCompactionJob) -> FakeCompactionJob:
    """Some partitions in some objects, three segments each."""
    ranges = [
        job.put(f"wal/{number}", {index: [a_batch(b"%d-%d" % (number, index) * 9)] * 2 for index in range(PARTITIONS)})
        for number in range(OBJECTS)
    ]
    for index in range(PARTITIONS):
        for first in range(0, OBJECTS, 2):
            job.plan(index, *(some[index] for some in ranges[first : first + 2]))
    return job


def check_segments(job: FakeCompactionJob) -> None:
    """Everything that was finished is as it should be."""
    assert not job.broken_promises, f"{job.broken_promises[0]}: that was not so"
    for (index, start_offset), metadata in job.finished.items():
        stored = job.stored(metadata)
        assert stored is not None, "a segment that is finished is in remote storage"
        assert_same_log(stored.log, job.expected[index, start_offset])
        built = job.indexed(index, start_offset).finish()
        offsets, times = stored.indexes[IndexType.OFFSET], stored.indexes[IndexType.TIMESTAMP]
        assert offsets == built.offset_index, "the offset index matches the log"
        assert times == built.time_index, "the time index matches the log"
        epochs = leader_epochs.decode(stored.indexes[IndexType.LEADER_EPOCH])
        assert epochs == {0: 0}, "the leader epochs are those of the topic: one that begins at offset 0"
        assert IndexType.TRANSACTION not in stored.indexes, "there is no transaction index without transactions"
        assert IndexType.PRODUCER_SNAPSHOT in stored.indexes, "there is a producer snapshot"


def check_all_finished(job: FakeCompactionJob) -> None:
    """Every segment of the plan is finished, and as it should be."""
    check_segments(job)
    missing, added = (
        sorted(job.expected.keys() - job.finished.keys()),
        sorted(job.finished.keys() - job.expected.keys()),
    )
    assert not missing, f"every segment of the plan is finished: these are not (partition, start offset): {missing}"
    assert not added, f"only segments of the plan are finished: these are not of it (partition, start offset): {added}"


async def failure_of(engine: SegmentCompaction, job: FakeCompactionJob) -> str:
    """Run a job some of whose partitions cannot be done; what the engine says of them."""
    try:
        async with within("a job that fails ends"):
            await engine.compact(job)
    except SegmentCompactionError as error:
        return str(error)
    except Exception as error:
        raise AssertionError(f"a SegmentCompactionError is raised, and not {error!r}") from error
    raise AssertionError("a job is not reported as done of which some partition was not: nothing was raised")


class SegmentCompactionContract:
    """An engine passes if a subclass with `engine` overridden does.

    Attributes:
        keeps_parallel_partitions: whether it keeps to the job's `parallel_partitions`. One that works elsewhere has
            other bounds; then the test is skipped.
    """

    keeps_parallel_partitions: ClassVar[bool] = False

    @pytest.fixture
    def engine(self) -> SegmentCompaction:
        """The engine, as its factory makes it."""
        raise NotImplementedError("give this fixture in the subclass")

    @pytest.fixture
    def new_job(self) -> Callable[[], FakeCompactionJob]:
        """Makes what the engine is given: a `FolderCompactionJob` where it works in other processes."""
        return FakeCompactionJob

    @pytest.fixture
    def job(self, new_job: Callable[[], FakeCompactionJob]) -> FakeCompactionJob:
        return new_job()

    @pytest.mark.asyncio
    async def test_a_job_without_partitions_is_done(self, engine: SegmentCompaction, job: FakeCompactionJob) -> None:
        await engine.compact(job)
        assert job.steps == []

    @pytest.mark.asyncio
    async def test_every_segment_is_made_exactly(self, engine: SegmentCompaction, job: FakeCompactionJob) -> None:
        await engine.compact(filled_job(job))
        check_all_finished(job)

    @pytest.mark.asyncio
    async def test_batches_of_several_in_one_object_and_gaps_between_them_keep_their_offsets(
        self, engine: SegmentCompaction, job: FakeCompactionJob
    ) -> None:
        """What lies before, between and behind the batches of the plan in an object is not of it."""
        first, gone, third, later = (
            job.put(f"wal/{number}", {0: [a_batch(b"a" * 90, b"b"), a_batch(b"c")], 1: [a_batch(b"other")]})[0]
            for number in range(4)
        )
        job.plan(0, first, third)
        await engine.compact(job)
        assert gone.last_offset < later.base_offset
        check_all_finished(job)

    @pytest.mark.asyncio
    async def test_a_segment_of_many_objects_has_no_seams(
        self, engine: SegmentCompaction, job: FakeCompactionJob
    ) -> None:
        runs = [job.put(f"wal/{number}", {0: [a_batch(b"%d" % number * 40)] * 3})[0] for number in range(40)]
        job.plan(0, *runs[:39])
        job.plan(0, runs[39])
        await engine.compact(job)
        check_all_finished(job)

    @pytest.mark.asyncio
    async def test_large_batches_come_whole(self, engine: SegmentCompaction, job: FakeCompactionJob) -> None:
        runs = [job.put(f"wal/{number}", {0: [a_batch(b"x" * 1_500_000)]})[0] for number in range(2)]
        job.plan(0, *runs)
        await engine.compact(job)
        check_all_finished(job)

    @pytest.mark.asyncio
    async def test_a_copy_that_is_begun_anew_has_the_same_log_and_indexes(
        self, engine: SegmentCompaction, job: FakeCompactionJob
    ) -> None:
        """The storage asks for the log again from its start. What had been copied is no progress any more."""
        filled_job(job).begin_next_copy_anew()
        await engine.compact(job)
        check_all_finished(job)
        assert job.progress_bytes == sum(len(log) for log in job.expected.values()), "progress comes to what was copied"

    @pytest.mark.asyncio
    @pytest.mark.parametrize("step", ["segments", "producers_before", "begin"])
    async def test_a_partition_that_the_job_has_no_answer_for_ends_alone(
        self, engine: SegmentCompaction, job: FakeCompactionJob, step: str
    ) -> None:
        filled_job(job).failing = {(step, 1)}
        assert "no answer" in await failure_of(engine, job), "the error says why"
        assert job.finished.keys() == {key for key in job.expected if key[0] != 1}, "the other partitions go on"
        check_segments(job)

    @pytest.mark.asyncio
    async def test_no_more_partitions_are_worked_on_at_once_than_the_job_allows(
        self, engine: SegmentCompaction, job: FakeCompactionJob
    ) -> None:
        if not self.keeps_parallel_partitions:
            pytest.skip("it does not say that it keeps to parallel_partitions")
        await engine.compact(filled_job(job))
        assert job.most_at_once <= job.parallel_partitions

    @pytest.mark.asyncio
    async def test_the_event_loop_is_not_blocked(
        self, engine: SegmentCompaction, new_job: Callable[[], FakeCompactionJob]
    ) -> None:
        await assert_loop_goes_on("compact", lambda: engine.compact(filled_job(new_job())))

    @pytest.mark.asyncio
    async def test_a_job_knows_nothing_of_the_one_before(
        self, engine: SegmentCompaction, new_job: Callable[[], FakeCompactionJob]
    ) -> None:
        for number in range(2):
            job, batch = new_job(), a_batch(b"of job %d" % number, producer=(number, 0))
            job.plan(0, job.put("wal/0", {0: [batch]})[0])
            await engine.compact(job)
            check_all_finished(job)
            assert self.snapshot(job, 0).keys() == {number}, "a snapshot has the producers of its own job"

    @pytest.mark.asyncio
    async def test_a_job_that_has_ended_leaves_no_task_and_no_thread(
        self, engine: SegmentCompaction, new_job: Callable[[], FakeCompactionJob]
    ) -> None:
        await engine.compact(filled_job(new_job()))
        held, tasks = Held(), asyncio.all_tasks()
        for _ in range(CYCLES):
            await engine.compact(filled_job(new_job()))
        left = await tasks_left(tasks)
        assert not left, f"a job that has ended leaves no task: these go on: {left}"
        held.assert_no_more("a job that has ended leaves no thread")

    @pytest.mark.asyncio
    async def test_the_segments_of_a_partition_are_finished_in_order(
        self, engine: SegmentCompaction, job: FakeCompactionJob
    ) -> None:
        await engine.compact(filled_job(job))
        for index in range(PARTITIONS):
            finished = [start for step, partition, start in job.steps if (step, partition) == ("finish", index)]
            assert finished == sorted(finished)
            assert len(finished) == OBJECTS // 2

    @pytest.mark.asyncio
    async def test_the_time_of_the_commit_goes_into_batches_of_such_topics(
        self, engine: SegmentCompaction, job: FakeCompactionJob
    ) -> None:
        job.plan(0, job.put("wal/0", {0: [a_batch(b"a", b"b"), a_batch(b"c")]}, timestamp_type=1)[0])
        await engine.compact(job)
        check_segments(job)
        assert job.finished[0, 0].max_timestamp_ms == APPEND_TIME_MS

    @pytest.mark.asyncio
    async def test_a_segment_can_begin_before_its_first_batch(
        self, engine: SegmentCompaction, job: FakeCompactionJob
    ) -> None:
        job.put("wal/0", {0: [a_batch(b"gone")]})
        job.plan(0, job.put("wal/1", {0: [a_batch(b"a")]})[0], start_offset=0)
        await engine.compact(job)
        assert list(job.finished) == [(0, 0)]
        check_segments(job)

    @pytest.mark.asyncio
    async def test_snapshots_have_the_producers_up_to_the_end_of_their_segment(
        self, engine: SegmentCompaction, job: FakeCompactionJob
    ) -> None:
        later = TIME_MS + EXPIRATION_MS // 2
        too_late = later + EXPIRATION_MS
        sent = [
            a_batch(b"a", b"b", producer=(5, 0)),
            a_batch(b"c", producer=(6, 0), timestamp_ms=later),
            a_batch(b"d", producer=(5, 2), timestamp_ms=later),
            a_batch(b"e", timestamp_ms=too_late - 1),
            a_batch(b"f", timestamp_ms=too_late),
        ]
        for number, batch in enumerate(sent):
            job.plan(0, job.put(f"wal/{number}", {0: [batch]})[0])
        job.producers = dict(job.indexed(0, 0).producers)
        job.producers[9] = job.producers[5]._replace(producer_id=9, last_offset=-1)
        await engine.compact(job)
        known = [
            {key: (entry.last_sequence, entry.last_offset) for key, entry in self.snapshot(job, start).items()}
            for start in (0, 2, 3, 4, 5)
        ]
        assert known[0] == {5: (1, 1), 9: (1, -1)}
        assert known[2] == {5: (2, 3), 6: (0, 2), 9: (1, -1)}
        assert known[3] == {5: (2, 3), 6: (0, 2)}
        assert known[4] == {}

    @staticmethod
    def snapshot(job: FakeCompactionJob, start_offset: int) -> producer_snapshot.ProducerState:
        """The producers in the snapshot of a segment of the first partition."""
        stored = job.stored(job.finished[0, start_offset])
        assert stored is not None
        return producer_snapshot.decode(stored.indexes[IndexType.PRODUCER_SNAPSHOT])

    @pytest.mark.asyncio
    async def test_progress_comes_to_the_bytes_that_were_copied(
        self, engine: SegmentCompaction, job: FakeCompactionJob
    ) -> None:
        await engine.compact(filled_job(job))
        told, copied = job.progress_bytes, sum(len(log) for log in job.expected.values())
        assert told == copied, f"progress comes to what was copied: {copied} bytes and not {told}"

    @pytest.mark.asyncio
    async def test_objects_are_read_and_left_alone(self, engine: SegmentCompaction, job: FakeCompactionJob) -> None:
        before = dict(filled_job(job).stored_objects)
        await engine.compact(job)
        assert dict(job.stored_objects) == before

    @pytest.mark.asyncio
    async def test_a_partition_that_another_job_was_quicker_with_is_left_and_the_others_go_on(
        self, engine: SegmentCompaction, job: FakeCompactionJob
    ) -> None:
        starts = sorted(start for index, start in filled_job(job).expected if index == 1)
        job.lost = {(1, starts[1])}
        await engine.compact(job)
        assert job.finished.keys() == {key for key in job.expected if key[0] != 1} | {(1, starts[0])}
        assert ("abandon", 1, starts[1]) not in job.steps, "whoever says so has removed it"
        check_segments(job)

    @pytest.mark.asyncio
    async def test_a_copy_whose_outcome_is_not_known_is_left_for_the_next_job(
        self, engine: SegmentCompaction, job: FakeCompactionJob
    ) -> None:
        starts = sorted(start for index, start in filled_job(job).expected if index == 1)
        job.unknown = {(1, starts[0])}
        await failure_of(engine, job)
        assert ("abandon", 1, starts[0]) not in job.steps, "the coordinator may have taken it"
        assert job.finished.keys() == {key for key in job.expected if key[0] != 1}
        check_segments(job)

    @pytest.mark.asyncio
    @pytest.mark.parametrize("damage", ["checksum", "missing object", "short object", "wrong offsets"])
    async def test_damaged_batches_make_no_segment_and_the_other_partitions_go_on(
        self, engine: SegmentCompaction, job: FakeCompactionJob, damage: str
    ) -> None:
        ranges = [job.put(f"wal/{index}", {index: [a_batch(b"x" * 20), a_batch(b"y")]})[index] for index in range(2)]
        job.plan(0, ranges[0]._replace(last_offset=5) if damage == "wrong offsets" else ranges[0])
        job.plan(1, ranges[1])
        whole = job.stored_objects
        if damage == "checksum":
            data = bytearray(whole["wal/0"])
            data[ranges[0].byte_offset + ranges[0].byte_size - 1] ^= 1
            whole["wal/0"] = bytes(data)
        elif damage == "missing object":
            del whole["wal/0"]
        elif damage == "short object":
            whole["wal/0"] = whole["wal/0"][: ranges[0].byte_offset + 40]
        told = await failure_of(engine, job)
        assert partition_of(0).name in told, f"the error says which partition was not done, and not {told!r}"
        assert list(job.finished) == [(1, 0)]
        assert ("abandon", 0, 0) in job.steps
        check_segments(job)

    @pytest.mark.asyncio
    async def test_a_storage_that_refuses_a_copy_ends_that_partition(
        self, engine: SegmentCompaction, job: FakeCompactionJob
    ) -> None:
        filled_job(job).refuse_next_copy()
        assert "AccessDenied" in await failure_of(engine, job), "the error says why"
        assert len({index for index, _ in job.expected.keys() - job.finished.keys()}) == 1
        begun, abandoned = (
            [(index, start) for step, index, start in job.steps if step == name] for name in ("begin", "abandon")
        )
        assert sorted(abandoned) == sorted(set(begun) - job.finished.keys()), "what was begun is finished or abandoned"
        check_segments(job)

    @pytest.mark.asyncio
    async def test_a_cancelled_job_ends_and_the_next_one_is_not_spoiled(
        self, engine: SegmentCompaction, new_job: Callable[[], FakeCompactionJob]
    ) -> None:
        cancelled, tasks = filled_job(new_job()), asyncio.all_tasks()
        task = asyncio.create_task(engine.compact(cancelled))
        async with cancelled.while_copying(task):
            task.cancel()
            async with within("a cancelled job ends"):
                await asyncio.wait([task])
            assert task.cancelled(), "a cancelled job raises what it was cancelled with"
            steps = list(cancelled.steps)
        left = await tasks_left(tasks)
        assert not left, f"a cancelled job does not go on: these tasks do: {left}"
        assert cancelled.finished == {}, "a cancelled job does not go on: its copies were held"
        assert cancelled.steps == steps, "a cancelled job does not go on"
        job = filled_job(new_job())
        async with within("the job after a cancelled one ends"):
            await engine.compact(job)
        check_all_finished(job)

    @pytest.mark.asyncio
    async def test_several_jobs_can_run_at_once(
        self, engine: SegmentCompaction, new_job: Callable[[], FakeCompactionJob]
    ) -> None:
        jobs = [filled_job(new_job()) for _ in range(3)]
        await asyncio.gather(*map(engine.compact, jobs))
        for job in jobs:
            check_all_finished(job)
