"""Run as a process of its own: compactions on small clusters of Spark in which things go wrong.

Arguments: a folder. It prints one line for each compaction that came out right.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.testing.compaction_folder import FolderCompactionJob
from diskless_core.testing.segment_compaction import check_segments, filled_job
from diskless_spark.compaction import SparkCompaction
from diskless_spark.config import SparkCompactionSettings
from tests.support.compaction_jobs import made_inline, made_of, producers_come_and_go
from tests.support.spark import spark_environment

LOCAL_CLUSTER = "local-cluster[2,1,512]"
HOSTS = ("127.0.0.1", "127.0.0.2")
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": HOSTS[0],
    "spark.driver.bindAddress": HOSTS[0],
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.log.level": "ERROR",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.efficiency.enabled": "false",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


@contextmanager
def session(folder: Path, master: str, conf: Mapping[str, str] | None = None) -> Iterator[None]:
    builder = SparkSession.builder.master(master).appName("faults")
    for key, value in {**CONF, "spark.local.dir": str(folder / "local"), **(conf or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield
    finally:
        session.stop()


@contextmanager
def cluster_of_two_hosts(folder: Path) -> Iterator[str]:
    """The URL of a master with a worker on each of `HOSTS`; they are in the JVM of the driver, executors are not."""
    SparkContext._ensure_initialized(conf=SparkConf())
    jvm: Any = SparkContext._jvm
    deploy, conf = jvm.org.apache.spark.deploy, jvm.org.apache.spark.SparkConf()
    none, any_port, cores, memory_mb = jvm.scala.Option.empty(), 0, 1, 512
    parts = [deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], any_port, any_port, conf)._1()]
    try:
        urls = SparkContext._gateway.new_array(jvm.String, 1)
        urls[0] = parts[0].address().toSparkURL()
        for number, host in enumerate(HOSTS):
            where, name = str(folder / f"work-{number}"), jvm.scala.Option.apply(number)
            start = deploy.worker.Worker.startRpcEnvAndEndpoint
            parts.append(start(host, any_port, any_port, cores, memory_mb, urls, where, name, conf, none))
        yield urls[0]
    finally:
        for part in reversed(parts):
            part.shutdown()
            part.awaitTermination()


async def compact(job: FolderCompactionJob, *faults: str, **settings: Any) -> None:
    for fault in faults:
        (job.faults / fault).touch()
    context = PluginContext(node_id=1, data_dir=job.folder, log_dir=job.folder, clock=SystemClock())
    await SparkCompaction(context, SparkCompactionSettings(**settings)).compact(job)
    assert job.finished.keys() == job.expected.keys()
    assert not [step for step in job.steps if step[0] == "abandon"]
    assert not any(job.faults.glob("*-*")), "a fault did not happen"
    check_segments(job)


async def retry(folder: Path) -> None:
    await compact(filled_job(FolderCompactionJob(folder)), "fail-1")


async def lost_executor(folder: Path) -> None:
    job = filled_job(FolderCompactionJob(folder))
    running = asyncio.create_task(compact(job))
    async with job.while_copying(running):
        kill_an_executor()
    await running


def kill_an_executor() -> None:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # workers come and go
            if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                process.kill()
                return
    raise AssertionError("there is no executor")


async def straggler(folder: Path) -> None:
    """One attempt does not end before another one of its task has. Both may write at the end."""
    job = producers_come_and_go(FolderCompactionJob(folder / "spark"))
    job.objects.is_node_local = job.remote_storage.is_node_local = False  # "hosts" share this machine's files
    await compact(job, "straggle-1", task_bytes=1)
    assert made_of(job) == await made_inline(folder / "inline")


def check_speculation(event_log: Path) -> None:
    """A compaction's task had a second attempt, on the other host, and no attempt failed."""
    [file] = event_log.iterdir()
    events = [json.loads(line) for line in file.read_text().splitlines()]
    stages = {
        stage
        for event in events
        if event["Event"] == "SparkListenerJobStart"
        and event["Properties"]["spark.job.description"].startswith("compaction of")
        for stage in event["Stage IDs"]
    }
    begun, ended = (
        [event for event in events if event["Event"] == name and event["Stage ID"] in stages]
        for name in ("SparkListenerTaskStart", "SparkListenerTaskEnd")
    )
    infos = [event["Task Info"] for event in begun]
    twice = [info["Index"] for info in infos if info["Speculative"]]
    assert twice, "no attempt was speculative"
    for index in twice:
        assert {info["Host"] for info in infos if info["Index"] == index} == set(HOSTS)
    assert {event["Task End Reason"]["Reason"] for event in ended} <= {"Success", "TaskKilled"}


def main(folder: Path) -> None:
    os.environ.update(spark_environment(), SPARK_WORKER_DIR=str(folder / "work"))
    scenarios: list[Callable[[Path], Any]] = [retry, lost_executor]
    with session(folder, LOCAL_CLUSTER):
        for scenario in scenarios:
            asyncio.run(scenario(folder / scenario.__name__))
            print(scenario.__name__, flush=True)
    event_log = folder / "events"
    event_log.mkdir()
    with cluster_of_two_hosts(folder) as master:
        with session(folder, master, {**SPECULATION, "spark.eventLog.dir": event_log.as_uri()}):
            asyncio.run(straggler(folder / "straggler"))
        check_speculation(event_log)
        print("straggler", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
