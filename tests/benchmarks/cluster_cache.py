"""Measures the cache that the brokers of a rack share: requests to the object store, and what a byte costs the CPU."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple
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
"""That each broker takes at a time where CPU time is measured."""

ROUNDS = 3
"""How often each broker takes them, and how often what it has is read: the median counts."""

READS = 3
"""How often a round of reading reads everything that the broker has: reading is so cheap that once is not enough."""

SETTLE_S = 2.5
"""After which nothing is left to be done of what was written: stores are written to some time later."""

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
SELDOM = {"coordinator_log.bucket.poll.max.ms": "5000"}
"""How often a log in files is looked at where CPU time is measured. By default that is most of what a broker uses at
rest, and less under load: taken off, it would hide what a byte costs."""

ROOM = {"diskless.fetch.cache.max.bytes": str((ROUNDS + 2) * WARM_BYTES)}


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


def _figures(broker: BrokerProcess) -> Mapping[str, float]:
    """What a broker tells in its metrics, by name: the sum over all labels."""
    with urlopen(f"{broker.admin}/metrics", timeout=_ASK_TIMEOUT_S) as answer:
        text = answer.read().decode()
    found = defaultdict[str, float](float)
    for name, _, value in _SAMPLE.findall(text):
        found[name] += float(value)
    return found


def measure_cpu(add: Add, folder: Path) -> None:
    """CPU-seconds of all brokers together for each GiB in, and out of the cache of the broker that is asked, or not.

    What the brokers use while nobody asks for anything is taken off, and told beside.
    """
    one = _cpu(folder / "one", 1)
    three = _cpu(folder / "three", 3)
    add(
        "CPU time of all brokers while nobody asks for anything, the log looked at every 5 seconds",
        f"{three.idle:.1%} of a core of three brokers, {one.idle:.1%} of one",
    )
    for what, of_three, of_one in (
        ("in", three.bytes_in, one.bytes_in),
        ("out, from the memory of the broker that is asked", three.bytes_out, one.bytes_out),
    ):
        add(
            f"CPU-seconds of all brokers for a GiB {what}",
            f"{of_three.all_s:.2f} of three brokers ({of_three.asked_s:.2f} at the one that is asked), "
            f"{of_one.all_s:.2f} of one ({of_three.all_s / of_one.all_s:.2f} of it)",
        )
    objects = _GIB / three.object_bytes
    add(
        "the same in, what three brokers use more for each WAL object",
        f"{(three.bytes_in.all_s - one.bytes_in.all_s) / objects * 1000:.1f} ms, of objects of "
        f"{three.object_bytes / MIB:.1f} MiB with {three.commits:.1f} commits each, of which others follow "
        f"{three.followed:.1f} (of one broker {one.object_bytes / MIB:.1f} MiB, {one.commits:.1f} commits)",
    )
    peer_s, lent = three.by_peers
    add(
        "CPU-seconds of all brokers for a GiB out, from the memory of another broker of the rack",
        f"{peer_s:.2f} ({lent:.2f} of it was lent)",
    )


class _Cost(NamedTuple):
    """CPU-seconds for a GiB, the median of several: of all brokers, and of the one that clients ask."""

    all_s: float
    asked_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Costs:
    """What one cluster used.

    Attributes:
        idle: share of a core of all brokers while nobody asks for anything.
        object_bytes: of a WAL object, the mean.
        commits: of one object, in the mean.
        followed: entries that brokers which do not lead took, for each object.
        by_peers: CPU-seconds for a GiB that no broker asked for before, and the share of it that others lent.
    """

    idle: float
    bytes_in: _Cost
    bytes_out: _Cost
    object_bytes: float
    commits: float
    followed: float
    by_peers: tuple[float, float]


def _cpu(folder: Path, size: int) -> _Costs:
    with BrokerCluster(folder, size, {**ALL_ARE_GATEWAYS, **ROOM, **SELDOM}) as cluster:
        brokers = list(cluster.brokers.values())
        controller = cluster.brokers[cluster.controller]
        topics = [load.create_topic(controller.bootstrap) for _ in brokers]
        clients = [
            {topic: load.client_id_at(broker.bootstrap, topic) for topic in topics} for broker in brokers
        ]  # found before anything is measured: each question is a connection
        meters = [Meter(broker.pid) for broker in brokers]
        records = WARM_BYTES // RECORD_BYTES // 1000 * 1000
        gib = records * RECORD_BYTES / _GIB

        def spent(work: Callable[[], object]) -> tuple[list[float], float]:
            """CPU-seconds of each broker, until what the work leaves to be done is done, and how long that took."""
            before, began = [meter.cpu_s() for meter in meters], time.perf_counter()
            work()
            time.sleep(SETTLE_S)
            took_s = time.perf_counter() - began
            return [meter.cpu_s() - cpu_s for meter, cpu_s in zip(meters, before, strict=True)], took_s

        def cost(work: Callable[[int], object], gib: float, times: int) -> _Cost:
            found = []
            for number in [*range(size)] * times:
                used, took_s = spent(partial(work, number))
                net = [cpu_s - rate * took_s for cpu_s, rate in zip(used, idle, strict=True)]
                found.append(_Cost(sum(net) / gib, net[number] / gib))
            return _Cost(median(one.all_s for one in found), median(one.asked_s for one in found))

        def produce(number: int) -> None:
            topic = topics[number]
            bootstrap, client_id = brokers[number].bootstrap, clients[number][topic]
            load.produce_bulk(bootstrap, topic, WARM_BYTES, RECORD_BYTES, client_id=client_id)

        def consume(number: int, topic: str, records: int) -> None:
            load.consume_bulk(brokers[number].bootstrap, topic, records, clients[number][topic])

        def consume_own(number: int) -> None:
            for _ in range(READS):
                consume(number, topics[number], records * ROUNDS)

        def total(name: str) -> float:
            return sum(_figures(broker).get(name, 0.0) for broker in brokers)

        used, took_s = spent(lambda: time.sleep(IDLE_S))
        idle = [cpu_s / took_s for cpu_s in used]
        names = (
            "wal_objects_uploaded",
            "wal_bytes_uploaded",
            "coordinator_log_entries",
            "coordinator_streamed_entries",
        )
        before = [total(f"diskless_{name}_total") for name in names]
        bytes_in = cost(produce, gib, ROUNDS)
        objects, stored, commits, followed = (
            total(f"diskless_{name}_total") - was for name, was in zip(names, before, strict=True)
        )
        bytes_out = cost(consume_own, gib * ROUNDS * READS, ROUNDS)
        by_peers = (0.0, 0.0)
        if size > 1:
            peer = cost(lambda number: consume(number, topics[number - 1], records), gib, 1)
            by_peers = peer.all_s, total("diskless_peer_bytes_read_total") / _GIB / (gib * size)
        return _Costs(
            idle=sum(idle),
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            object_bytes=stored / objects,
            commits=commits / objects,
            followed=followed / objects,
            by_peers=by_peers,
        )
