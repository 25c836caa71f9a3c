"""One search as Spark jobs: lists or reads an inventory, compares, keeps the candidates until they are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from diskless_core.plugin.orphan_detection import OrphanDetectionError, OrphanSearch
from diskless_core.plugin.shard import ShardId
from diskless_core.snapshot.format import Manifest
from diskless_core.wal.format import spreads
from diskless_spark.backends import why_unreachable
from diskless_spark.orphans import tasks
from diskless_spark.orphans.config import SparkOrphanSettings
from diskless_spark.orphans.inventory import Inventory
from diskless_spark.orphans.tally import Tally, unpacked
from diskless_spark.orphans.tasks import ShardPart, Sieve
from diskless_spark.session import cancelled, in_thread, is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

_TASKS_PER_CORE = 2
_JOB_CANDIDATES = 1_000_000
_THREAD = "spark-orphans"


class Job:
    """One search in Spark. It lasts as long as `running`."""

    def __init__(
        self,
        spark: SparkSession,
        search: OrphanSearch,
        settings: SparkOrphanSettings,
        inventory: Inventory | None,
        snapshots: Mapping[ShardId, Manifest],
        *,
        group: str,
    ) -> None:
        self.inventory = inventory
        self.snapshots = snapshots
        self._spark = spark
        self._settings = settings
        self._group = group
        self._sieve = Sieve(
            objects=search.objects,
            prefix=search.prefix.removesuffix("/"),
            threshold_ms=search.threshold_ms,
            parallel_requests=settings.parallel_requests,
        )
        self._unread = spark.sparkContext.accumulator(0)
        self._candidates: DataFrame | None = None

    @property
    def unread_parts(self) -> int:
        return int(self._unread.value)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Tally]:
        """List and compare, and free the executors' disks in the end."""
        comparing = asyncio.ensure_future(in_thread(self._compare, _THREAD))
        try:
            yield await asyncio.shield(comparing)
        finally:
            await cancelled(self._spark.sparkContext, self._group, comparing)
            await in_thread(self._free, _THREAD)

    async def pages(self, tally: Tally) -> AsyncGenerator[Sequence[str], None]:
        """All candidates, a page at a time. Memory holds about a million of them as numbers."""
        candidates = tally.candidates.objects
        if candidates == len(tally.sample):
            if candidates:
                yield tally.sample
            return
        rows, jobs = await in_thread(partial(self._page_rows, -(-candidates // _JOB_CANDIDATES)), _THREAD)
        for partition in range(jobs):
            for page in await in_thread(partial(self._pages_of, rows, partition), _THREAD):
                yield await in_thread(partial(tasks.read_page, self._sieve.prefix, page), _THREAD)

    # --- on threads ----------------------------------------------------------------------------------------------

    def _compare(self) -> Tally:
        from pyspark import StorageLevel

        self._require_reach()
        self._describe("looks for orphans")
        sift = partial(tasks.to_outcome, sieve=self._sieve, verified=self.inventory is not None)
        outcome = self._without_known(self._found()).mapInArrow(sift, tasks.OUTCOME)
        self._candidates = outcome.persist(StorageLevel.DISK_ONLY)
        total = Tally()
        for row in self._candidates.where("tally is not null").select("tally").collect():
            total.add(unpacked(row.tally))
        return total

    def _free(self) -> None:
        if self._candidates is not None:
            self._candidates.unpersist()

    def _page_rows(self, jobs: int) -> tuple[Any, int]:
        if self._candidates is None:
            raise RuntimeError("pages are asked for after the comparison")
        rows = self._candidates.where("page is not null").select("page").coalesce(jobs).rdd
        return rows, rows.getNumPartitions()

    def _pages_of(self, rows: Any, partition: int) -> list[bytes]:
        self._describe("reads candidates")
        return list(self._spark.sparkContext.runJob(rows, _only_pages, [partition]))

    def _found(self) -> DataFrame:
        if self.inventory is not None:
            read = partial(
                tasks.read_inventory,
                sieve=self._sieve,
                inventory=self.inventory,
                key_prefix=self._settings.inventory_key_prefix,
                options=self._settings.parsed_options(),
            )
            return self._tasks(len(self.inventory.files), read, tasks.FOUND)
        prefixes = self._dealt(spreads(self._sieve.prefix))
        return self._tasks(
            len(prefixes), partial(tasks.list_prefixes, sieve=self._sieve, prefixes=prefixes), tasks.FOUND
        )

    def _without_known(self, found: DataFrame) -> DataFrame:
        parts = self._dealt(
            [ShardPart(manifest.tables, part) for manifest in self.snapshots.values() for part in manifest.parts]
        )
        if not parts:
            return found
        read = partial(tasks.read_snapshots, sieve=self._sieve, parts=parts, unread=self._unread)
        # Spark takes what comes of a few task numbers for small, and would send it to the driver and to all executors.
        known = self._tasks(len(parts), read, tasks.KNOWN).hint("merge")
        return self._by_key(found).join(self._by_key(known), list(tasks.KEY), "left_anti")

    def _by_key(self, rows: DataFrame) -> DataFrame:
        """As many tasks as there are cores for, not the 200 that Spark's SQL makes by itself: each runs Python."""
        return rows.repartition(self._spark.sparkContext.defaultParallelism * _TASKS_PER_CORE, *tasks.KEY)

    def _tasks(self, count: int, work: Callable[..., Any], schema: str) -> DataFrame:
        return self._spark.range(0, count, 1, max(1, count)).mapInArrow(work, schema)

    def _dealt(self, work: Sequence[T]) -> list[Sequence[T]]:
        count = self._spark.sparkContext.defaultParallelism * _TASKS_PER_CORE
        return [some for start in range(count) if (some := work[start::count])]

    def _describe(self, doing: str) -> None:
        self._spark.sparkContext.setJobGroup(self._group, f"Diskless {doing}")

    def _require_reach(self) -> None:
        master = self._spark.sparkContext.master or ""
        problem = why_unreachable(self._sieve.objects(), elsewhere=None if is_local(master) else master)
        if problem is not None:
            raise OrphanDetectionError(problem)


def _only_pages(rows: Any) -> list[bytes]:
    return [bytes(row.page) for row in rows]
