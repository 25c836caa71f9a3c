"""Spark for Diskless: bulk compaction, topics as DataFrames, orphans of huge buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("diskless")` and `readStream` known to a session."""
    from diskless_spark.source.source import register as register_source

    register_source(spark)
