"""Measures three brokers that are one cluster: what a broker hears of the others, and what the end of one costs."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count, pairwise

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from diskless_core.shards import DISKLESS
from tests.benchmarks import load
from tests.benchmarks.apart import Add
from tests.benchmarks.broker_cluster import BROKERS, SHARDS, BrokerCluster
from tests.chaos import checker
from tests.chaos.clients import Clock, LibrdkafkaProducer, read_everything
from tests.chaos.history import History
from tests.support.batches import batch_of
from tests.support.broker import BrokerProcess
from tests.support.requests import FETCH_VERSION, append, fetch_request
from tests.support.waiting import wait_until
from tests.support.wire import WireClient

ROUNDS = 3
PAUSED_S = 20.0
"""How long the leader sleeps: longer than its session."""

STEADY_S = 3.0
COMMITS = 300
PARTITIONS = SHARDS
"""Of the producers' topic, one of them at each coordinator."""

RATE = 200
"""Records a second of each producer."""

TOPICS = 10
PARTITIONS_A_TOPIC = 10_000

_DRAIN_S = 60.0
_FETCH_WAIT_MS = 10_000
_CREATE_S = 600.0

Producers = Mapping[int, LibrdkafkaProducer]
"""By their numbers in the history."""

Find = Callable[[BrokerCluster], BrokerProcess]


# --- what followers know -----------------------------------------------------------------------------------------


def measure_followers(add: Add, cluster: BrokerCluster) -> None:
    """How long after its acknowledgement a record reaches a fetch that waits, at this broker and at another one.

    The cluster has to be new: its first topic's partitions are given to the Diskless coordinators in turn.
    """
    leaders, leader = cluster.leaders(), cluster.worker
    topic = load.create_topic(_controller(cluster).bootstrap, PARTITIONS)
    led = [number for number in range(PARTITIONS) if leaders[f"{DISKLESS.name}-{number % SHARDS}"] == leader]
    writer, follower = cluster.brokers[leader], _controller(cluster)
    own = _seconds_to_fetch(writer, writer, topic, led)
    others = _seconds_to_fetch(writer, follower, topic, led)
    third = next(one for one in cluster.brokers.values() if one not in (writer, follower))
    forwarded = _seconds_to_fetch(third, follower, topic, led)
    add("from a record's acknowledgement to the answer of a fetch that waits at the same broker", _spread(own))
    add(
        "from a record's acknowledgement to the answer of a fetch that waits at a broker that follows",
        f"{_spread(others)} ({statistics.median(others) / statistics.median(own):.1f} of the same broker's)",
    )
    add(
        "the same where the record was produced by way of a third broker, which leads nothing of it",
        _spread(forwarded),
    )


def _seconds_to_fetch(
    writer: BrokerProcess, reader: BrokerProcess, topic: str, partitions: Sequence[int]
) -> list[float]:
    """Of one record after the other, these partitions in turn."""
    taken = []
    with writer.connect() as writing, reader.connect() as reading:
        for number in range(COMMITS):
            partition = partitions[number % len(partitions)]
            end = _end_of(reading, topic, partition)
            reading.send(fetch_request(topic, {partition: end}, max_wait_ms=_FETCH_WAIT_MS), FETCH_VERSION)
            time.sleep(0.02)  # the fetch has to wait when the record comes
            append(writing, topic, batch_of(b"known"), partition=partition)
            acknowledged = time.perf_counter()
            answer = reading.receive().responses[0].partitions[0]
            taken.append(time.perf_counter() - acknowledged)
            if not answer.records:
                raise RuntimeError(f"a record was not known at the other broker after {_FETCH_WAIT_MS} ms")
    return taken


def _end_of(wire: WireClient, topic: str, partition: int) -> int:
    answer = wire.call(fetch_request(topic, {partition: 0}, partition_max_bytes=1), FETCH_VERSION)
    end: int = answer.responses[0].partitions[0].high_watermark
    return end


# --- faults ------------------------------------------------------------------------------------------------------


def measure_faults(add: Add, cluster: BrokerCluster) -> None:
    """Kills, controlled shutdowns and a pause, and then whether a record was lost, doubled or moved."""
    workload = Workload(cluster)
    add("longest gap of a producer while nothing happens", _rounds(partial(_steady_gap_s, workload)))
    for who, find in (("a shard's leader that is not the controller", _worker), ("the controller", _controller)):
        stops = _rounds(partial(_stop_gap_s, workload, find))
        add(f"longest gap of a producer, controlled shutdown of {who}", stops)
    for who, find in (("a shard's leader that is not the controller", _worker), ("the controller", _controller)):
        kills = _rounds(partial(_kill_s, workload, find))
        add(f"kill -9 of {who}, until producers are acknowledged again", kills)
    recovered = _pause_s(workload)
    paused = f"a shard's leader that is not the controller paused for {PAUSED_S:.0f} s, until"
    add(f"{paused} the first producer is acknowledged in all partitions again", f"{min(recovered):.2f} s")
    add(f"{paused} the last one is", f"{max(recovered):.2f} s")
    broken = workload.violations()
    add(
        f"of {len(workload.history.acknowledged):,} records acknowledged in all of these rounds",
        "; ".join(broken) or "none lost, doubled or out of order",
    )


def _worker(cluster: BrokerCluster) -> BrokerProcess:
    return cluster.brokers[cluster.worker]


def _controller(cluster: BrokerCluster) -> BrokerProcess:
    return cluster.brokers[cluster.controller]


def _rounds(measure: Callable[[], float]) -> str:
    seconds = [measure() for _ in range(ROUNDS)]
    return f"median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s"


def _steady_gap_s(workload: Workload) -> float:
    with workload.producing() as producers:
        began_s = workload.clock()
        time.sleep(STEADY_S)
        return workload.longest_gap_s(producers, began_s)


def _stop_gap_s(workload: Workload, find: Find) -> float:
    with workload.producing() as producers:
        victim = find(workload.cluster)
        began_s = workload.clock()
        victim.stop()
        workload.acknowledged_again_s(producers, _sent(producers))
        gap_s = workload.longest_gap_s(producers, began_s)
    victim.start()
    return gap_s


def _kill_s(workload: Workload, find: Find) -> float:
    with workload.producing() as producers:
        victim = find(workload.cluster)
        began_s = workload.clock()
        victim.kill()
        again_s = workload.acknowledged_again_s(producers, _sent(producers))
    victim.start()
    return max(again_s) - began_s


def _pause_s(workload: Workload) -> list[float]:
    with workload.producing() as producers:
        victim = _worker(workload.cluster)
        began_s = workload.clock()
        os.kill(victim.pid, signal.SIGSTOP)
        try:
            sent = _sent(producers)
            time.sleep(PAUSED_S)
        finally:
            os.kill(victim.pid, signal.SIGCONT)
        return [again_s - began_s for again_s in workload.acknowledged_again_s(producers, sent)]


def _sent(producers: Producers) -> dict[int, int]:
    return {number: producer.sent for number, producer in producers.items()}


class Workload:
    """One topic, and idempotent producers, new ones each time: clients do not go back to a broker that restarted.

    Attributes:
        history: of all producers there were.
    """

    def __init__(self, cluster: BrokerCluster) -> None:
        self.cluster = cluster
        self.history = History()
        self.clock = Clock()
        self._numbers = count()
        self._topic = load.create_topic(_controller(cluster).bootstrap, PARTITIONS)

    @contextmanager
    def producing(self) -> Iterator[Producers]:
        """A producer that begins with each broker, acknowledged in all partitions; stopped in the end."""
        self.cluster.settle()
        producers = {
            number: LibrdkafkaProducer(
                broker.bootstrap, self._topic, PARTITIONS, number, RATE, self.history, self.clock
            )
            for broker, number in zip(self.cluster.brokers.values(), self._numbers, strict=False)
        }
        for producer in producers.values():
            producer.start()
        try:
            self.acknowledged_again_s(producers, dict.fromkeys(producers, 0))
            yield producers
        finally:
            for producer in producers.values():
                producer.stop(_DRAIN_S)

    def acknowledged_again_s(self, producers: Producers, sent: Mapping[int, int]) -> list[float]:
        """Wait until each producer was acknowledged in every partition for a record that it sent later.

        Args:
            sent: how many each had sent before.

        Returns:
            When that was, of each of them.
        """
        first: dict[tuple[int, int], float] = {}
        looked_at = 0

        def all_are() -> bool:
            nonlocal looked_at
            new = self.history.acknowledged[looked_at:]
            looked_at += len(new)
            for one in new:
                number = one.sent.producer
                if number in sent and one.sent.number >= sent[number]:
                    first.setdefault((number, one.place.partition), one.at_s)
            return len(first) == len(producers) * PARTITIONS

        wait_until(all_are, "every producer is acknowledged in every partition")
        return [max(at_s for (which, _), at_s in first.items() if which == number) for number in producers]

    def longest_gap_s(self, producers: Producers, since_s: float) -> float:
        """The longest time between two acknowledgements of one producer in one partition."""
        times: dict[tuple[int, int], list[float]] = {}
        for one in self.history.acknowledged:
            if one.sent.producer in producers:
                times.setdefault((one.sent.producer, one.place.partition), []).append(one.at_s)
        gaps = (pair for of_one in times.values() for pair in pairwise(of_one))
        return max(after_s - before_s for before_s, after_s in gaps if after_s > since_s)

    def violations(self) -> list[str]:
        """Every broken promise, as the checker of chaos tells it; read when no producer is at work."""
        final = read_everything(_controller(self.cluster).bootstrap, self._topic, PARTITIONS)
        return checker.violations(self.history, final)


# --- a broker more -----------------------------------------------------------------------------------------------


def measure_joining(add: Add, cluster: BrokerCluster) -> None:
    """The start of a fourth broker on an empty folder, in a cluster of few and of many partitions."""
    bare_s = _join_s(cluster, BROKERS + 1)
    add("start of a fourth broker, few partitions", f"{bare_s:.2f} s")
    admin = AdminClient({"bootstrap.servers": _controller(cluster).bootstrap})
    for number in range(TOPICS):
        topic = NewTopic(f"many-{number}", num_partitions=PARTITIONS_A_TOPIC)
        for created in admin.create_topics([topic], operation_timeout=_CREATE_S, request_timeout=_CREATE_S).values():
            created.result(_CREATE_S)
    many_s = _join_s(cluster, BROKERS + 2, f"many-{TOPICS - 1}", PARTITIONS_A_TOPIC - 1)
    name = f"start of a fourth broker, {TOPICS * PARTITIONS_A_TOPIC:,} partitions"
    add(name, f"{many_s:.2f} s ({many_s / bare_s:.1f} of that with few)")


def _join_s(cluster: BrokerCluster, node_id: int, topic: str = "", partition: int = 0) -> float:
    """Seconds until clients can connect to a new broker, which then takes a record, if a topic is given, and leaves."""
    broker = cluster.broker(node_id)
    began = time.perf_counter()
    broker.start()
    seconds = time.perf_counter() - began
    if topic:
        with broker.connect() as wire:
            append(wire, topic, batch_of(b"here"), partition=partition)
    cluster.remove(node_id)
    cluster.settle()
    return seconds


def _spread(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    p50, p99 = (ordered[int(len(ordered) * share)] * 1000 for share in (0.50, 0.99))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"
