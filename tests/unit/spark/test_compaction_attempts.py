"""Attempts of tasks that live on after a compaction has ended change nothing. Without Spark."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.testing.compaction_folder import FolderCompactionJob
from diskless_spark import compaction, stage
from diskless_spark.compaction import SparkCompaction
from diskless_spark.config import SparkCompactionSettings
from diskless_spark.executor import Task, TaskResult, run_task
from tests.support.compaction_jobs import made_inline, made_of, producers_come_and_go


class Attempts:
    """Does what Spark would, task by task, and keeps the tasks for further attempts."""

    def __init__(self) -> None:
        self.tasks: list[bytes] = []

    async def run_stage(
        self, context: Any, tasks: Sequence[Task], *, ended: Callable[[TaskResult], None], **_: str
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
    parts = [part for task in attempts.tasks for part in pickle.loads(task).parts]
    unknown = [segment for part in parts if part.producers is None for segment in part.segments]
    assert 0 < len(unknown) < len(job.expected)
    assert replaced == [IndexType.PRODUCER_SNAPSHOT] * len(unknown)
