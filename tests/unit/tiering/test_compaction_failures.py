"""What a defect, a foreign copy or a lost snapshot does to compactions: it is told, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from diskless_core.diskless.commands import PartitionKey
from diskless_core.plugin.remote_storage import IndexType, LogSegmentData
from diskless_core.plugin.segment_compaction import CompactionJob, SegmentCompaction
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
)
from diskless_core.remote_log.tiered import TieredSegment
from diskless_core.testing.fakes.remote_log_metadata import MemoryRemoteLogMetadata
from diskless_core.testing.fakes.remote_storage import Operation
from diskless_core.tiering.report import JobState
from tests.support.compaction_world import CompactionWorld
from tests.support.produce_path import ProducePath
from tests.support.virtual_time import run


def test_an_error_that_no_storage_should_raise_ends_its_partition_and_no_other() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            for partition in range(3):
                await world.fill(partition)
            compactor = world.compactor(parallel_partitions=3)
            world.remote.delay(Operation.COPY, 1)
            world.remote.fail_next(Operation.COPY, error=lambda: OSError("no space left on device"))
            with capture_logs() as logs:
                report = await world.compact(compactor)
            assert report.state is JobState.FAILED
            [failure] = report.failures
            assert failure.startswith("t-")
            assert "OSError: no space left" in failure
            assert [log["exc_info"] for log in logs if log["log_level"] == "error"] == [True]
            assert sum(len(world.tiered_ids(partition)) > 1 for partition in range(3)) == 2
            for partition in range(3):
                await world.check(partition)
                await world.check_clean(partition)

    run(main)


class Dies(SegmentCompaction):
    """Begins a copy of each partition, and then there is a defect."""

    def __init__(self) -> None:
        self.is_well = False

    async def compact(self, job: CompactionJob) -> None:
        for partition in job.partitions:
            async with aclosing(job.segments(partition)) as segments:
                async for segment in segments:
                    metadata = await job.begin(segment)
                    if not self.is_well:
                        break
                    await job.remote_storage.copy(metadata, LogSegmentData(log=_log_of(segment), indexes=dict))
                    await job.finish(metadata, b"custom")
        if not self.is_well:
            raise ZeroDivisionError


def _log_of(segment: Any) -> Any:
    async def log() -> AsyncIterator[bytes]:
        yield bytes(segment.size_bytes)

    return log


def test_the_copies_of_an_engine_that_died_are_removed_by_the_next_job() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill(0)
            await world.fill(1)
            engine = Dies()
            compactor = world.compactor(engine=engine)
            report = await world.compact(compactor)
            assert report.state is JobState.FAILED
            engine.is_well = True
            await world.compact(compactor)
            await world.check_clean(0)
            await world.check_clean(1)

    run(main)


def test_a_storage_whose_removal_has_a_defect_does_not_keep_a_job_from_ending() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill()
            await foreign_copy(world, 0, 5, b"x", state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
            with world.remote.failing(Operation.DELETE, error=lambda: OSError("read-only file system")):
                report = await world.compact()
            assert report.state is JobState.FAILED
            assert "OSError" in report.failures[0]
            await world.check()

    run(main)


# --- copies of others ------------------------------------------------------------------------------------------------


async def foreign_copy(
    world: CompactionWorld,
    start: int,
    end: int,
    data: bytes,
    *,
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
) -> RemoteLogSegmentId:
    """A copy that was not made of this partition's batches."""
    metadata = RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(world.partition(), uuid.UUID(int=7)),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=5,
        broker_id=1,
        event_timestamp_ms=7,
        segment_size_bytes=len(data),
        segment_leader_epochs={0: start},
        custom_metadata=b"custom",
    )

    async def log() -> AsyncIterator[bytes]:
        yield data

    await world.remote.copy(metadata, LogSegmentData(log=log, indexes=lambda: dict.fromkeys(IndexType, b"")))
    await world.metadata.add(replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED))
    if state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
        world.metadata.ledger.take(_noted(metadata, state))
    return metadata.segment_id


def _noted(metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> Any:
    return RemoteLogSegmentMetadataUpdate(
        segment_id=metadata.segment_id,
        event_timestamp_ms=8,
        state=state,
        broker_id=1,
        custom_metadata=metadata.custom_metadata,
    )


@pytest.mark.parametrize("end", [2, 3])
def test_a_complete_copy_that_is_not_of_this_partition_is_removed_and_nothing_is_lost(end: int) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill()
            await foreign_copy(world, 0, end, b"foreign" * 20)
            report = await world.compact()
            assert report.failures == []
            await world.check()
            await world.check_clean()

    run(main)


async def complete_copy(world: CompactionWorld) -> RemoteLogSegmentMetadata:
    """What a job leaves that is ended when its first copy is complete and the coordinator does not know it yet."""
    complete = asyncio.Event()
    known = list[RemoteLogSegmentMetadata]()

    async def step() -> None:
        known[:] = world.metadata.ledger.log(world.partition()).segments()
        if known and known[0].state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            complete.set()
            await asyncio.Event().wait()

    compactor = world.compactor(step)
    job = asyncio.create_task(world.compact(compactor))
    await complete.wait()
    await compactor.stop()
    await asyncio.gather(job, return_exceptions=True)
    return known[0]


def test_a_complete_copy_that_begins_before_a_log_start_within_its_first_batch_is_taken() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill()
            await world.delete_records(1)
            left = await complete_copy(world)
            assert left.start_offset == 0
            await world.compact()
            assert world.tiered_ids()[0] == left.segment_id
            await world.check()
            await world.check_clean()

    run(main)


def test_a_complete_copy_that_is_taken_while_it_is_looked_at_stays() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill()
            left = await complete_copy(world)
            taken = TieredSegment(
                left.segment_id.id.bytes,
                left.start_offset,
                left.end_offset,
                left.segment_size_bytes,
                left.max_timestamp_ms,
            )

            class Quicker:
                """Another job swaps it in, and its rows are trimmed, while runs are looked up."""

                def __getattr__(self, name: str) -> Any:
                    return getattr(world.shard, name)

                async def runs_from(self, partition: PartitionKey, offset: int, max_bytes: int) -> Any:
                    assert await world.shard.tier(partition, taken, expected=0)
                    return await world.shard.runs_from(partition, max(offset, left.end_offset + 1), max_bytes)

            await world.compactor()._copies.clear(Quicker(), world.partition())  # type: ignore[arg-type]
            assert world.tiered_ids() == [left.segment_id]
            await world.check()
            await world.check_clean()

    run(main)


# --- producers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["snapshot", "metadata"])
def test_a_snapshot_that_is_gone_is_told_and_the_next_one_begins_anew(lost: str) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill()
            await world.compact()
            last = world.tiered_ids()[-1]
            if lost == "snapshot":
                del world.remote.segments[last].indexes[IndexType.PRODUCER_SNAPSHOT]
            else:
                world.metadata = MemoryRemoteLogMetadata()
            await world.fill()
            with capture_logs() as logs:
                report = await world.compact()
            assert report.failures == []
            [warning] = [log for log in logs if log["log_level"] == "warning"]
            assert "without" in warning["event"]
            assert (warning["topic"], warning["partition"], warning["segment"]) == ("t", 0, str(last.id))

    run(main)


@pytest.mark.parametrize("deleted_to", [0, -1])
def test_producers_of_deleted_records_are_missed_aloud(deleted_to: int) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            await world.fill()
            await world.delete_records(deleted_to)
            await world.fill()
            with capture_logs() as logs:
                await world.compact()
            told = [log for log in logs if "without the producers" in log["event"]]
            assert [(log["log_level"], log["partition"]) for log in told] == [("info", 0)] * (deleted_to != 0)

    run(main)
