"""The detector `spark`. What it needs of Arrow and Spark is imported when there is something to do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.orphan_detection import OrphanDetection, OrphanSearch
from diskless_spark.orphans.config import SparkOrphanSettings
from diskless_spark.session import in_thread

if TYPE_CHECKING:
    from diskless_spark.orphans.search import SparkSearch


class SparkDetection(OrphanDetection):
    """Lists a bucket, or reads its inventory, and compares in parallel; yields when all is compared and reported."""

    def __init__(self, context: PluginContext, settings: SparkOrphanSettings) -> None:
        self._clock = context.clock
        self._settings = settings

    async def find(self, search: OrphanSearch) -> AsyncIterator[Sequence[str]]:
        make = await in_thread(_spark_search, "spark-orphans")
        async with aclosing(make(self._clock, self._settings, search).pages()) as pages:
            async for page in pages:
                yield page


def _spark_search() -> type[SparkSearch]:
    """The import takes the better part of a second."""
    from diskless_spark.orphans.search import SparkSearch

    return SparkSearch
