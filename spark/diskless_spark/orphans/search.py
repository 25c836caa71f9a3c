"""One search for orphans: an anti-join of what is in the bucket with what the coordinators' snapshots know.

What a snapshot knows was committed, refused or handed over: coordinators see it through to its end, and forget it
when another has it or it is deleted. So it is no orphan, however old the snapshot is, and is not asked for again. All
else is a candidate: a snapshot that is old, missing or damaged makes more of them, never less.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from diskless_core.clock import Clock
from diskless_core.plugin.orphan_detection import OrphanDetectionError, OrphanSearch
from diskless_core.plugin.retrying import Retrying
from diskless_core.plugin.shard import ShardId
from diskless_core.snapshot import reading
from diskless_core.snapshot.format import Manifest
from diskless_spark.backends import SteadyObjects, started_objects
from diskless_spark.orphans import tasks
from diskless_spark.orphans.config import SparkOrphanSettings
from diskless_spark.orphans.inventory import Inventory, InventoryError, find_inventory
from diskless_spark.orphans.job import Job
from diskless_spark.orphans.report import Report
from diskless_spark.orphans.tally import Kind, Tally, as_mapping
from diskless_spark.session import in_thread, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_THREAD = "spark-orphans"

_log = structlog.get_logger(__name__)


class SparkSearch:
    """One search, for `pages` to be asked for once."""

    def __init__(self, clock: Clock, settings: SparkOrphanSettings, search: OrphanSearch) -> None:
        self._clock = clock
        self._settings = settings
        self._search = search

    async def pages(self) -> AsyncGenerator[Sequence[str], None]:
        """Keys of candidates, when all is compared and reported.

        Raises:
            OrphanDetectionError, WalObjectStoreError: as `OrphanDetection.find`.
        """
        try:
            async with (
                spark_session(self._settings.session()) as spark,
                aclosing(self._pages(spark)) as pages,
            ):
                async for page in pages:
                    yield page
        except (InventoryError, OSError, ImportError, PySparkException, Py4JError) as error:
            raise OrphanDetectionError(f"the search for orphans was not finished: {_reason(error)}") from error

    async def _pages(self, spark: SparkSession) -> AsyncGenerator[Sequence[str], None]:
        search = self._search
        inventory = await self._inventory()
        snapshots = await newest_snapshots(search, tasks.retrying)
        job = Job(spark, search, self._settings, inventory, snapshots, group=f"orphans-{self._clock.new_uuid()}")
        async with job.running() as tally:
            search.note_listed(tally.listed.objects)
            self._require_own(tally)
            await in_thread(partial(self._report, job, tally), _THREAD)
            async with aclosing(job.pages(tally)) as pages:
                async for page in pages:
                    yield page

    async def _inventory(self) -> Inventory | None:
        settings = self._settings
        if not settings.inventory_url:
            return None
        find = partial(find_inventory, settings.inventory_url, settings.parsed_options())
        inventory = await in_thread(find, _THREAD)
        age_ms = self._clock.now_ms() - inventory.created_ms
        if age_ms > settings.inventory_max_age_ms:
            raise OrphanDetectionError(
                f"the inventory {inventory.url} is {age_ms // 3_600_000} hours old: look why there is no newer one, or "
                f"raise orphan_detection.spark.inventory.max.age.ms"
            )
        _log.info("orphans are looked for in an inventory", url=inventory.url, age_ms=age_ms)
        return inventory

    def _require_own(self, tally: Tally) -> None:
        """With a wrong prefix nothing would be found, for ever."""
        if self._settings.inventory_url and tally.listed.objects and tally.listed == tally.of(Kind.OTHER):
            raise OrphanDetectionError(
                f"none of the {tally.listed.objects} objects of the inventory is a WAL object below "
                f"{self._settings.inventory_key_prefix + self._search.prefix!r}: set "
                f"orphan_detection.spark.inventory.key.prefix"
            )

    def _report(self, job: Job, tally: Tally) -> None:
        report = Report(
            made_at_ms=self._clock.now_ms(),
            threshold_ms=self._search.threshold_ms,
            inventory=job.inventory,
            snapshots={str(shard): manifest.taken_at for shard, manifest in job.snapshots.items()},
            unread_parts=job.unread_parts,
            tally=tally,
        )
        url = self._settings.report_url
        written = report.write(url, self._settings.parsed_options()) if url else None
        _log.info(
            "objects were compared with what the coordinators know",
            listed=as_mapping(tally.listed),
            known=as_mapping(tally.known),
            too_young=as_mapping(tally.of(Kind.YOUNG)),
            candidates=as_mapping(tally.candidates),
            unread_parts=job.unread_parts,
            report=written,
        )


async def newest_snapshots(search: OrphanSearch, retrying: Retrying) -> Mapping[ShardId, Manifest]:
    """The newest snapshot of each shard that has one.

    Raises:
        WalObjectStoreError: they cannot be looked for.
    """
    async with started_objects(search.objects, retrying) as store:
        return await reading.manifests(SteadyObjects(store, retrying), search.snapshot_prefix)


def _reason(error: Exception) -> str:
    """The error that a task raised, as far as Spark tells it."""
    lines = [line.strip() for line in str(error).splitlines()]
    named = [line for line in lines if line and not line.startswith("at ") and "Error: " in line]
    return named[-1] if named else next(iter(lines), type(error).__name__)
