"""Run as a process of its own: compactions on a small cluster of Spark in which things go wrong.

Arguments: a folder. It prints one line for each compaction that came out right.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.testing.compaction_folder import FolderCompactionJob
from diskless_core.testing.segment_compaction import check_segments, filled_job
from diskless_spark.compaction import SparkCompaction
from diskless_spark.config import SparkCompactionSettings
from tests.support.spark import spark_environment

MASTER = "local-cluster[2,1,512]"
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.log.level": "ERROR",
}


async def compact(folder: Path, *faults: str, meanwhile: Callable[[FolderCompactionJob], None] | None = None) -> None:
    job = FolderCompactionJob(folder)
    filled_job(job)
    for fault in faults:
        (job.faults / fault).touch()
    context = PluginContext(node_id=1, data_dir=folder, log_dir=folder, clock=SystemClock())
    running = asyncio.create_task(SparkCompaction(context, SparkCompactionSettings()).compact(job))
    if meanwhile is not None:
        async with job.while_copying(running):
            meanwhile(job)
    await running
    assert job.finished.keys() == job.expected.keys()
    assert not [step for step in job.steps if step[0] == "abandon"]
    assert not any(job.faults.glob("*-*")), "a fault did not happen"
    check_segments(job)


def kill_an_executor(_: FolderCompactionJob) -> None:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # workers come and go
            if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                process.kill()
                return
    raise AssertionError("there is no executor")


async def main(folder: Path) -> None:
    await compact(folder / "retry", "fail-1")
    print("retry", flush=True)
    await compact(folder / "lost", meanwhile=kill_an_executor)
    print("lost executor", flush=True)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    os.environ.update(spark_environment(), SPARK_WORKER_DIR=str(where / "work"))
    builder = SparkSession.builder.master(MASTER).appName("faults")
    for key, value in {**CONF, "spark.local.dir": str(where / "local")}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        asyncio.run(main(where))
    finally:
        session.stop()
