"""Measures what producers notice of brokers that come and go in good order.

`python -m tests.benchmarks.bench --only scaling`
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import KafkaError, Message, Producer
from prometheus_client.parser import text_string_to_metric_families

from tests.benchmarks import load
from tests.benchmarks.apart import Add
from tests.benchmarks.broker_cluster import BROKERS, SHARDS, BrokerCluster
from tests.support.apache_kafka import java
from tests.support.maven import JarsUnavailableError, fetch_jars
from tests.support.waiting import wait_until

ROUNDS = 3
RATE = 50
"""Records a second of each producer."""

PRODUCERS = 6
REFRESH_MS = 2_000
STEADY_S = 3.0

ABOUT = (
    "Three brokers with the bucket log over one folder, and their clients on the same cores: idempotent producers, six "
    f"of librdkafka and one of Apache Kafka, with acks=all, linger 5 ms, {RATE} records a second each over {SHARDS} "
    "partitions, and otherwise their defaults, but that librdkafka asks for metadata every "
    f"{REFRESH_MS // 1000} seconds. A gap is the longest time between two acknowledgements of one producer; each "
    f"figure is over all producers and {ROUNDS} rounds. A broker is removed by SIGTERM."
)


class Paced(ABC):
    """A producer at a steady rate, and when it was acknowledged."""

    def __init__(self) -> None:
        self.acknowledged_s: list[float] = []
        self.trouble: list[str] = []

    def longest_gap_s(self, since_s: float, until_s: float) -> float:
        """The longest time between two acknowledgements of which the later one falls into the span."""
        pairs = pairwise(self.acknowledged_s)
        return max((later - earlier for earlier, later in pairs if since_s < later <= until_s), default=0.0)

    @abstractmethod
    def end(self) -> None:
        """Send no more, and wait for the answers."""


class PacedLibrdkafka(Paced):
    """In a thread of this process."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        super().__init__()
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "enable.idempotence": True,
                "linger.ms": 5,
                "topic.metadata.refresh.interval.ms": REFRESH_MS,
                "log_level": 0,
            }
        )
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due_s = time.monotonic()
        for number in count():
            while (wait_s := due_s - time.monotonic()) > 0 and not self._ends.is_set():
                self._producer.poll(wait_s)
            if self._ends.is_set():
                return
            self._producer.produce(self._topic, b"%d" % number, partition=number % SHARDS, on_delivery=self._answered)
            due_s += 1 / RATE

    def _answered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged_s.append(time.monotonic())
        else:
            self.trouble.append(str(error))

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        self._producer.flush(60)


class PacedJava(Paced):
    """Apache Kafka's verifiable producer."""

    def __init__(self, jars: Path, folder: Path, bootstrap: str, topic: str, name: str) -> None:
        super().__init__()
        settings = folder / f"{name}.properties"
        settings.write_text(f"enable.idempotence=true\nretries=2147483647\nlinger.ms=5\nclient.id={name}\n")
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--throughput", str(RATE), "--acks", "-1"]
        command = java(jars, "org.apache.kafka.tools.VerifiableProducer", *arguments, "--command-config", str(settings))
        with (folder / f"{name}.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self._thread = threading.Thread(target=self._read, name=name, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                event = json.loads(line)
                if event["name"] == "producer_send_success":
                    self.acknowledged_s.append(time.monotonic())
                elif event["name"] == "producer_send_error":
                    self.trouble.append(event["message"])

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait()
            self._thread.join()


def measure(add: Add) -> None:
    """All figures of this section."""
    with (
        tempfile.TemporaryDirectory(prefix="diskless-bench-", ignore_cleanup_errors=True) as folder,
        BrokerCluster(Path(folder)) as cluster,
    ):
        scaling = Scaling(cluster, Path(folder))
        add("longest gap of a producer while nothing happens", scaling.gaps(scaling.stand_still))
        for who, find in (("one that is not the controller", _worker), ("the controller", _controller)):
            add(f"a broker is removed: {who}", scaling.gaps_of_removal(find))
        add("rolling restart: each broker is stopped and started again", scaling.gaps(scaling.restart_all))
        add("a fourth broker is added, and removed again", scaling.gaps(scaling.add_one))
        taken = scaling.until_taken_s
        add(
            f"from the start of a fourth broker that clients can connect to, until one of {PRODUCERS} producers that "
            f"ask for metadata every {REFRESH_MS / 1000:.0f} s sends to it",
            f"{min(taken):.1f} to {max(taken):.1f} s, in {len(taken)} of {ROUNDS} rounds" if taken else "none came",
        )
        add("records that a producer was told have failed", str(len(scaling.trouble)))


def _worker(cluster: BrokerCluster) -> int:
    return cluster.worker


def _controller(cluster: BrokerCluster) -> int:
    return cluster.controller


class Scaling:
    """A topic, and producers that are new for each round: clients do not go back to a broker that restarted.

    Attributes:
        until_taken_s: in how many seconds an added broker got clients, of each round in which it did.
    """

    def __init__(self, cluster: BrokerCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._names = (f"paced-{number}" for number in count())
        self._topic = load.create_topic(self._bootstrap(), SHARDS)
        self.until_taken_s: list[float] = []
        self.trouble: list[str] = []
        try:
            self._jars: Path | None = fetch_jars("kafka")
        except JarsUnavailableError:
            self._jars = None

    def gaps(self, disturb: Callable[[], None], restore: Callable[[], None] = lambda: None) -> str:
        """Of all producers while something is done, in several rounds. What is restored afterwards is no part."""
        gaps: list[float] = []
        for _ in range(ROUNDS):
            with self._producing() as producers:
                began_s = time.monotonic()
                disturb()
                time.sleep(STEADY_S)
                ended_s = time.monotonic()
                gaps += [producer.longest_gap_s(began_s, ended_s) for producer in producers]
            restore()
        return f"median {statistics.median(gaps) * 1000:.0f} ms, longest {max(gaps) * 1000:.0f} ms"

    def stand_still(self) -> None:
        """Do nothing."""

    def gaps_of_removal(self, find: Callable[[BrokerCluster], int]) -> str:
        """While a broker stops in good order and clients go on without it; it comes back when they have gone."""
        removed: list[int] = []

        def remove() -> None:
            removed.append(find(self._cluster))
            self._cluster.brokers[removed[-1]].stop()

        return self.gaps(remove, lambda: self._cluster.brokers[removed[-1]].start())

    def restart_all(self) -> None:
        """One after the other, as an operator does."""
        for broker in list(self._cluster.brokers.values()):
            broker.restart()

    def add_one(self) -> None:
        """A broker with an empty folder, which is taken away when clients have come, or should have by far."""
        node_id = max(self._cluster.brokers, default=BROKERS) + 1
        broker = self._cluster.broker(node_id).start()
        began_s = time.monotonic()
        while (at_s := time.monotonic()) < began_s + 3 * REFRESH_MS / 1000:
            if _produce_requests(broker.admin):
                self.until_taken_s.append(at_s - began_s)
                break
            time.sleep(0.05)
        time.sleep(STEADY_S)
        self._cluster.remove(node_id)

    @contextmanager
    def _producing(self) -> Iterator[Sequence[Paced]]:
        self._cluster.settle()
        bootstrap = self._bootstrap()
        producers: list[Paced] = [PacedLibrdkafka(bootstrap, self._topic, next(self._names)) for _ in range(PRODUCERS)]
        if self._jars is not None:
            producers.append(PacedJava(self._jars, self._folder, bootstrap, self._topic, next(self._names)))
        try:
            for producer in producers:
                wait_until(lambda one=producer: len(one.acknowledged_s) >= RATE, "a producer is at work")
            yield producers
        finally:
            for producer in producers:
                producer.end()
                self.trouble += producer.trouble

    def _bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self._cluster.brokers.values())


def _produce_requests(admin: str) -> int:
    with urlopen(f"{admin}/metrics") as answer:
        text = answer.read().decode()
    return sum(
        int(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "diskless_request_seconds_count" and sample.labels.get("api") == "Produce"
    )
