"""What a task of a compaction does in its process, without Spark."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from diskless_core.log import producer_snapshot
from diskless_core.plugin.errors import PluginFactoryError
from diskless_core.plugin.remote_storage import IndexType, RemoteStorage
from diskless_core.plugin.segment_building.settings import SegmentBuildingSettings
from diskless_core.testing.compaction_folder import FolderCompactionJob
from diskless_core.testing.compaction_job import CUSTOM_METADATA, a_batch
from diskless_spark.executor import ComparisonTask, CopyToCompare, NotedSegment, Part, Task, TaskError, run_task

BUILDING = SegmentBuildingSettings(buffer_max_bytes=1 << 20, read_max_bytes=1 << 20)


def a_task(job: FolderCompactionJob, partitions: int = 2) -> Task:
    """Two segments of each partition."""
    ranges = [
        job.put(f"wal/{number}", {index: [a_batch(b"x", producer=(number, 0))] for index in range(partitions)})
        for number in range(2)
    ]

    async def noted() -> list[Part]:
        return [
            Part(
                segments=[
                    NotedSegment(plan=plan, metadata=await job.begin(plan))
                    for plan in [job.plan(index, some[index]) for some in ranges]
                ],
                producers={},
            )
            for index in range(partitions)
        ]

    return Task(
        number=3,
        parts=asyncio.run(noted()),
        parallel_partitions=2,
        backends=job.backends,
        building=BUILDING,
        producer_id_expiration_ms=job.producer_id_expiration_ms,
    )


def test_it_returns_metadata_and_the_producers_of_each_segment(tmp_path: Path) -> None:
    job = FolderCompactionJob(tmp_path / "job")
    task = pickle.loads(pickle.dumps(a_task(job)))
    result = run_task(task, is_last=False)
    assert (result.number, result.failed) == (3, {})
    assert {one.segment_id for one in result.copied} == task.sizes().keys()
    assert {one.custom_metadata for one in result.copied} == {CUSTOM_METADATA}
    for part in task.parts:
        for number, segment in enumerate(part.segments):
            stored = job.stored(segment.metadata)
            assert stored is not None
            assert stored.log == job.expected[segment.plan.partition.partition, segment.plan.start_offset]
            [copied] = [one for one in result.copied if one.segment_id == segment.metadata.segment_id]
            assert list(producer_snapshot.decode(copied.noted)) == [number]


def test_segments_whose_producers_other_tasks_find_are_copied_without_a_snapshot(tmp_path: Path) -> None:
    job = FolderCompactionJob(tmp_path / "job")
    task = a_task(job)
    task = replace(task, parts=[replace(task.parts[0], producers=None), task.parts[1]])
    result = run_task(task, is_last=False)
    noted = {one.segment_id: producer_snapshot.decode(one.noted) for one in result.copied}
    for part in task.parts:
        for number, segment in enumerate(part.segments):
            stored = job.stored(segment.metadata)
            assert stored is not None
            expected = set(IndexType) - {IndexType.TRANSACTION}
            expected -= {IndexType.PRODUCER_SNAPSHOT} if part.producers is None else set()
            assert stored.indexes.keys() == expected
            assert list(noted[segment.metadata.segment_id]) == [number]


def test_what_another_attempt_can_help_is_raised_unless_it_is_the_last_one(tmp_path: Path) -> None:
    job = FolderCompactionJob(tmp_path / "job")
    task = a_task(job)
    (job.faults / "fail-1").touch()
    with pytest.raises(TaskError, match="503"):
        run_task(task, is_last=False)
    (job.faults / "fail-2").touch()
    result = run_task(task, is_last=True)
    assert len(result.failed) == 1
    assert len(result.copied) in (2, 3)
    assert len(run_task(task, is_last=False).copied) == 4


def test_what_no_attempt_can_help_ends_its_partition_and_no_other(tmp_path: Path) -> None:
    job = FolderCompactionJob(tmp_path / "job")
    task = a_task(job)
    job.refuse_next_copy()
    result = run_task(task, is_last=False)
    [(failed, message)] = result.failed.items()
    assert "AccessDenied" in message
    others = {one.segment_id.topic_id_partition for one in result.copied} - {failed.topic_id_partition}
    assert len(others) == 1


def test_backends_retry_as_the_broker_does(tmp_path: Path) -> None:
    job = FolderCompactionJob(tmp_path / "job")
    task = a_task(job)
    (job.faults / "fail-1").touch()
    backoff = replace(job.backends.backoff, attempts=2)
    task = replace(task, backends=replace(task.backends, backoff=backoff))
    assert run_task(task, is_last=False).failed == {}


def no_plugin() -> RemoteStorage:
    raise PluginFactoryError("there is no such folder")


def test_a_plugin_that_makes_no_backend_here_is_a_failure_of_every_partition(tmp_path: Path) -> None:
    task = a_task(FolderCompactionJob(tmp_path / "job"))
    result = run_task(replace(task, backends=replace(task.backends, remote_storage=no_plugin)), is_last=False)
    assert (result.failed.keys(), result.copied) == ({part.segments[0].metadata.segment_id for part in task.parts}, [])
    assert all("there is no such folder" in message for message in result.failed.values())


def test_a_place_that_cannot_be_reached_is_a_failure_of_every_partition(tmp_path: Path) -> None:
    job = FolderCompactionJob(tmp_path / "job")
    task = a_task(job)
    job.faults.rmdir()
    job.faults.parent.rmdir()
    job.faults.parent.touch()
    result = run_task(task, is_last=True)
    assert len(result.failed) == 2
    assert result.copied == []


def comparison_of(job: FolderCompactionJob) -> ComparisonTask:
    """Reads back what `a_task` copies."""
    task = a_task(job)
    metadata = {segment.metadata.segment_id: segment.metadata for part in task.parts for segment in part.segments}
    return ComparisonTask(
        number=7,
        copies=[
            CopyToCompare(
                metadata=replace(metadata[copied.segment_id], custom_metadata=copied.custom_metadata),
                written=copied.written,
            )
            for copied in run_task(task, is_last=True).copied
        ],
        parallel_partitions=2,
        backends=job.backends,
    )


def log_of(job: FolderCompactionJob, copy: CopyToCompare) -> Path:
    [log] = job.faults.parent.rglob(f"{copy.metadata.segment_id.id.hex}.log")
    return log


def test_logs_that_are_as_they_were_written_are_found_the_same(tmp_path: Path) -> None:
    task = pickle.loads(pickle.dumps(comparison_of(FolderCompactionJob(tmp_path / "job"))))
    assert len(task.copies) == 4
    result = run_task(task, is_last=False)
    assert (result.number, result.failed) == (7, {})


def test_a_log_that_another_task_wrote_and_that_differs_is_found_and_no_attempt_helps(tmp_path: Path) -> None:
    job = FolderCompactionJob(tmp_path / "job")
    task = comparison_of(job)
    damaged, gone, *_ = task.copies
    content = bytearray(log_of(job, damaged).read_bytes())
    content[-1] ^= 1
    log_of(job, damaged).write_bytes(content)
    log_of(job, gone).unlink()
    failed = run_task(task, is_last=False).failed
    assert failed.keys() == {damaged.metadata.segment_id, gone.metadata.segment_id}
    assert "is not what was written to remote storage: its log has" in failed[damaged.metadata.segment_id]
    assert "is not in remote storage" in failed[gone.metadata.segment_id]


def test_logs_that_cannot_be_read_back_are_tried_by_another_attempt(tmp_path: Path) -> None:
    job = FolderCompactionJob(tmp_path / "job")
    task = comparison_of(job)
    log = log_of(job, task.copies[0])
    content = log.read_bytes()
    log.unlink()
    log.mkdir()
    failed = run_task(task, is_last=True).failed
    assert failed.keys() == {task.copies[0].metadata.segment_id}
    with pytest.raises(TaskError, match=task.copies[0].metadata.segment_id.topic_id_partition.name):
        run_task(task, is_last=False)
    log.rmdir()
    log.write_bytes(content)
    assert run_task(task, is_last=False).failed == {}


def test_where_no_backend_can_be_made_no_log_is_found_the_same(tmp_path: Path) -> None:
    task = comparison_of(FolderCompactionJob(tmp_path / "job"))
    failed = run_task(replace(task, backends=replace(task.backends, remote_storage=no_plugin)), is_last=False).failed
    assert failed.keys() == {copy.metadata.segment_id for copy in task.copies}
