"""The engine that comes with Diskless keeps the contract, and the suite finds out those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from diskless_core.clock import SystemClock
from diskless_core.log.producer_snapshot import CorruptSnapshotError
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import IndexType, LogSegmentData
from diskless_core.plugin.segment_compaction import SegmentCompaction
from diskless_core.testing.compaction_job import FakeCompactionJob
from diskless_core.testing.segment_compaction import SegmentCompactionContract
from diskless_tiering.config import InlineSettings
from diskless_tiering.inline import InlineCompaction


def inline(**settings: int) -> InlineCompaction:
    context = PluginContext(node_id=1, data_dir=Path(), log_dir=Path(), clock=SystemClock())
    return InlineCompaction(context, InlineSettings(buffer_max_bytes=1 << 20, **settings))


class TestInline(SegmentCompactionContract):
    keeps_parallel_partitions = True

    @pytest.fixture
    def engine(self) -> SegmentCompaction:
        return inline(read_max_bytes=1 << 20)


class TestInlineInTinyPieces(SegmentCompactionContract):
    keeps_parallel_partitions = True

    @pytest.fixture
    def engine(self) -> SegmentCompaction:
        return inline(read_max_bytes=1, parallel_reads=1)


class Hooked(SegmentCompaction):
    """The good engine on a job that is tampered with."""

    def tamper(self, job: FakeCompactionJob) -> None:
        raise NotImplementedError

    async def compact(self, job):
        self.tamper(job)
        await inline(read_max_bytes=1 << 20).compact(job)


class CopiesRaw(Hooked):
    """It copies what the producers sent."""

    def tamper(self, job):
        copy = job.remote_storage.copy

        async def raw(metadata, data):
            plan = next(
                one
                for one in job._plans[metadata.segment_id.topic_id_partition]
                if one.start_offset == metadata.start_offset
            )

            async def log():
                async for _ in data.log():
                    pass
                for one in plan.ranges:
                    yield job.memory_objects.objects[one.object_key][one.byte_offset : one.byte_offset + one.byte_size]

            return await copy(metadata, LogSegmentData(log=log, indexes=data.indexes))

        job.remote_storage.copy = raw


class NoSnapshot(Hooked):
    def tamper(self, job):
        copy = job.remote_storage.copy

        async def without(metadata, data):
            def indexes():
                return {**data.indexes(), IndexType.PRODUCER_SNAPSHOT: b"\x00\x01"}

            return await copy(metadata, LogSegmentData(log=data.log, indexes=indexes))

        job.remote_storage.copy = without


class NeverAbandons(Hooked):
    def tamper(self, job):
        async def nothing(metadata):
            del metadata

        job.abandon = nothing


class HidesFailures(Hooked):
    async def compact(self, job):
        try:
            await inline(read_max_bytes=1 << 20).compact(job)
        except Exception:
            return


class TellsNothing(Hooked):
    def tamper(self, job):
        job.progressed = lambda size_bytes: None


class GoesOnAfterALoss(Hooked):
    def tamper(self, job):
        finish = job.finish

        async def always(metadata, custom_metadata):
            await finish(metadata, custom_metadata)
            return True

        job.finish = always


class Forgets(SegmentCompaction):
    async def compact(self, job):
        del job


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (CopiesRaw, "test_every_segment_is_made_exactly"),
        (NoSnapshot, "test_snapshots_have_the_producers_up_to_the_end_of_their_segment"),
        (NeverAbandons, "test_a_storage_that_refuses_a_copy_ends_that_partition"),
        (HidesFailures, "test_a_storage_that_refuses_a_copy_ends_that_partition"),
        (HidesFailures, "test_a_copy_whose_outcome_is_not_known_is_left_for_the_next_job"),
        (TellsNothing, "test_progress_comes_to_the_bytes_that_were_copied"),
        (GoesOnAfterALoss, "test_a_partition_that_another_job_was_quicker_with_is_left_and_the_others_go_on"),
        (Forgets, "test_every_segment_is_made_exactly"),
        (Forgets, "test_the_segments_of_a_partition_are_finished_in_order"),
    ],
)
async def test_the_suite_fails_for_a_broken_engine(broken: type[SegmentCompaction], test: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception, CorruptSnapshotError)):
        await getattr(SegmentCompactionContract(), test)(broken(), FakeCompactionJob())
