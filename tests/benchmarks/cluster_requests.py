"""Measures requests in a cluster: creations that are sent on, large groups, and produce with each log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kafka.protocol.consumer import JoinGroupRequest, SyncGroupRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from diskless_core.protocol.errors import ErrorCode
from tests.benchmarks import load
from tests.benchmarks.apart import Add
from tests.benchmarks.broker_cluster import BrokerCluster
from tests.benchmarks.machine import MIB
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import on_one_bucket
from tests.support.maven import fetch_jars
from tests.support.requests import create_topics, new_topic
from tests.support.wire import WireClient

TOPICS = 1_000
CREATIONS = 3
MEMBERS = 200
REBALANCE_DELAY_MS = 3_000
"""Kafka's default: all members ask in that time."""

PACED_BYTES_S = MIB
PACED_RECORD_BYTES = 1024
PACED_S = 10.0

GROUPS = {"group.initial.rebalance.delay.ms": str(REBALANCE_DELAY_MS)}

_JOIN_VERSION = 9
_SYNC_VERSION = 5
_FIND_COORDINATOR_VERSION = 4
_REBALANCE_MS = 60_000


# --- creations ---------------------------------------------------------------------------------------------------


def measure_creations(add: Add, cluster: BrokerCluster) -> None:
    """A thousand topics in one CreateTopics, asked of the controller and of a broker that sends the request on."""
    controller, other = cluster.brokers[cluster.controller], cluster.brokers[cluster.worker]
    own_s, forwarded_s = [], []
    for _ in range(CREATIONS):
        own_s.append(_creation_s(controller))
        forwarded_s.append(_creation_s(other))
    own, forwarded = min(own_s), min(forwarded_s)
    add(f"CreateTopics of {TOPICS:,} topics, asked of the controller", f"{own:.2f} s")
    add(
        f"CreateTopics of {TOPICS:,} topics, asked of another broker",
        f"{forwarded:.2f} s ({forwarded / own:.2f} of it)",
    )


def _creation_s(broker: BrokerProcess) -> float:
    prefix = f"bench-{time.monotonic_ns()}"
    topics = [new_topic(f"{prefix}-{number}") for number in range(TOPICS)]
    with broker.connect() as wire:
        began = time.perf_counter()
        answers = create_topics(wire, *topics)
        seconds = time.perf_counter() - began
    _require_no_errors(answers)
    return seconds


# --- groups ------------------------------------------------------------------------------------------------------


def measure_groups(add: Add, folder: Path) -> None:
    """One group of many members, who look for its coordinator at each broker in turn."""
    one_s, three_s = _group_s(folder / "one", 1), _group_s(folder / "three", 3)
    name = f"a new group of {MEMBERS} members, until all have their assignments (of which {REBALANCE_DELAY_MS} ms wait)"
    add(name, f"{three_s:.2f} s at three brokers, {one_s:.2f} s at one")


def _group_s(folder: Path, size: int) -> float:
    with BrokerCluster(folder, size, GROUPS) as cluster, ExitStack() as stack:
        brokers = list(cluster.brokers.values())
        _group_of(stack, brokers, "warms-up", 1)
        began = time.perf_counter()
        _group_of(stack, brokers, "bench", MEMBERS)
        return time.perf_counter() - began


def _group_of(stack: ExitStack, brokers: Sequence[BrokerProcess], group: str, size: int) -> None:
    """So many members join at the same time, on a connection each, and get an assignment of the first of them."""
    found = [_coordinator(brokers[number % len(brokers)], group) for number in range(size)]
    members = [stack.enter_context(WireClient(host, port)) for host, port in found]
    ids = [answer.member_id for answer in _all(members, lambda _: _join(group, ""), _JOIN_VERSION)]
    joined = _all(members, lambda number: _join(group, ids[number]), _JOIN_VERSION)
    _require_no_errors(joined)
    leader = next(answer for answer in joined if answer.members)
    if len(leader.members) != size:
        raise RuntimeError(f"the group has {len(leader.members)} members instead of {size}")

    def sync(number: int) -> Any:
        assigned = leader.members if ids[number] == leader.member_id else []
        return _sync(group, ids[number], leader.generation_id, [member.member_id for member in assigned])

    synced = _all(members, sync, _SYNC_VERSION)
    _require_no_errors(synced)
    if any(answer.assignment != member_id.encode() for answer, member_id in zip(synced, ids, strict=True)):
        raise RuntimeError("a member got another one's assignment")


def _all(members: Sequence[WireClient], request: Callable[[int], Any], version: int) -> list[Any]:
    """What all members are answered to a request that they make at once."""
    for number, member in enumerate(members):
        member.send(request(number), version)
    return [member.receive() for member in members]


def _coordinator(broker: BrokerProcess, group: str) -> tuple[str, int]:
    with broker.connect() as wire:
        asked = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        [found] = wire.call(asked, _FIND_COORDINATOR_VERSION).coordinators
    _require_no_errors([found])
    return found.host, found.port


def _join(group: str, member_id: str) -> Any:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=_REBALANCE_MS,
        rebalance_timeout_ms=_REBALANCE_MS,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"bench")],
        reason=None,
    )


def _sync(group: str, member_id: str, generation: int, assigned: Sequence[str]) -> Any:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=one, assignment=one.encode()) for one in assigned
        ],
    )


def _require_no_errors(answers: Sequence[Any]) -> None:
    failed = {ErrorCode(answer.error_code).name for answer in answers if answer.error_code}
    if failed:
        raise RuntimeError(f"the broker answered {', '.join(sorted(failed))}")


# --- produce -----------------------------------------------------------------------------------------------------


def measure_produce(add: Add, folder: Path) -> None:
    """What a record waits for its acknowledgement at one broker, whose log is another one each time."""
    p50_ms = None
    for name, log in _LOGS.items():
        place = folder / name
        place.mkdir()
        with log(place) as settings:
            broker = BrokerProcess(place, {**settings, "diskless.append.commit.interval.ms": "20"})
            try:
                latency = _paced(broker.start().bootstrap)
            finally:
                broker.end()
        p50_ms = p50_ms or latency.p50_ms
        add(
            f"produce at 1 MiB/s, commit interval 20 ms, `coordinator_log={name}`",
            f"p50 {latency.p50_ms:.0f} ms ({latency.p50_ms / p50_ms:.1f} of `local`'s), p99 {latency.p99_ms:.0f} ms",
        )


def _paced(bootstrap: str) -> load.Latency:
    topic = load.create_topic(bootstrap)
    load.produce_paced(bootstrap, topic, PACED_BYTES_S, PACED_RECORD_BYTES, 1)
    return load.produce_paced(bootstrap, topic, PACED_BYTES_S, PACED_RECORD_BYTES, PACED_S)


@contextmanager
def _local(_: Path) -> Iterator[Mapping[str, str]]:
    yield {}


@contextmanager
def _bucket(folder: Path) -> Iterator[Mapping[str, str]]:
    yield on_one_bucket(folder)


@contextmanager
def _kafka(folder: Path) -> Iterator[Mapping[str, str]]:
    kafka = ApacheKafka(fetch_jars("kafka"), folder / "kafka")
    try:
        kafka.start()
        yield {
            **on_one_bucket(folder),
            "coordinator_log": "kafka",
            "coordinator_log.kafka.bootstrap.servers": kafka.bootstrap,
            "coordinator_log.kafka.topic.replication.factor": "1",
            "coordinator_log.kafka.allow.unsafe": "true",
        }
    finally:
        kafka.end()


_LOGS = {"local": _local, "kafka": _kafka, "bucket": _bucket}
