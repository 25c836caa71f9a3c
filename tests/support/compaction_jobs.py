"""A compaction job whose producer snapshots depend on all that came before, and what an engine made of a job."""

from __future__ import annotations

from pathlib import Path

from diskless_core.clock import SystemClock
from diskless_core.log.producer_snapshot import ProducerEntry
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import IndexType
from diskless_core.testing.compaction_folder import FolderCompactionJob
from diskless_core.testing.compaction_job import TIME_MS, a_batch
from diskless_tiering.config import InlineSettings
from diskless_tiering.inline import InlineCompaction

Made = dict[tuple[int, int], tuple[bytes, dict[IndexType, bytes]]]
"""Log and indexes of segments, by partition and start offset."""


def producers_come_and_go(job: FolderCompactionJob) -> FolderCompactionJob:
    """Two partitions of six segments, with producers that write again, are new, or expire in each of them."""
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


def made_of(job: FolderCompactionJob) -> Made:
    """What is there of all segments, which have to be finished."""
    assert job.finished.keys() == job.expected.keys()
    found: Made = {}
    for key, metadata in job.finished.items():
        stored = job.stored(metadata)
        assert stored is not None
        found[key] = (stored.log, stored.indexes)
    return found


async def made_inline(folder: Path) -> Made:
    """What the engine `inline` makes of `producers_come_and_go`."""
    job = producers_come_and_go(FolderCompactionJob(folder))
    context = PluginContext(node_id=1, data_dir=folder, log_dir=folder, clock=SystemClock())
    await InlineCompaction(context, InlineSettings()).compact(job)
    return made_of(job)
