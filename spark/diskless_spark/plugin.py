"""Compaction with Spark: the hook. PySpark is imported when there is something to do."""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.segment_compaction import SegmentCompactionPlugin
from diskless_spark.compaction import SparkCompaction
from diskless_spark.config import SparkCompactionSettings


@hookimpl
def diskless_segment_compactions() -> list[SegmentCompactionPlugin]:
    """Compaction of much at once, on any number of machines."""
    return [
        SegmentCompactionPlugin(
            name="spark",
            factory=SparkCompaction,
            settings=SparkCompactionSettings,
            api_version="1.0",
            help="Compacts with Spark, on this machine or on a cluster.",
        )
    ]
