"""Measures the cache that the brokers of a rack share: requests to the object store, and what a byte costs the CPU."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import urlopen

from tests.benchmarks import load
from tests.benchmarks.apart import Add
from tests.benchmarks.broker_cluster import BrokerCluster
from tests.benchmarks.machine import MIB
from tests.benchmarks.meter import Meter
from tests.support.broker import BrokerProcess

SIZES = (3, 6)
FAN_OUTS = (1, 3, 10)
DATA_BYTES = 96 * MIB
"""That each consumer reads: less than one broker's cache."""

WARM_BYTES = 192 * MIB
"""In and out of each broker where CPU time is measured."""

RECORD_BYTES = 10_000
IDLE_S = 5.0
_GIB = 1 << 30
_ASK_TIMEOUT_S = 30.0
_SAMPLE = re.compile(r"^(diskless_[a-z_]+)(\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)

ALL_ARE_GATEWAYS = {
    "gateway_placement": "rendezvous",
    "gateway_placement.rendezvous.gateways.per.rack": "100",
}
"""So that a client id decides which broker a client uses, for all partitions."""

NOT_SHARED = {"diskless.peer.cache.enable": "false"}
ROOM = {"diskless.fetch.cache.max.bytes": str(4 * WARM_BYTES)}


def measure_requests(add: Add, folder: Path) -> None:
    """GETs of WAL objects for each GiB that consumers get, of caches that are empty in the beginning."""
    for size in SIZES:
        shared = _requests(folder / f"shared-{size}", size, {})
        alone = _requests(folder / f"alone-{size}", size, NOT_SHARED)
        for fan_out in FAN_OUTS:
            add(
                f"GETs for each GiB consumed, {fan_out} consumers of {DATA_BYTES // MIB} MiB at {size} brokers",
                f"{shared[fan_out]} (each broker by itself: {alone[fan_out]})",
            )


def _requests(folder: Path, size: int, settings: Mapping[str, str]) -> dict[int, str]:
    with BrokerCluster(folder, size, {**ALL_ARE_GATEWAYS, **settings}) as cluster:
        brokers = list(cluster.brokers.values())
        topic = load.create_topic(cluster.brokers[cluster.controller].bootstrap)
        for broker in brokers:
            client_id = load.client_id_at(broker.bootstrap, topic)
            load.produce_bulk(broker.bootstrap, topic, DATA_BYTES // size, RECORD_BYTES, client_id=client_id)
        found = {}
        for fan_out in FAN_OUTS:
            cluster.restart()
            consumed = _consume(brokers, topic, fan_out)
            found[fan_out] = _told(brokers, consumed)
        return found


def _consume(brokers: list[BrokerProcess], topic: str, fan_out: int) -> int:
    """All of the topic, by so many consumers at once, one broker after the other; the bytes."""
    records = load.records_of(brokers[0].bootstrap, topic)
    with ThreadPoolExecutor(fan_out) as pool:
        places = [brokers[number % len(brokers)].bootstrap for number in range(fan_out)]
        list(pool.map(lambda bootstrap: _consume_at(bootstrap, topic, records), places))
    return records * RECORD_BYTES * fan_out


def _consume_at(bootstrap: str, topic: str, records: int) -> None:
    load.consume_bulk(bootstrap, topic, records, load.client_id_at(bootstrap, topic))


def _told(brokers: list[BrokerProcess], consumed: int) -> str:
    figures = [_figures(broker) for broker in brokers]

    def total(name: str) -> float:
        return sum(one.get(name, 0.0) for one in figures)

    gets, read = total("diskless_store_reads_total"), total("diskless_store_bytes_read_total")
    lent = total("diskless_peer_bytes_read_total")
    return (
        f"{gets / consumed * _GIB:.0f}, of {gets / max(1.0, read) * MIB:.1f} a MiB; read from the store "
        f"{read / consumed:.2f} of it, from other brokers {lent / consumed:.2f}"
    )


def _figures(broker: BrokerProcess) -> dict[str, float]:
    with urlopen(f"{broker.admin}/metrics", timeout=_ASK_TIMEOUT_S) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, labels, value in _SAMPLE.findall(text) if not labels}


def measure_cpu(add: Add, folder: Path) -> None:
    """CPU-seconds of all brokers together for each GiB in, and out of the cache of the broker that is asked, or not.

    What the brokers use while nobody asks for anything is taken off.
    """
    one = _cpu(folder / "one", 1)
    three = _cpu(folder / "three", 3)
    for name, what in (("in", "in"), ("out", "out, from the memory of the broker that is asked")):
        ratio = three[name] / one[name]
        add(
            f"CPU-seconds of all brokers for a GiB {what}",
            f"{three[name]:.2f} of three brokers, {one[name]:.2f} of one ({ratio:.2f} of it)",
        )
    add(
        "CPU-seconds of all brokers for a GiB out, from the memory of another broker of the rack",
        f"{three['peer']:.2f} ({three['lent']:.2f} of it was lent)",
    )


def _cpu(folder: Path, size: int) -> dict[str, float]:
    with BrokerCluster(folder, size, {**ALL_ARE_GATEWAYS, **ROOM}) as cluster:
        brokers = list(cluster.brokers.values())
        meters = [Meter(broker.pid) for broker in brokers]
        controller = cluster.brokers[cluster.controller]
        topics = [load.create_topic(controller.bootstrap) for _ in brokers]
        records = WARM_BYTES // RECORD_BYTES // 1000 * 1000
        gib = size * records * RECORD_BYTES / _GIB

        def spent() -> tuple[float, float]:
            return sum(meter.cpu_s() for meter in meters), time.perf_counter()

        def rate_of_idling() -> float:
            (cpu_s, began), _ = spent(), time.sleep(IDLE_S)
            after_s, ended = spent()
            return (after_s - cpu_s) / (ended - began)

        def cost(work: Callable[[BrokerProcess, str], object], topics: Sequence[str]) -> float:
            cpu_s, began = spent()
            for broker, topic in zip(brokers, topics, strict=True):
                work(broker, topic)
            after_s, ended = spent()
            return (after_s - cpu_s - idle * (ended - began)) / gib

        def produce(broker: BrokerProcess, topic: str) -> None:
            client_id = load.client_id_at(broker.bootstrap, topic)
            load.produce_bulk(broker.bootstrap, topic, WARM_BYTES, RECORD_BYTES, client_id=client_id)

        def consume(broker: BrokerProcess, topic: str) -> None:
            _consume_at(broker.bootstrap, topic, records)

        idle = rate_of_idling()
        found = {"in": cost(produce, topics), "out": cost(consume, topics)}
        if size > 1:
            found["peer"] = cost(consume, [*topics[1:], topics[0]])
            lent = sum(_figures(broker)["diskless_peer_bytes_read_total"] for broker in brokers)
            found["lent"] = lent / _GIB / gib
        return found
