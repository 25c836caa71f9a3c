"""Orphan detection for buckets of many millions of objects: what the bucket has and no coordinator knows, by Spark."""
