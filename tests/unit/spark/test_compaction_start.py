"""A compaction whose Spark does not start leaves no trace: without Java, the next one will not start either."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.segment_compaction import SegmentCompactionError
from diskless_core.testing.compaction_folder import FolderCompactionJob
from diskless_core.testing.segment_compaction import filled_job
from diskless_spark import compaction
from diskless_spark.compaction import SparkCompaction
from diskless_spark.config import SparkCompactionSettings


async def test_nothing_is_noted_before_spark_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def no_spark(options):
        raise OSError("no java here")
        yield

    monkeypatch.setattr(compaction, "spark_context", no_spark)
    job = filled_job(FolderCompactionJob(tmp_path))
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    with pytest.raises(SegmentCompactionError, match="no java here"):
        await SparkCompaction(context, SparkCompactionSettings()).compact(job)
    assert job.steps == []
