"""No batch is forgotten for a copy that is not what was written, whichever process made it or finishes it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from diskless_core.plugin.remote_storage import IndexType, LogSegmentData, RemoteStorage
from diskless_core.plugin.segment_building.comparing import CopyDiffersError, NotingRemoteStorage
from diskless_core.plugin.segment_compaction import (
    CompactionJob,
    SegmentCompaction,
    SegmentCompactionError,
    WrittenCopy,
    WrittenFile,
)
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage, Operation, StoredSegment, access_denied
from diskless_core.tiering.compaction import Compactor
from diskless_core.tiering.report import JobReport, JobState
from diskless_tiering.config import InlineSettings
from diskless_tiering.inline import InlineCompaction
from tests.support.compaction_world import CompactionWorld
from tests.support.external_jobs import WorldBackends, drive
from tests.support.guarantees import guarantee
from tests.support.produce_path import ProducePath
from tests.support.virtual_time import run

Damage = Callable[[StoredSegment], None]


class DamagingStorage(MemoryRemoteStorage):
    """Damages the first copies that it is given, as `damages` say, and reports them as made.

    Attributes:
        discarded: segments of which unfinished copies were thrown away.
    """

    def __init__(self) -> None:
        super().__init__(custom_metadata=b"custom")
        self.damages: list[Damage] = []
        self.discarded: list[RemoteLogSegmentId] = []

    async def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        custom_metadata = await super().copy(metadata, data)
        if self.damages:
            self.damages.pop()(self.segments[metadata.segment_id])
        return custom_metadata

    async def discard_unfinished(self, metadata: RemoteLogSegmentMetadata) -> None:
        assert self.segments[metadata.segment_id].is_complete, "the copy was removed"
        self.discarded.append(metadata.segment_id)


class CopiesElsewhere(SegmentCompaction):
    """Has the segments made in another process, whose copies the job's own `remote_storage` does not see.

    Args:
        says_what: whether it says what that process wrote, and has read back.
        false: an index whose checksum it reports wrongly.
    """

    def __init__(self, storage: RemoteStorage, *, says_what: bool, false: IndexType | None = None) -> None:
        self._storage = storage
        self._says_what = says_what
        self._false = false

    async def compact(self, job: CompactionJob) -> None:
        finish, noting = job.finish, NotingRemoteStorage(self._storage)

        async def finished(metadata: RemoteLogSegmentMetadata, custom_metadata: bytes | None) -> bool:
            if not self._says_what:
                return await finish(metadata, custom_metadata)
            return await finish(metadata, custom_metadata, self._said(noting.take_written(metadata.segment_id)))

        job.remote_storage = noting
        job.finish = finished  # type: ignore[method-assign,assignment]
        await InlineCompaction(None, InlineSettings()).compact(job)  # type: ignore[arg-type]

    def _said(self, written: WrittenCopy | None) -> WrittenCopy:
        assert written is not None
        if self._false is None:
            return written
        return WrittenCopy(log=written.log, indexes={**written.indexes, self._false: WrittenFile.of(b"another one")})


Compact = Callable[[CompactionWorld, Compactor], Any]


async def in_the_broker(world: CompactionWorld, compactor: Compactor) -> JobReport:
    return await world.compact(compactor)


async def by_a_driver(world: CompactionWorld, compactor: Compactor) -> JobReport:
    return await drive(compactor, WorldBackends(world))


async def by_a_driver_whose_engine_copies_elsewhere(world: CompactionWorld, compactor: Compactor) -> JobReport:
    return await drive(compactor, WorldBackends(world, engine=CopiesElsewhere(world.remote, says_what=True)))


async def by_a_driver_whose_engine_says_nothing(world: CompactionWorld, compactor: Compactor) -> JobReport:
    return await drive(compactor, WorldBackends(world, engine=CopiesElsewhere(world.remote, says_what=False)))


def in_a_world(test: Callable[[CompactionWorld, DamagingStorage], Any]) -> None:
    """Run on virtual time with some batches in a partition. No record is lost, whatever becomes of the copies."""

    async def main() -> None:
        async with ProducePath() as path:
            world = CompactionWorld(path)
            world.remote = storage = DamagingStorage()
            await world.fill(0)
            await test(world, storage)
            await world.check()

    run(main)


def a_bit_of_the_log(stored: StoredSegment) -> None:
    log = bytearray(stored.log)
    log[len(log) // 2] ^= 1
    stored.log = bytes(log)


def a_bit_of_the_last_record(stored: StoredSegment) -> None:
    log = bytearray(stored.log)
    log[-1] ^= 1
    stored.log = bytes(log)


def the_end_of_the_log(stored: StoredSegment) -> None:
    stored.log = stored.log[:-1]


def bytes_behind_the_log(stored: StoredSegment) -> None:
    stored.log += b"\0"


def a_bit_of_an_index(stored: StoredSegment) -> None:
    index = bytearray(stored.indexes[IndexType.TIMESTAMP])
    index[0] ^= 1
    stored.indexes[IndexType.TIMESTAMP] = bytes(index)


def a_whole_index(stored: StoredSegment) -> None:
    del stored.indexes[IndexType.OFFSET]


OF_THE_LOG = [a_bit_of_the_log, a_bit_of_the_last_record, the_end_of_the_log, bytes_behind_the_log]
OF_INDEXES = [a_bit_of_an_index, a_whole_index]


@pytest.mark.parametrize(
    ("compact", "damage"),
    [
        *((compact, damage) for compact in (in_the_broker, by_a_driver) for damage in OF_THE_LOG + OF_INDEXES),
        *((by_a_driver_whose_engine_copies_elsewhere, damage) for damage in [the_end_of_the_log, *OF_INDEXES]),
        *((by_a_driver_whose_engine_says_nothing, damage) for damage in OF_THE_LOG[:3]),
    ],
)
@guarantee(
    "Deletion and retention",
    "No batch is forgotten for a segment before its copy, log and indexes, has been read back and is what was written.",
)
def test_a_copy_that_differs_is_removed_and_reported_and_the_next_compaction_makes_it_again(
    compact: Compact, damage: Damage
) -> None:
    async def test(world: CompactionWorld, storage: DamagingStorage) -> None:
        compactor = world.compactor()
        storage.damages = [damage]
        report = await compact(world, compactor)
        assert report.state is JobState.FAILED
        assert len(report.failures) == 1
        assert "t-0" in report.failures[0] or "of t" in report.failures[0]
        assert world.tiered_ids(0) == [], "batches were forgotten for a copy that differs"
        assert storage.segments == {}, "what differs stays"
        assert not storage.damages
        await world.check_clean()
        again = await compact(world, compactor)
        assert (again.state, again.failures) == (JobState.FINISHED, [])
        assert len(world.tiered_ids(0)) > 1
        await world.check_clean()

    in_a_world(test)


@pytest.mark.parametrize(
    "compact",
    [
        in_the_broker,
        by_a_driver,
        by_a_driver_whose_engine_copies_elsewhere,
        by_a_driver_whose_engine_says_nothing,
    ],
)
def test_unfinished_copies_are_thrown_away_when_a_segment_is_finished(compact: Compact) -> None:
    async def test(world: CompactionWorld, storage: DamagingStorage) -> None:
        report = await compact(world, world.compactor())
        assert (report.state, report.failures) == (JobState.FINISHED, [])
        assert storage.discarded == world.tiered_ids(0)
        assert len(storage.discarded) > 1
        await world.check_clean()

    in_a_world(test)


def test_a_storage_that_cannot_throw_unfinished_copies_away_gets_its_segments_all_the_same() -> None:
    async def test(world: CompactionWorld, storage: DamagingStorage) -> None:
        async def refused(metadata: RemoteLogSegmentMetadata) -> None:
            raise access_denied()

        storage.discard_unfinished = refused  # type: ignore[method-assign]
        report = await world.compact()
        assert (report.state, report.failures) == (JobState.FINISHED, [])
        await world.check_clean()

    in_a_world(test)


def test_the_broker_does_not_read_a_log_again_that_an_engine_has_read_back() -> None:
    async def test(world: CompactionWorld, storage: DamagingStorage) -> None:
        report = await by_a_driver_whose_engine_copies_elsewhere(world, world.compactor())
        assert report.segments > 1
        assert storage.calls[Operation.FETCH] == report.segments, "more than the end of each"

    in_a_world(test)


def test_what_an_engine_says_falsely_is_no_proof() -> None:
    async def test(world: CompactionWorld, storage: DamagingStorage) -> None:
        engine = CopiesElsewhere(storage, says_what=True, false=IndexType.OFFSET)
        report = await drive(world.compactor(), WorldBackends(world, engine=engine))
        assert "is not what was written to remote storage: its .index has" in report.failures[0]
        assert world.tiered_ids(0) == []

    in_a_world(test)


@pytest.mark.parametrize("compact", [in_the_broker, by_a_driver, by_a_driver_whose_engine_says_nothing])
def test_a_copy_that_cannot_be_read_back_is_not_finished(compact: Compact) -> None:
    async def test(world: CompactionWorld, storage: DamagingStorage) -> None:
        compactor = world.compactor()
        with storage.failing(Operation.FETCH, error=access_denied):
            report = await compact(world, compactor)
        assert report.state is JobState.FAILED
        assert "cannot be read back: 403 AccessDenied" in report.failures[0]
        assert world.tiered_ids(0) == []
        await compact(world, compactor)
        await world.check_clean()

    in_a_world(test)


def test_a_copy_that_differs_is_an_error_of_the_copies() -> None:
    async def test(world: CompactionWorld, storage: DamagingStorage) -> None:
        compactor = world.compactor()
        storage.damages = [a_bit_of_the_log]
        await world.compact(compactor)
        errors = compactor._services.segments.metrics.remote_copy_errors
        assert errors._value.get() == 1

    in_a_world(test)


class FinishesAll(SegmentCompaction):
    """Keeps what `finish` raised."""

    def __init__(self) -> None:
        self.raised: list[SegmentCompactionError] = []

    async def compact(self, job: CompactionJob) -> None:
        async with aclosing(job.segments(job.partitions[0])) as segments:
            async for segment in segments:
                metadata = await job.begin(segment)
                try:
                    await job.finish(metadata, b"custom")
                except SegmentCompactionError as error:
                    self.raised.append(error)


def test_a_segment_without_a_copy_is_not_finished() -> None:
    async def test(world: CompactionWorld, storage: DamagingStorage) -> None:
        engine = FinishesAll()
        await world.compact(world.compactor(engine=engine))
        assert engine.raised
        assert all(isinstance(error, CopyDiffersError) for error in engine.raised)
        assert world.tiered_ids(0) == []
        await world.check_clean()

    in_a_world(test)
