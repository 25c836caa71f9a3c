"""Measures what crosses racks: the bytes of clients and of brokers, and the commit requests for an object.

`python -m tests.benchmarks.bench --only racks`
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families

from tests.benchmarks import load
from tests.benchmarks.apart import Add
from tests.benchmarks.broker_cluster import BROKERS, SHARDS, BrokerCluster
from tests.benchmarks.machine import MIB
from tests.support.waiting import wait_until

RACKS = ("a", "b", "c")
SECONDS = 15.0
BYTES_S = 2 * MIB
"""What each rack's producer writes."""

RECORD_BYTES = 1024
_STATISTICS_MS = 200
PERCENT = 100

ABOUT = (
    f"Three brokers with the bucket log over one folder, each in a rack of its own, and {SHARDS} coordinators. In each "
    f"rack a librdkafka producer writes {BYTES_S // MIB} MiB/s to all partitions for {SECONDS:.0f} seconds, and a "
    "librdkafka consumer in a group of its own reads everything. Clients begin at the brokers of all racks. They count "
    "what they exchange with a broker of another rack; the brokers count which of it are records, and what they "
    "exchange themselves. Each figure of bytes is a share of the bytes of the records that were produced and consumed. "
    "First the clients name their rack in the client.id, then they do not."
)


def measure(add: Add) -> None:
    """All figures of this section."""
    with tempfile.TemporaryDirectory(prefix="diskless-bench-", ignore_cleanup_errors=True) as folder:
        racks = {node_id: {"broker.rack": rack} for node_id, rack in enumerate(RACKS, start=1)}
        with BrokerCluster(Path(folder), BROKERS, settings_of_each=racks) as cluster:
            near, anywhere = _traffic(cluster, "diskless_az={rack}"), _traffic(cluster, "no rack is told")
    add("records between clients and brokers that cross racks, racks told", _share(near["records"], near))
    add("all else between clients and brokers that crosses racks, racks told", _share(near["others"], near))
    add("all between clients and brokers that crosses racks, racks not told", _share(anywhere["crossing"], anywhere))
    for name, run in (("told", near), ("not told", anywhere)):
        add(f"what brokers send each other across racks, racks {name}", _share(run["brokers"], run))
        add(f"of that, objects and their records, racks {name}", _share(run["lent"], run))
        objects, commits = run["objects"], run["commits"]
        add(f"commit requests to other brokers for an object, racks {name}", f"{commits / objects:.2f} of {objects:,}")


def _share(crossing: int, run: Counter[str]) -> str:
    return "0" if crossing == 0 else f"{crossing / run['all records'] * PERCENT:.2g} %"


def _traffic(cluster: BrokerCluster, client_id: str) -> Counter[str]:
    """What was counted while clients in all racks were at work."""
    bootstrap = ",".join(broker.bootstrap for broker in cluster.brokers.values())
    topic = load.create_topic(bootstrap, SHARDS)
    before = _counted(cluster)
    producers: list[_Client] = []
    consumers: list[_Client] = []
    for node_id, rack in enumerate(RACKS, start=1):
        own = cluster.brokers[node_id].bootstrap
        name = client_id.format(rack=rack)
        producers.append(_Producing(bootstrap, topic, f"writes-{rack},{name}", own))
        consumers.append(_Consuming(bootstrap, topic, f"reads-{rack},{name}", own))
    for producer in producers:
        producer.end()
    written = sum(producer.record_bytes for producer in producers)
    for consumer in consumers:
        wait_until(lambda consumer=consumer: consumer.record_bytes >= written, "all is read in every rack")
        consumer.end()
    counts = _counted(cluster)
    counts.subtract(before)
    for client in (*producers, *consumers):
        counts["all records"] += client.record_bytes
        counts["crossing"] += client.crossing_bytes
    counts["others"] = counts["crossing"] - counts["records"]
    return counts


def _counted(cluster: BrokerCluster) -> Counter[str]:
    """Metrics, summed over all brokers."""
    counts: Counter[str] = Counter()
    for broker in cluster.brokers.values():
        with urlopen(f"{broker.admin}/metrics") as answer:
            text = answer.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                for name in _names_of(sample.name, sample.labels):
                    counts[name] += int(sample.value)
    return counts


def _names_of(metric: str, labels: Mapping[str, str]) -> Sequence[str]:
    match metric, labels:
        case "diskless_client_bytes_total", {"racks": "other", "kind": "produced" | "consumed"}:
            return ["records"]
        case "diskless_inter_broker_bytes_total", {"racks": "other", "purpose": purpose}:
            return ["brokers", "lent"] if purpose == "objects" else ["brokers"]
        case "diskless_request_seconds_count", {"api": "DisklessCommitFile"}:
            return ["commits"]
        case "diskless_wal_objects_uploaded_total", _:
            return ["objects"]
    return []


class _Client(ABC):
    """A client in a thread of its own, which counts what it exchanges with brokers of other racks.

    Attributes:
        record_bytes: values of records that were acknowledged or read.
        crossing_bytes: what was sent and received, but for the brokers of its own rack.
    """

    def __init__(self, own: str) -> None:
        self._own = own
        self.record_bytes = 0
        self.crossing_bytes = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _options(self, bootstrap: str, client_id: str) -> dict[str, object]:
        self._thread.name = client_id
        return {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "statistics.interval.ms": _STATISTICS_MS,
            "stats_cb": self._take_statistics,
            "log_level": 0,
        }

    def _take_statistics(self, text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        elsewhere = [broker for broker in brokers if broker["nodename"] != self._own]
        self.crossing_bytes = sum(broker["txbytes"] + broker["rxbytes"] for broker in elsewhere)

    def end(self) -> None:
        """Wait until it is done."""
        self._ends.set()
        self._thread.join()

    @abstractmethod
    def _run(self) -> None: ...


class _Producing(_Client):
    """Writes at a steady rate for as long as is measured."""

    def __init__(self, bootstrap: str, topic: str, client_id: str, own: str) -> None:
        super().__init__(own)
        self._topic = topic
        options = {"enable.idempotence": True, "linger.ms": 20}
        self._producer = Producer(self._options(bootstrap, client_id) | options)
        self._thread.start()

    def _run(self) -> None:
        value = os.urandom(RECORD_BYTES)
        began_s = time.monotonic()
        for number in range(int(SECONDS * BYTES_S / RECORD_BYTES)):
            while (ahead_s := began_s + number * RECORD_BYTES / BYTES_S - time.monotonic()) > 0:
                self._producer.poll(ahead_s)
            self._producer.produce(self._topic, value, partition=number % SHARDS, on_delivery=self._delivered)
        if self._producer.flush(load.TIMEOUT_S):
            raise RuntimeError("not all records were acknowledged")
        self._producer.poll(2 * _STATISTICS_MS / 1000)

    def _delivered(self, error: object, _: object) -> None:
        self.record_bytes += 0 if error else RECORD_BYTES


class _Consuming(_Client):
    """Reads everything, until it is told to end."""

    def __init__(self, bootstrap: str, topic: str, client_id: str, own: str) -> None:
        super().__init__(own)
        options = {"group.id": client_id, "auto.offset.reset": "earliest"}
        self._consumer = Consumer(self._options(bootstrap, client_id) | options)
        self._consumer.subscribe([topic])
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            for message in self._consumer.consume(1_000, timeout=0.1):
                self.record_bytes += len(message.value() or b"")
        self._consumer.close()
