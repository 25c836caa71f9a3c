"""The engine `spark` keeps the contract, and what is special of it: tasks, rounds, and tries of Spark."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.segment_compaction import SegmentCompaction, SegmentCompactionError
from diskless_core.testing.compaction_folder import FolderCompactionJob
from diskless_core.testing.compaction_job import FakeCompactionJob
from diskless_core.testing.segment_compaction import SegmentCompactionContract, check_segments, filled_job
from diskless_spark.compaction import SparkCompaction
from diskless_spark.config import SparkCompactionSettings
from tests.support.compaction_jobs import made_inline, made_of, producers_come_and_go

MIB = 1 << 20


def spark_engine(**settings: Any) -> SparkCompaction:
    context = PluginContext(node_id=1, data_dir=Path(), log_dir=Path(), clock=SystemClock())
    return SparkCompaction(context, SparkCompactionSettings(buffer_max_bytes=MIB, read_max_bytes=MIB, **settings))


class TestSpark(SegmentCompactionContract):
    @pytest.fixture
    def engine(self, spark: SparkSession) -> SegmentCompaction:
        return spark_engine()

    @pytest.fixture
    def new_job(self, tmp_path: Path) -> Callable[[], FakeCompactionJob]:
        numbers = itertools.count()
        return lambda: FolderCompactionJob(tmp_path / str(next(numbers)))


async def test_tasks_and_rounds_of_one_segment_each_make_what_one_process_would(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also the snapshots, although each task knows only the producers of its own segment."""
    job = producers_come_and_go(FolderCompactionJob(tmp_path / "spark"))
    await spark_engine(task_bytes=1, round_bytes=400).compact(job)
    assert made_of(job) == await made_inline(tmp_path / "inline")
    check_segments(job)


@pytest.mark.parametrize(
    ("master", "has_memory", "overlaps", "message"),
    [
        ("local[2]", True, True, "in the memory of one process"),
        ("local[2]", False, False, "run a task twice"),
        ("spark://host:7077", False, True, "executors are elsewhere"),
    ],
)
async def test_backends_that_executors_cannot_use_are_refused_before_anything_is_begun(
    tmp_path: Path, master: str, has_memory: bool, overlaps: bool, message: str
) -> None:
    job = filled_job(FakeCompactionJob() if has_memory else FolderCompactionJob(tmp_path / "job"))
    job.remote_storage.copies_may_overlap = overlaps
    with pytest.raises(SegmentCompactionError, match=message):
        await spark_engine(master=master).compact(job)
    assert job.steps == []
