"""Retention where the older records are in segments: whole segments first, oldest first, then runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.run_lookup import PAGE_RUNS
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import PartitionHead
from diskless_core.files.retention import OFF, RetentionRules
from diskless_core.files.retention_worker import RetentionSchedule, RetentionWorker
from diskless_core.wal.runs import Run
from tests.support.guarantees import guarantee
from tests.support.produce_path import batch_of, key_of
from tests.support.tiered_path import TieredPath
from tests.support.virtual_time import START_MS, run

KEY = key_of(0)
HOUR_MS = 3_600_000
SIZE = len(batch_of(b"0"))


class Retained:
    """A worker with rules that a test changes."""

    def __init__(self, path: TieredPath, shard: DisklessShard | None = None) -> None:
        self.rules = RetentionRules(retention_ms=OFF, retention_bytes=OFF)
        self._path = path
        self.worker = RetentionWorker(
            {0: shard or path.node.shard},
            self._rules_of,
            RetentionSchedule(initial_delay_ms=0, interval_ms=1),
        )

    def _rules_of(self, partition: PartitionKey) -> RetentionRules | None:
        return self.rules if partition == KEY else None

    async def log_start(self, *, retention_ms: int = OFF, retention_bytes: int = OFF) -> int:
        """Where the partition begins after a check."""
        self.rules = RetentionRules(retention_ms=retention_ms, retention_bytes=retention_bytes)
        await self.worker.check()
        return head_of(self._path).log_start_offset


def head_of(path: TieredPath) -> PartitionHead:
    head = path.node.shard.head(KEY)
    assert head is not None
    return head


async def fill(path: TieredPath, count: int, *tiered_to: int) -> None:
    """Batches of one record, an hour apart, in segments that end with these offsets."""
    for number in range(count):
        await path.produce((0, batch_of(b"%d" % (number % 10), timestamp_ms=START_MS + number * HOUR_MS)))
    for through in tiered_to:
        await path.tier(through=through)


@guarantee("Deletion and retention", "Retention removes whole segments, the oldest first, and then from WAL objects.")
def test_by_size_whole_segments_go_and_then_runs() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 20, 4, 9)
            assert head_of(path).size_bytes == 20 * SIZE
            retained = Retained(path)
            for batches, log_start in ((20, 0), (16, 0), (15, 5), (11, 5), (10, 10), (9, 11), (3, 17)):
                assert await retained.log_start(retention_bytes=batches * SIZE) == log_start
                assert head_of(path).size_bytes == (20 - log_start) * SIZE
            assert path.node.shard.tiered(KEY) == ()

    run(main)


def test_by_time_a_segment_goes_with_its_latest_record() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 20, 4, 9)
            retained = Retained(path)
            await asyncio.sleep(4 * 3600)
            assert await retained.log_start(retention_ms=HOUR_MS // 2) == 0
            await asyncio.sleep(3600)
            assert await retained.log_start(retention_ms=HOUR_MS // 2) == 5
            await asyncio.sleep(3600 * 20)
            assert await retained.log_start(retention_ms=20 * HOUR_MS) == 5
            assert await retained.log_start(retention_ms=12 * HOUR_MS) == 13
            assert await retained.log_start(retention_ms=HOUR_MS // 2) == 20

    run(main)


def test_a_log_start_within_a_segment_keeps_its_bytes_until_all_of_it_goes() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 20, 4, 9)
            await path.node.shard.delete_records(KEY, 7)
            assert head_of(path).size_bytes == 15 * SIZE
            retained = Retained(path)
            assert await retained.log_start(retention_bytes=11 * SIZE) == 7
            assert await retained.log_start(retention_bytes=10 * SIZE) == 10
            assert head_of(path).size_bytes == 10 * SIZE

    run(main)


def test_what_stays_is_not_looked_at_again_although_it_moves_into_a_segment() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 20, 4)
            retained = Retained(path)
            assert await retained.log_start(retention_bytes=15 * SIZE) == 5
            await path.tier(through=9)
            assert await retained.log_start(retention_bytes=14 * SIZE) == 5  # the segment is larger than its runs
            assert await retained.log_start(retention_bytes=10 * SIZE) == 10

    run(main)


@pytest.mark.parametrize("moves", ["compaction", "DeleteRecords"])
def test_runs_that_go_between_two_pages_do_not_count_as_kept(moves: str) -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, PAGE_RUNS + 40)
            shard, pages = path.node.shard, list[int]()

            class Moving:
                """Between the first page and the second, runs of both leave WAL objects, and are trimmed."""

                def __getattr__(self, name: str) -> Any:
                    return getattr(shard, name)

                async def runs_from(self, partition: PartitionKey, offset: int) -> Sequence[Run]:
                    pages.append(offset)
                    if len(pages) == 2 and moves == "compaction":
                        await path.tier(through=PAGE_RUNS + 4)
                    elif len(pages) == 2:
                        await shard.delete_records(partition, PAGE_RUNS + 5)
                    begin = head_of(path).local_start_offset
                    return [run for run in await shard.runs_from(partition, offset) if run.base_offset >= begin]

            retained = Retained(path, Moving())  # type: ignore[arg-type]
            kept = 30
            assert await retained.log_start(retention_bytes=kept * SIZE) <= PAGE_RUNS + 5
            assert len(pages) == 2
            assert head_of(path).size_bytes >= kept * SIZE
            await retained.log_start(retention_bytes=kept * SIZE)
            assert head_of(path).size_bytes >= kept * SIZE

    run(main)
