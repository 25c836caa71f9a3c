"""The engine `spark` keeps the contract, and what is special of it: tasks, rounds, and tries of Spark."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from diskless_core.clock import SystemClock
from diskless_core.log.producer_snapshot import ProducerEntry
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.plugin.segment_compaction import SegmentCompaction, SegmentCompactionError
from diskless_core.testing.compaction_folder import FolderCompactionJob
from diskless_core.testing.compaction_job import TIME_MS, FakeCompactionJob, a_batch
from diskless_core.testing.segment_compaction import SegmentCompactionContract, check_segments, filled_job
from diskless_spark.compaction import SparkCompaction
from diskless_spark.config import SparkCompactionSettings
from diskless_tiering.config import InlineSettings
from diskless_tiering.inline import InlineCompaction

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
    jobs = {name: producers_come_and_go(FolderCompactionJob(tmp_path / name)) for name in ("spark", "inline")}
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    await spark_engine(task_bytes=1, round_bytes=400).compact(jobs["spark"])
    await InlineCompaction(context, InlineSettings()).compact(jobs["inline"])
    assert jobs["spark"].finished.keys() == jobs["inline"].finished.keys() == jobs["inline"].expected.keys()
    made = {name: contents(job) for name, job in jobs.items()}
    assert made["spark"] == made["inline"]
    check_segments(jobs["spark"])


def producers_come_and_go(job: FolderCompactionJob) -> FolderCompactionJob:
    for number in range(6):
        sent = {
            index: [
                a_batch(b"x", producer=(number % 3 + 10 * index, number), timestamp_ms=TIME_MS + number * 20_000),
                a_batch(b"y", producer=(100 + number, 0), timestamp_ms=TIME_MS + number * 20_000 - 30_000),
            ]
            for index in range(2)
        }
        for index, ranges in job.put(f"wal/{number}", sent).items():
            job.plan(index, ranges)
    job.producers = {7: ProducerEntry(7, 0, 5, -3, 0, TIME_MS), 8: ProducerEntry(8, 0, 5, -2, 0, TIME_MS - 50_000)}
    return job


def contents(job: FolderCompactionJob) -> dict[tuple[int, int], tuple[bytes, dict[IndexType, bytes]]]:
    found = {}
    for key, metadata in job.finished.items():
        stored = job.stored(metadata)
        assert stored is not None
        found[key] = (stored.log, stored.indexes)
    return found


@pytest.mark.parametrize(
    ("master", "has_memory", "overlaps", "message"),
    [
        ("local[2]", True, True, "in the memory of this one"),
        ("local[2]", False, False, "run a task twice"),
        ("spark://host:7077", False, True, "only this node has"),
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
