"""What Spark's own event log says of a run: its tasks, their times, their shuffle; and how long they took elsewhere."""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Events(NamedTuple):
    """One application.

    Attributes:
        started_ms: when it was begun, in milliseconds since the epoch.
        ready_ms: when Python ran on its executors: when its first job had ended, which does nothing else.
        task_s: seconds of each task since then.
        shuffle_bytes: written and read between tasks.
    """

    started_ms: int
    ready_ms: int
    task_s: Sequence[float]
    shuffle_bytes: int


def read(folder: Path) -> Events:
    """The only application whose event log is in a folder."""
    started_ms, ready_ms, task_s, shuffle_bytes = 0, 0, [], 0
    for event in _events(folder):
        match event["Event"]:
            case "SparkListenerApplicationStart":
                started_ms = int(event["Timestamp"])
            case "SparkListenerJobEnd":
                ready_ms = ready_ms or int(event["Completion Time"])
            case "SparkListenerTaskEnd" if ready_ms:
                info, metrics = event["Task Info"], event["Task Metrics"]
                task_s.append((info["Finish Time"] - info["Launch Time"]) / 1000)
                shuffle_bytes += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
                shuffle_bytes += metrics["Shuffle Read Metrics"]["Remote Bytes Read"]
                shuffle_bytes += metrics["Shuffle Read Metrics"]["Local Bytes Read"]
    return Events(started_ms, ready_ms, task_s, shuffle_bytes)


def _events(folder: Path) -> Iterator[Any]:
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.name.endswith(".crc") or "appstatus" in path.name:
            continue
        for line in path.read_text().splitlines():
            yield json.loads(line)


class Cluster(NamedTuple):
    """A cluster that is not there.

    Attributes:
        slow_executors: how many of the executors are stragglers, `slow_factor` times as slow as the others.
        requests_s: requests that the bucket takes in a second.
    """

    executors: int
    cores: int
    slow_executors: int
    slow_factor: float
    requests_s: float


def simulated_s(cluster: Cluster, task_s: Sequence[float], tasks: int, requests: int, *, speculation: bool) -> float:
    """Seconds until so many tasks are done whose times are drawn from the measured ones.

    A task goes to the core that is free first. With speculation, what runs longer than one and a half times the median
    begins once more on a free core of an executor that is no straggler, as Spark does it in the end of a stage. The
    bucket's limit holds for all of them together.
    """
    rng = random.Random(1)
    durations = sorted((rng.choice(task_s) for _ in range(tasks)), reverse=True)
    limit_s = 1.5 * sorted(durations)[tasks // 2]
    cores = [
        (0.0, number, cluster.slow_factor if number < cluster.slow_executors * cluster.cores else 1.0)
        for number in range(cluster.executors * cluster.cores)
    ]
    heapq.heapify(cores)
    end_s = 0.0
    for duration_s in durations:
        free_s, number, factor = heapq.heappop(cores)
        took_s = duration_s * factor
        if speculation and took_s > limit_s:
            took_s = min(took_s, limit_s + duration_s)
        heapq.heappush(cores, (free_s + took_s, number, factor))
        end_s = max(end_s, free_s + took_s)
    return max(end_s, requests / cluster.requests_s)
