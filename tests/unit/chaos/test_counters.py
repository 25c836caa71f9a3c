"""A chaos run counts what brokers do for each other."""

from __future__ import annotations

from diskless_core.metrics import Metrics
from tests.chaos.counters import FORWARDED, counted, peer_reads


def test_what_brokers_do_for_each_other_is_read_from_their_metrics() -> None:
    metrics = Metrics()
    metrics.forwarded_requests.labels(api="CreateTopics").inc(2)
    metrics.forwarded_requests.labels(api="DeleteTopics").inc()
    metrics.peer_reads.labels(outcome="answered").inc(4)
    metrics.peer_reads.labels(outcome="wrong").inc(5)
    assert counted(metrics.exposition().decode()) == {FORWARDED: 3, peer_reads("answered"): 4, peer_reads("wrong"): 5}
