"""Measures what brokers share: their logs, and how they stand each other's end.

`python -m tests.benchmarks.bench --only cluster`
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.benchmarks import cluster_cache, cluster_faults, cluster_logs, cluster_requests
from tests.benchmarks.apart import Add
from tests.benchmarks.broker_cluster import BrokerCluster

ABOUT = (
    "Appends are of one entry of 200 bytes at a time; their baselines do the same with nothing of Diskless. Commands "
    "are CommitFiles of one batch, 64 of them under way, of a shard as in the section on the coordinator. S3 is moto, "
    "a server in Python, whose answers come 20 ms later, or versitygw over a folder; both with no linger "
    "(`coordinator_log.bucket.linger.ms=0`) unless it is said. Then three brokers with the bucket log over one folder, "
    "and three idempotent librdkafka producers, which each began with another broker and write to all partitions. A "
    "time until producers are acknowledged again is that from the signal to the first acknowledgement of what was "
    "sent after it, of the slowest producer and partition; a gap is the longest time between two acknowledgements of "
    "one producer in one partition. Each is the median and the longest of several rounds. All that was acknowledged "
    "is read in the end, and nothing may be lost, doubled or out of order. The cache that brokers share: consumers "
    "begin at the first record with all caches empty, one at each broker in turn, and read everything at once. CPU "
    "time is that of the kernel's clock of each process; what brokers use at rest is taken off. Each broker in turn "
    "takes 192 MiB from one producer, which uses no other broker, and then gives them to one consumer. Each creation "
    "is of topics of one partition in one request, the quickest of several; the logs that produce is compared on lie "
    "on this machine, `bucket` in files."
)


def measure(add: Add) -> None:
    """All figures of this section."""
    with tempfile.TemporaryDirectory(prefix="diskless-bench-") as folder:
        cluster_logs.measure(add, Path(folder))
    with (
        tempfile.TemporaryDirectory(prefix="diskless-bench-", ignore_cleanup_errors=True) as folder,
        BrokerCluster(Path(folder)) as brokers,
    ):
        cluster_faults.measure_followers(add, brokers)
        cluster_faults.measure_faults(add, brokers)
        cluster_requests.measure_creations(add, brokers)
        cluster_faults.measure_joining(add, brokers)
    with tempfile.TemporaryDirectory(prefix="diskless-bench-", ignore_cleanup_errors=True) as folder:
        cluster_cache.measure_requests(add, Path(folder))
        cluster_cache.measure_cpu(add, Path(folder))
    with tempfile.TemporaryDirectory(prefix="diskless-bench-", ignore_cleanup_errors=True) as folder:
        cluster_requests.measure_produce(add, Path(folder))
        cluster_requests.measure_groups(add, Path(folder))
