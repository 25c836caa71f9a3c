"""Compactions whose engine runs elsewhere: the broker gives the job to a driver, over its HTTP interface."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from diskless_core.admin.driver_models import BeginStep, Step, StepsBody
from diskless_core.cli.admin_client import AdminClientError
from diskless_core.log import producer_snapshot
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.errors import PluginError
from diskless_core.plugin.remote_storage import IndexType, RemoteStorageError
from diskless_core.plugin.segment_compaction import (
    CompactionJob,
    SegmentCompaction,
    SegmentCompactionError,
    SegmentPlan,
)
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage
from diskless_core.tiering import external_job
from diskless_core.tiering.compaction import (
    REPORTS,
    CompactionRequest,
    Compactor,
    UnknownJobError,
    UnknownTopicError,
)
from diskless_core.tiering.external_job import ExternalJob, JobNotRunningError, UnknownStepError
from diskless_core.tiering.report import JobState
from tests.support.compaction_world import SESSION_TIMEOUT_MS, CompactionWorld
from tests.support.external_jobs import InProcessClient, WorldBackends, drive, driver_of, ended
from tests.support.produce_path import ProducePath
from tests.support.virtual_time import run

EVERYTHING = CompactionRequest(everything=True)


class RecordingClient(InProcessClient):
    """Keeps the steps of each request, in order."""

    def __init__(self, compactor: Compactor) -> None:
        super().__init__(compactor)
        self.batches: list[list[Step]] = []

    @property
    def begun(self) -> int:
        """Copies that were asked for."""
        return sum(isinstance(step, BeginStep) for batch in self.batches for step in batch)

    async def _ask(
        self, threads: Any, stop: Any, timeout_s: Any, method: str, path: str, answer: Any, body: Any
    ) -> Any:
        if isinstance(body, StepsBody):
            self.batches.append(body.steps)
        return await super()._ask(threads, stop, timeout_s, method, path, answer, body)


class Stuck(SegmentCompaction):
    """Begins the first segment, and then nothing more. It takes its time to end."""

    def __init__(self, end_s: float = 0.0) -> None:
        self._end_s = end_s
        self.has_begun = asyncio.Event()
        self.was_cancelled = False

    async def compact(self, job: CompactionJob) -> None:
        async with aclosing(job.segments(job.partitions[0])) as segments:
            await job.begin(await anext(segments))
        self.has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(self._end_s)
            self.was_cancelled = True


def on_a_world(test: Any) -> Any:
    """Run a test on virtual time, in a world with some batches in two partitions."""

    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill(0)
            await world.fill(1)
            await test(world)
            for partition in range(2):
                await world.check(partition)

    def on_virtual_time() -> None:
        run(main)

    on_virtual_time.__name__, on_virtual_time.__doc__ = test.__name__, test.__doc__
    return on_virtual_time


async def begun(compactor: Compactor, driver: str = "driver") -> ExternalJob:
    """A job that runs."""
    report = compactor.begin_external(EVERYTHING, "elsewhere", driver)
    while report.state is JobState.WAITING:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return compactor.external(report.id)


async def first_of(job: ExternalJob, index: int = 0) -> SegmentPlan:
    return (await job.segments(index, 0)).segments[0]


async def assert_clean(world: CompactionWorld) -> None:
    for partition in range(2):
        await world.check_clean(partition)


@on_a_world
async def test_an_engine_elsewhere_makes_the_same_segments(world: CompactionWorld) -> None:
    compactor = world.compactor(parallel_partitions=2)
    report = await drive(compactor, WorldBackends(world))
    assert (report.state, report.failures, report.engine) == (JobState.FINISHED, [], "elsewhere")
    made = len(world.tiered_ids(0)) + len(world.tiered_ids(1))
    assert report.segments == made > 3
    assert report.bytes_copied == report.bytes_planned == report.of("t").size_bytes
    assert report.bytes_expected == 0
    await assert_clean(world)


@on_a_world
async def test_a_step_whose_answer_was_lost_is_done_once(world: CompactionWorld) -> None:
    compactor = world.compactor(parallel_partitions=2)
    client = RecordingClient(compactor)
    client.loses_answers = True
    report = await drive(compactor, WorldBackends(world), client)
    assert (report.state, report.failures) == (JobState.FINISHED, [])
    made = len(world.tiered_ids(0)) + len(world.tiered_ids(1))
    assert (report.segments, report.of("t").segments_lost) == (made, 0)
    assert client.begun == made
    assert max(map(len, client.batches)) == 2, "steps of two partitions do not go together"
    known = [len(world.metadata.ledger.log(world.partition(index)).segments()) for index in range(2)]
    assert sum(known) == made
    await assert_clean(world)


@on_a_world
async def test_producers_go_on_where_the_segments_before_ended(world: CompactionWorld) -> None:
    await world.produce(0, b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    compactor = world.compactor()
    await drive(compactor, WorldBackends(world))
    made = len(world.tiered_ids(0))
    await world.fill(0, 2)
    await drive(compactor, WorldBackends(world))
    next_id = world.tiered_ids(0)[made]
    snapshot = world.remote.segments[next_id].indexes[IndexType.PRODUCER_SNAPSHOT]
    assert [*producer_snapshot.decode(bytes(snapshot))] == [7]


@on_a_world
async def test_producers_that_cannot_be_read_end_their_partition(world: CompactionWorld) -> None:
    await world.compact()
    await world.fill(0)
    await world.fill(1, 2)
    before, first = world.tiered_ids(0), world.partition(0)
    healthy = world.remote.fetch_index

    async def broken(metadata: Any, index: Any) -> Any:
        if metadata.segment_id.topic_id_partition == first:
            raise RemoteStorageError("the disk is gone", retriable=False)
        return await healthy(metadata, index)

    world.remote.fetch_index = broken  # type: ignore[method-assign]
    compactor = world.compactor()
    report = await drive(compactor, WorldBackends(world))
    job = await begun(compactor)
    with pytest.raises(SegmentCompactionError, match="the producers of t-0 before offset"):
        await job.segments(0, 0)
    world.remote.fetch_index = healthy  # type: ignore[method-assign]
    with pytest.raises(SegmentCompactionError, match="the producers of t-0 before offset"):
        await job.segments(0, 1)
    job.end(0, None)
    assert report.state is JobState.FAILED
    assert "the producers of t-0 before offset" in report.failures[0]
    assert world.tiered_ids(0) == before
    assert report.segments >= 1


@on_a_world
async def test_portions_of_one_segment_make_the_same_segments(world: CompactionWorld) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(external_job, "PORTION_RANGES", 1)
        compactor = world.compactor(parallel_partitions=2)
        client = RecordingClient(compactor)
        client.loses_answers = True
        report = await drive(compactor, WorldBackends(world), client)
    assert (report.state, report.failures) == (JobState.FINISHED, [])
    assert report.segments == len(world.tiered_ids(0)) + len(world.tiered_ids(1)) > 3
    await assert_clean(world)


@on_a_world
async def test_a_portion_is_told_again_until_it_is_copied(world: CompactionWorld) -> None:
    job = await begun(world.compactor())
    portion = await job.segments(0, 0)
    assert (portion.is_last, len(portion.segments) > 1, portion.producers) == (True, True, {})
    assert await job.segments(0, 0) is portion
    await job.begin(0, portion.segments[1].start_offset, "token")
    with pytest.raises(UnknownStepError, match="portion 0 cannot be planned where 1 comes next"):
        await job.segments(0, 0)
    after = await job.segments(0, 1)
    assert (after.is_last, after.segments, after.producers) == (True, [], None)
    await job.begin(0, portion.segments[0].start_offset, "another")
    assert await job.segments(0, 1) is after
    job.end(0, None)


@on_a_world
async def test_a_silent_driver_loses_its_job_and_what_it_says_later_changes_nothing(world: CompactionWorld) -> None:
    compactor = world.compactor()
    job = await begun(compactor)
    plan = await first_of(job)
    metadata = await job.begin(0, plan.start_offset, "token")
    await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 - 1)
    job.heard(0)
    await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 - 1)
    assert job.report.state is JobState.RUNNING
    await asyncio.sleep(2)
    assert job.report.state is JobState.FAILED
    assert job.report.failures == ["its driver has not been heard of for 60000 ms"]
    with pytest.raises(JobNotRunningError, match="has not been heard of"):
        await job.finish(metadata.segment_id.id, None)
    with pytest.raises(JobNotRunningError, match="has not been heard of"):
        compactor.external(job.report.id)
    assert world.tiered_ids(0) == []
    await world.compact(compactor)
    await assert_clean(world)


@on_a_world
async def test_a_step_that_takes_long_is_no_silence(world: CompactionWorld) -> None:
    is_slow = False

    async def step() -> None:
        await asyncio.sleep(3 * SESSION_TIMEOUT_MS / 1000 if is_slow else 0)

    compactor = world.compactor(step)
    job = await begun(compactor)
    plan = await first_of(job)
    is_slow = True
    assert (await job.begin(0, plan.start_offset, "token")).start_offset == plan.start_offset
    assert job.report.state is JobState.RUNNING
    is_slow = False
    job.end(0, None)
    await ended(compactor, job.report.id)


@on_a_world
async def test_drivers_take_turns_and_the_worker_waits_for_them(world: CompactionWorld) -> None:
    compactor = world.compactor()
    job = await begun(compactor, "first")
    second = asyncio.create_task(drive(compactor, WorldBackends(world)))
    for _ in range(5):
        await asyncio.sleep(SESSION_TIMEOUT_MS / 2000)
        job.heard(0)
    assert await compactor.compact_due() is None
    assert [report.state for report in compactor._reports.values()] == [JobState.RUNNING, JobState.WAITING]
    job.end(0, None)
    assert (await second).state is JobState.FINISHED
    await assert_clean(world)


@on_a_world
async def test_a_driver_that_asks_again_gets_the_same_job_and_another_one_gets_its_own(world: CompactionWorld) -> None:
    compactor = world.compactor()
    reports = [compactor.begin_external(EVERYTHING, "elsewhere", driver) for driver in ("a", "a", "b")]
    assert reports[0] is reports[1]
    assert reports[0] is not reports[2]
    compactor.external(reports[0].id).end(0, "enough")
    assert (await ended(compactor, reports[0].id)).failures == ["enough"]
    assert compactor.begin_external(EVERYTHING, "elsewhere", "a") is reports[0]
    await compactor.stop()


@on_a_world
async def test_a_job_that_cannot_begin_is_begun_once(world: CompactionWorld) -> None:
    async def broken() -> None:
        raise CoordinatorStoreError("the disk is gone")

    compactor = world.compactor()
    healthy = world.shard.barrier
    world.shard.barrier = broken  # type: ignore[method-assign]
    report = await ended(compactor, compactor.begin_external(EVERYTHING, "elsewhere", "a").id)
    world.shard.barrier = healthy  # type: ignore[method-assign]
    assert compactor.begin_external(EVERYTHING, "elsewhere", "a") is report
    assert report.failures == ["the disk is gone"]


@on_a_world
async def test_reports_of_jobs_that_have_not_ended_are_kept(world: CompactionWorld) -> None:
    compactor = world.compactor()
    first = await begun(compactor, "first")
    waiting = [compactor.begin_external(EVERYTHING, "elsewhere", f"{index}") for index in range(REPORTS + 1)]
    assert compactor.report(first.report.id) is first.report
    for report in waiting:
        compactor.external(report.id).end(0, None)
    first.end(0, None)
    await ended(compactor, waiting[-1].id)
    compactor.begin_external(EVERYTHING, "elsewhere", "last")
    assert len(compactor._reports) == REPORTS
    assert compactor.report(first.report.id) is None
    await compactor.stop()


@on_a_world
async def test_a_job_of_the_brokers_own_engine_has_no_driver(world: CompactionWorld) -> None:
    compactor = world.compactor()
    report = compactor.begin(EVERYTHING)
    for _ in ("while it runs", "and when it has ended"):
        with pytest.raises(UnknownJobError, match="has no driver: its engine is the broker's own"):
            compactor.external(report.id)
        with pytest.raises(UnknownJobError, match="has no driver: its engine is the broker's own"):
            compactor.end_external(report.id, 0, None)
        await ended(compactor, report.id)
    assert report.state is JobState.FINISHED


@on_a_world
async def test_of_a_driver_and_an_engine_of_another_node_one_wins_each_segment(world: CompactionWorld) -> None:
    first, second = world.compactor(node_id=1), world.compactor(node_id=2)
    reports = await asyncio.gather(drive(first, WorldBackends(world)), world.compact(second))
    made = len(world.tiered_ids(0)) + len(world.tiered_ids(1))
    assert sum(report.segments for report in reports) == made


@on_a_world
async def test_a_signal_ends_the_engine_and_the_job(world: CompactionWorld) -> None:
    compactor, engine = world.compactor(), Stuck(end_s=2 * SESSION_TIMEOUT_MS / 1000)
    job = asyncio.create_task(drive(compactor, WorldBackends(world, engine=engine)))
    await engine.has_begun.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    report = await job
    assert (report.state, report.failures, engine.was_cancelled) == (JobState.FAILED, ["interrupted"], True)
    await world.compact(compactor)
    await assert_clean(world)


@on_a_world
async def test_a_driver_that_is_interrupted_while_it_waits_leaves_nothing_to_wait_for(world: CompactionWorld) -> None:
    compactor = world.compactor()
    first = await begun(compactor)
    waiting = asyncio.create_task(drive(compactor, WorldBackends(world)))
    await asyncio.sleep(1)
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(AdminClientError, match="interrupted before the compaction began"):
        await waiting
    first.end(0, None)
    began_at_s = asyncio.get_running_loop().time()
    await world.compact(compactor)
    assert asyncio.get_running_loop().time() - began_at_s < 1
    await assert_clean(world)


class SlowClient(InProcessClient):
    """Answers to one kind of request come late. `has_asked` when the first of them has been done."""

    def __init__(self, compactor: Compactor, slow: str) -> None:
        super().__init__(compactor)
        self.has_asked = asyncio.Event()
        self._slow = slow

    async def _ask(
        self, threads: Any, stop: Any, timeout_s: Any, method: str, path: str, answer: Any, body: Any
    ) -> Any:
        answered = await super()._ask(threads, stop, timeout_s, method, path, answer, body)
        if f"{method} {path}".endswith(self._slow):
            self.has_asked.set()
            await asyncio.sleep(1)
        return answered


@on_a_world
async def test_a_job_whose_driver_is_interrupted_while_it_begins_is_ended(world: CompactionWorld) -> None:
    compactor = world.compactor()
    client = SlowClient(compactor, "POST /compaction/driver")
    job = asyncio.create_task(drive(compactor, WorldBackends(world), client))
    await client.has_asked.wait()
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(AdminClientError, match="interrupted before the compaction began"):
        await job
    [report] = compactor._reports.values()
    assert (await ended(compactor, report.id)).failures == ["interrupted"]
    await assert_clean(world)


@on_a_world
async def test_a_driver_that_is_interrupted_while_it_connects_begins_nothing(world: CompactionWorld) -> None:
    class Unreachable(WorldBackends):
        @asynccontextmanager
        async def opened(self) -> AsyncIterator[Any]:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
            yield

    compactor = world.compactor()
    with pytest.raises(AdminClientError, match="interrupted before the compaction began"):
        await drive(compactor, Unreachable(world))
    assert not compactor._reports


@on_a_world
async def test_a_driver_that_is_interrupted_while_it_asks_for_its_job_ends_it(world: CompactionWorld) -> None:
    compactor, engine = world.compactor(), Stuck()
    client = SlowClient(compactor, "/driver")
    job = asyncio.create_task(drive(compactor, WorldBackends(world, engine=engine), client))
    while not any(one.startswith("GET ") for one in client.sent):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)
    report = await job
    assert (report.state, report.failures, engine.has_begun.is_set()) == (JobState.FAILED, ["interrupted"], False)


@on_a_world
async def test_an_engine_whose_broker_is_gone_is_ended_in_time(world: CompactionWorld) -> None:
    compactor, engine = world.compactor(), Stuck()
    client = InProcessClient(compactor)
    job = asyncio.create_task(driver_of(client, WorldBackends(world, engine=engine)).drive(None, everything=True))
    await engine.has_begun.wait()
    client.is_cut_off = True
    with pytest.raises(AdminClientError, match="nobody answers"):
        await job
    assert engine.was_cancelled
    assert client.patience_s < SESSION_TIMEOUT_MS / 1000
    await asyncio.gather(*compactor._tasks)


@on_a_world
async def test_a_job_that_the_broker_has_ended_ends_the_engine(world: CompactionWorld) -> None:
    compactor, engine = world.compactor(), Stuck()
    job = asyncio.create_task(drive(compactor, WorldBackends(world, engine=engine)))
    await engine.has_begun.wait()
    await compactor.stop()
    with pytest.raises(AdminClientError, match="the compaction has ended; the broker stops"):
        await job
    assert engine.was_cancelled


@on_a_world
async def test_copies_that_the_broker_cannot_see_are_not_taken_and_end_the_job(world: CompactionWorld) -> None:
    compactor = world.compactor()
    elsewhere = MemoryRemoteStorage(custom_metadata=b"custom")
    report = await drive(compactor, WorldBackends(world, remote_storage=elsewhere))
    assert report.state is JobState.FAILED
    assert "is not in the remote storage of the broker" in report.failures[0]
    assert len(elsewhere.segments) == 1, "it went on"
    assert world.tiered_ids(0) == world.tiered_ids(1) == []
    await world.compact(compactor)
    await assert_clean(world)


@on_a_world
async def test_a_driver_that_looks_elsewhere_for_objects_begins_nothing(world: CompactionWorld) -> None:
    compactor = world.compactor()
    client = RecordingClient(compactor)
    backends = WorldBackends(world, objects=MemoryWalObjectStore(world.path.clock))
    report = await drive(compactor, backends, client)
    assert "it needs the same wal_object_store settings as the broker" in report.failures[0]
    assert client.batches
    assert client.begun == 0


@on_a_world
async def test_steps_that_do_not_exist_are_refused(world: CompactionWorld) -> None:
    compactor = world.compactor()
    job = await begun(compactor)
    plan = await first_of(job)
    wrong: list[tuple[Coroutine[Any, Any, Any], str]] = [
        (job.segments(99, 0), "has no partition 99"),
        (job.segments(0, 2), "portion 2 cannot be planned where 1 comes next"),
        (job.begin(0, plan.start_offset + 1, "token"), "no segment of partition 0 was planned at offset 1"),
        (job.begin(1, 0, "token"), "no segment of partition 1 was planned"),
        (job.finish(world.path.clock.new_uuid(), None), "has begun no copy"),
        (job.abandon(world.path.clock.new_uuid()), "has begun no copy"),
    ]
    for step, message in wrong:
        with pytest.raises(UnknownStepError, match=message):
            await step
    with pytest.raises(UnknownJobError):
        compactor.external("other")
    job.end(0, None)
    with pytest.raises(JobNotRunningError, match="its driver has ended it"):
        await job.segments(0, 1)


@on_a_world
async def test_a_copy_that_was_abandoned_is_not_taken_and_one_that_was_taken_is_not_removed(
    world: CompactionWorld,
) -> None:
    compactor = world.compactor()
    job = await begun(compactor)
    plan = await first_of(job)
    abandoned = (await job.begin(0, plan.start_offset, "a")).segment_id
    await job.abandon(abandoned.id)
    assert await job.finish(abandoned.id, None) is False
    metadata = await job.begin(0, plan.start_offset, "b")
    assert metadata.segment_id != abandoned
    assert await job.begin(0, plan.start_offset, "b") == metadata
    job.end(0, None)
    await ended(compactor, job.report.id)
    report = await drive(compactor, WorldBackends(world))
    assert report.state is JobState.FINISHED
    await assert_clean(world)


@on_a_world
async def test_a_plan_that_fails_says_so_as_often_as_it_is_asked_for(world: CompactionWorld) -> None:
    async def broken(*_: Any) -> Any:
        raise CoordinatorStoreError("the disk is gone")

    compactor = world.compactor()
    job = await begun(compactor)
    healthy = world.shard.runs_from
    world.shard.runs_from = broken  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(SegmentCompactionError, match="t-0 cannot be planned: the disk is gone"):
            await job.segments(0, 0)
    world.shard.runs_from = healthy  # type: ignore[method-assign]
    with pytest.raises(SegmentCompactionError):
        await job.segments(0, 0)
    assert (await job.segments(1, 0)).segments
    job.end(0, "t-0")
    assert (await ended(compactor, job.report.id)).failures == ["t-0"]


@on_a_world
async def test_what_was_planned_before_a_failure_is_told_and_the_failure_next(world: CompactionWorld) -> None:
    healthy = world.shard.runs_from

    async def breaks_off(key: Any, offset: int) -> Any:
        if offset:
            raise CoordinatorStoreError("the disk is gone")
        return (await healthy(key, offset))[:-1]

    job = await begun(world.compactor())
    world.shard.runs_from = breaks_off  # type: ignore[method-assign]
    portion = await job.segments(0, 0)
    assert (portion.is_last, len(portion.segments) > 0) == (False, True)
    for _ in range(2):
        with pytest.raises(SegmentCompactionError, match="t-0 cannot be planned: the disk is gone"):
            await job.segments(0, 1)
    world.shard.runs_from = healthy  # type: ignore[method-assign]
    job.end(0, None)


@on_a_world
async def test_what_forbids_a_compaction_forbids_an_external_one(world: CompactionWorld) -> None:
    def require_allowed() -> None:
        raise PluginError("set remote_storage")

    def engine_of(name: str | None) -> Any:
        raise AssertionError("the engine is the driver's")

    compactor = world.compactor()
    with pytest.raises(UnknownTopicError, match="there is no topic nope"):
        compactor.begin_external(CompactionRequest(topics=["nope"]), "elsewhere", "driver")
    forbidden = Compactor(replace(compactor._services, require_allowed=require_allowed, engine_of=engine_of))
    with pytest.raises(PluginError, match="set remote_storage"):
        forbidden.begin_external(EVERYTHING, "elsewhere", "driver")
    allowed = Compactor(replace(compactor._services, engine_of=engine_of))
    allowed.begin_external(EVERYTHING, "elsewhere", "driver")
    await allowed.stop()


@on_a_world
async def test_a_driver_is_told_whether_there_is_no_job_or_none_any_more(world: CompactionWorld) -> None:
    compactor = world.compactor()
    client = InProcessClient(compactor)
    job = await begun(compactor)
    path = f"/compaction/{job.report.id}/driver"
    assert (await client._http.get("/compaction/other/driver")).status_code == 404
    steps = {"steps": [{"step": "segments", "partition": 99, "number": 0}]}
    assert (await client._http.post("/compaction/other/driver/steps", json=steps)).status_code == 404
    [refused] = (await client._http.post(f"{path}/steps", json=steps)).json()["answers"]
    assert (refused["step"], refused["error_code"]) == ("refused", 404)
    assert (await client._http.get(path)).json()["topics"][0]["topic"] == "t"
    body = {"bytes_copied": 0, "failure": None}
    for failure in (None, "of which it thinks later"):
        assert (await client._http.post(f"{path}/end", json=body | {"failure": failure})).status_code == 200
    await ended(compactor, job.report.id)
    again = await client._http.post(f"{path}/end", json=body)
    assert (again.status_code, again.json()["state"], again.json()["failures"]) == (200, "finished", [])
    late = await client._http.post(f"{path}/progress", json={"bytes_copied": 0})
    assert (late.status_code, late.json()["message"]) == (409, "the compaction has ended")
    assert (await client._http.post(f"{path}/steps", json=steps)).status_code == 409
