"""Spark for Diskless: bulk compaction, topics as DataFrames, orphans of huge buckets."""
