"""What comes out of compactions does not hang on when tasks end, nor on failures behind them. Without Spark."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.plugin.segment_compaction import SegmentCompaction, SegmentCompactionError, SegmentPlan
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.testing.compaction_folder import FolderCompactionJob
from diskless_core.testing.compaction_job import partition_of
from diskless_spark import compaction, stage
from diskless_spark.compaction import SparkCompaction
from diskless_spark.config import SparkCompactionSettings
from diskless_spark.executor import ComparisonTask, Task, TaskResult, run_task
from diskless_tiering.config import InlineSettings
from diskless_tiering.inline import InlineCompaction
from tests.support.cluster import until
from tests.support.compaction_jobs import made_inline, made_of, producers_come_and_go


class Attempts:
    """Does what Spark would, task by task, and keeps the tasks for further attempts."""

    def __init__(self) -> None:
        self.tasks: list[bytes] = []

    async def run_stage(
        self, context: Any, tasks: Sequence[Task | ComparisonTask], *, ended: Callable[[TaskResult], None], **_: str
    ) -> None:
        del context
        for task in tasks:
            self.tasks.append(pickle.dumps(task))
            ended(await self.attempt(self.tasks[-1]))

    async def attempt(self, task: bytes) -> TaskResult:
        return await asyncio.to_thread(run_task, pickle.loads(task), is_last=True)


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Attempts:
    @asynccontextmanager
    async def no_spark(options: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(master="local[4]", defaultParallelism=4)

    async def is_warm(*_: Any) -> None:
        pass

    attempts = Attempts()
    monkeypatch.setattr(compaction, "spark_context", no_spark)
    monkeypatch.setattr(stage, "warm_up", is_warm)
    monkeypatch.setattr(stage, "run_stage", attempts.run_stage)
    return attempts


@pytest.mark.parametrize("round_bytes", [400, 1 << 20], ids=["several rounds", "one round"])
async def test_an_attempt_that_ends_when_its_segments_are_finished_leaves_them_as_they_are(
    attempts: Attempts, tmp_path: Path, round_bytes: int
) -> None:
    """Also the snapshots of partitions that are in several tasks, which none of these could make."""
    job = producers_come_and_go(FolderCompactionJob(tmp_path / "spark"))
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    await SparkCompaction(context, SparkCompactionSettings(task_bytes=1, round_bytes=round_bytes)).compact(job)
    made = made_of(job)
    assert made == await made_inline(tmp_path / "inline")
    for task in attempts.tasks:
        await attempts.attempt(task)
        assert made_of(job) == made


async def test_a_task_whose_producers_are_known_writes_the_snapshots_itself(attempts: Attempts, tmp_path: Path) -> None:
    """So that those of many small partitions are not written one by one by the driver."""
    job = producers_come_and_go(FolderCompactionJob(tmp_path / "spark"))
    replaced = []
    replace_index = job.remote_storage.replace_index

    async def counted(*arguments: Any) -> None:
        replaced.append(arguments[1])
        await replace_index(*arguments)

    job.remote_storage.replace_index = counted  # type: ignore[method-assign]
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    await SparkCompaction(context, SparkCompactionSettings()).compact(job)
    assert made_of(job) == await made_inline(tmp_path / "inline")
    tasks = [pickle.loads(task) for task in attempts.tasks]
    parts = [part for task in tasks if isinstance(task, Task) for part in task.parts]
    unknown = [segment for part in parts if part.producers is None for segment in part.segments]
    assert 0 < len(unknown) < len(job.expected)
    assert replaced == [IndexType.PRODUCER_SNAPSHOT] * len(unknown)


def log_of(folder: Path, metadata: RemoteLogSegmentMetadata) -> Path:
    [log] = folder.rglob(f"{metadata.segment_id.id.hex}.log")
    return log


def flip_last_byte(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)


@pytest.mark.parametrize("round_bytes", [400, 1 << 20], ids=["several rounds", "one round"])
@pytest.mark.parametrize("damage", [flip_last_byte, Path.unlink])
async def test_a_copy_that_differs_when_all_tasks_have_ended_is_not_finished_and_ends_its_partition(
    attempts: Attempts, tmp_path: Path, damage: Callable[[Path], None], round_bytes: int
) -> None:
    job = producers_come_and_go(FolderCompactionJob(tmp_path / "job"))
    starts = sorted(start for index, start in job.expected if index == 0)
    run_stage, damaged = attempts.run_stage, list[RemoteLogSegmentMetadata]()

    async def damaging(context: Any, tasks: Sequence[Task | ComparisonTask], **options: Any) -> None:
        for task in tasks:
            for copy in task.copies if isinstance(task, ComparisonTask) else ():
                partition = copy.metadata.segment_id.topic_id_partition
                if (partition.partition, copy.metadata.start_offset) == (0, starts[3]):
                    damaged.append(copy.metadata)
                    damage(log_of(tmp_path, copy.metadata))
        await run_stage(context, tasks, **options)

    stage.run_stage = damaging  # type: ignore[assignment]
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    engine = SparkCompaction(context, SparkCompactionSettings(task_bytes=1, round_bytes=round_bytes))
    with pytest.raises(SegmentCompactionError, match=r"^the copy \S+ of t-0 at offset 6 is not (what|in)") as caught:
        await engine.compact(job)
    assert "; " not in str(caught.value), "it says so once"
    assert job.finished.keys() == job.expected.keys() - {(0, start) for start in starts[3:]}
    assert job.stored(damaged[0]) is None, "it stays"
    assert ("abandon", 0, starts[3]) in job.steps


async def test_copies_that_were_not_read_back_are_not_finished(attempts: Attempts, tmp_path: Path) -> None:
    job = producers_come_and_go(FolderCompactionJob(tmp_path / "job"))
    run_stage = attempts.run_stage

    async def lost(context: Any, tasks: Sequence[Task | ComparisonTask], **options: Any) -> None:
        if isinstance(tasks[0], ComparisonTask):
            raise ValueError("executors lost")
        await run_stage(context, tasks, **options)

    stage.run_stage = lost  # type: ignore[assignment]
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    with pytest.raises(SegmentCompactionError, match=r"^Spark gave up: executors lost$"):
        await SparkCompaction(context, SparkCompactionSettings()).compact(job)
    assert job.finished == {}
    assert [step for step in job.steps if step[0] == "finish"] == []


class FailsAtTheFourth(FolderCompactionJob):
    """One of its steps fails at the fourth segment of partition 0."""

    def __init__(self, folder: Path, step: str) -> None:
        super().__init__(folder)
        self._failing_step = step

    def _fail(self, step: str, segment: SegmentPlan) -> None:
        if step == self._failing_step and (segment.partition.partition, segment.start_offset) == (0, 6):
            raise SegmentCompactionError(f"no {step} today")

    async def segments(self, partition: TopicIdPartition) -> AsyncGenerator[SegmentPlan, None]:
        async with aclosing(super().segments(partition)) as segments:
            async for segment in segments:
                self._fail("segments", segment)
                yield segment

    async def begin(self, segment: SegmentPlan) -> RemoteLogSegmentMetadata:
        self._fail("begin", segment)
        return await super().begin(segment)


@pytest.mark.parametrize("step", ["segments", "begin"])
@pytest.mark.parametrize("engine", ["inline", "spark, several rounds", "spark, one round"])
async def test_segments_before_one_that_cannot_be_planned_or_noted_are_finished(
    attempts: Attempts, tmp_path: Path, engine: str, step: str
) -> None:
    job = FailsAtTheFourth(tmp_path / "job", step)
    producers_come_and_go(job)
    starts = sorted(start for index, start in job.expected if index == 0)
    assert starts[3] == 6
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    used: SegmentCompaction
    if engine == "inline":
        used = InlineCompaction(context, InlineSettings())
    else:
        round_bytes = 1 << 20 if engine == "spark, one round" else 800
        used = SparkCompaction(context, SparkCompactionSettings(task_bytes=1, round_bytes=round_bytes))
    with pytest.raises(SegmentCompactionError, match=f"^no {step} today$"):
        await used.compact(job)
    assert job.finished.keys() == job.expected.keys() - {(0, start) for start in starts[3:]}
    assert [step for step in job.steps if step[0] == "abandon"] == []


class NeverPlanned(FolderCompactionJob):
    """Of its many partitions, none gets a plan."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.partitions = [partition_of(index) for index in range(40)]
        self.opened: list[TopicIdPartition] = []
        self.closed: list[TopicIdPartition] = []

    async def segments(self, partition: TopicIdPartition) -> AsyncGenerator[SegmentPlan, None]:
        self.opened.append(partition)
        try:
            await asyncio.Event().wait()
            yield self.plan(0)
        finally:
            self.closed.append(partition)


async def test_plans_that_are_on_their_way_are_few_and_are_given_up_with_the_compaction(tmp_path: Path) -> None:
    """Each may be as large as plans are."""
    job = NeverPlanned(tmp_path / "job")
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    running = asyncio.create_task(SparkCompaction(context, SparkCompactionSettings()).compact(job))
    few = compaction.ROUND_RANGES // compaction.MAX_RANGES
    await until(lambda: len(job.opened) >= few)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(job.opened) == few
    assert sorted(job.closed) == sorted(job.opened)
