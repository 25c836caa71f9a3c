"""Orphan detection with Spark keeps the contract of the noun."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.orphan_detection import OrphanDetection, OrphanSearch
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.testing.orphan_detection import OrphanDetectionContract, search_of
from diskless_spark.orphans.config import SparkOrphanSettings
from diskless_spark.orphans.detection import SparkDetection
from tests.support.lent_objects import lent


class TestSpark(OrphanDetectionContract):
    @pytest.fixture
    def detection(self, spark: SparkSession, tmp_path: Path) -> OrphanDetection:
        context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
        return SparkDetection(context, SparkOrphanSettings())

    @pytest.fixture
    def search(self, objects: MemoryWalObjectStore, tmp_path: Path) -> Iterator[OrphanSearch]:
        with lent(objects, tmp_path) as source:
            yield replace(search_of(objects), objects=source)
