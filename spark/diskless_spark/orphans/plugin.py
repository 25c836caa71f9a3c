"""Orphan detection with Spark: the hook. PySpark and Arrow are imported when there is something to do."""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.orphan_detection import OrphanDetectionPlugin
from diskless_spark.orphans.config import SparkOrphanSettings
from diskless_spark.orphans.detection import SparkDetection


@hookimpl
def diskless_orphan_detections() -> list[OrphanDetectionPlugin]:
    """Orphans of buckets that are too large to be listed by one process."""
    return [
        OrphanDetectionPlugin(
            name="spark",
            factory=SparkDetection,
            settings=SparkOrphanSettings,
            api_version="1.0",
            help="Lists the bucket or reads its inventory with Spark, and compares with the coordinators' snapshots.",
        )
    ]
