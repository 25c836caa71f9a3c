"""One run: clients at work, faults by plan, and then the check of everything that clients were told."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos import checker
from tests.chaos.administrators import Administrator, require_agreement
from tests.chaos.clients import (
    Clock,
    JavaProducer,
    LibrdkafkaConsumer,
    LibrdkafkaProducer,
    read_everything,
    read_newest,
)
from tests.chaos.cluster import ChaosCluster, Member
from tests.chaos.counters import FORWARDED, Counters, peer_reads
from tests.chaos.history import Final, GroupHistory, History
from tests.chaos.logs import Log
from tests.chaos.members import JavaSlot, LibrdkafkaSlot, Observer, slots_of
from tests.chaos.plan import Fault, plan
from tests.chaos.saboteur import CHANGE_S, Saboteur
from tests.chaos.stores import Store

TOPIC, PARTITIONS = "chaos", 6
BROKERS = 3
DRAIN_S = 180.0
"""How long producers may take for their last answers once nothing is wrong any more."""

_PRODUCERS, _CONSUMERS, _ADMINISTRATORS = 3, 2, 2
_RATE = 40
_PROGRESS_S = 120.0
_TO_SHOW = (FORWARDED, peer_reads("answered"))
_DEFECT = "defect of the broker"


@dataclass(slots=True)
class Outcome:
    """What a run came to. `lines` tell what was done when, `counters` what brokers did for each other."""

    seed: int
    seconds: float
    lines: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    acknowledged: int = 0
    polled: int = 0
    group_reads: int = 0
    faults: Counter[Fault] = field(default_factory=Counter)
    counters: Counter[str] = field(default_factory=Counter)
    longest_gap_s: float = 0.0


def run(
    folder: Path,
    *,
    seed: int,
    seconds: float,
    faults: Sequence[Fault],
    left_out: Collection[Fault],
    store: Store,
    log: Log,
    jars: Path | None,
) -> Outcome:
    """One run of a cluster in `folder`.

    Args:
        faults: what is drawn from.
        left_out: what of it is not done, since this machine can't: so a seed means the same everywhere else.
        store: of objects, not started.
        log: the coordinator log, not started.
        jars: Apache Kafka's, for a Java producer; none without them.
    """
    outcome, history = Outcome(seed, seconds), History()
    with ChaosCluster(folder, store, log, random.Random(seed)) as cluster:
        _together([cluster.add(node_id) for node_id in range(1, BROKERS + 1)], history)
        bootstrap = cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS)], request_timeout=CHANGE_S).values():
            created.result(CHANGE_S)
        clock = Clock()
        saboteur = Saboteur(cluster, clock, history)
        outcome.lines, outcome.faults = saboteur.lines, saboteur.faults
        producers: list[LibrdkafkaProducer | JavaProducer] = [
            LibrdkafkaProducer(bootstrap, TOPIC, PARTITIONS, number, _RATE, history, clock)
            for number in range(1, _PRODUCERS + 1)
        ]
        if jars is not None:
            producers.append(JavaProducer(jars, folder, bootstrap, TOPIC, 100, _RATE, history, clock))
        consumers = [
            LibrdkafkaConsumer(bootstrap, TOPIC, PARTITIONS, number, history) for number in range(1, _CONSUMERS + 1)
        ]
        slots = slots_of(jars, folder, bootstrap, TOPIC, history, clock)
        groups = sorted({slot.group for slot in slots})
        _let_begin(admin, groups)
        observer = Observer(bootstrap, TOPIC, PARTITIONS, groups, history, clock)
        numbers = count(1)
        administrators = [
            Administrator(number, cluster.client_ports, numbers, history, clock)
            for number in range(1, _ADMINISTRATORS + 1)
        ]
        counters = Counters(lambda: list(cluster.members.values()))
        for client in (*producers, *consumers, *slots, observer, *administrators, counters):
            client.start()
        saboteur.carry_out([one for one in plan(seed, seconds, faults) if one.fault not in left_out])
        saboteur.note("all is healed")
        _require_progress(history, clock, producers=len(producers), groups=groups, administrators=administrators)
        outcome.counters = _require_use(counters, cluster, history)
        outcome.longest_gap_s = checker.longest_gap_s(history, since_s=0, until_s=clock())
        for slot in slots:
            slot.stay()
        for administrator in administrators:
            administrator.stop()
        for producer in producers:
            producer.stop(DRAIN_S)
        final = _read_everything(bootstrap, history)
        ends = {at: len(records) for at, records in final.items()}
        _wait_for_consumers(history, ends)
        for consumer in consumers:
            consumer.stop()
        observer.stop()
        _wait_for_groups(observer, groups, ends, history, "have not come to the end")
        _stop_together(slots)
        require_agreement(cluster.client_ports_by_id(), administrators, history)
        _require_health(cluster, history)
        saboteur.note("all are stopped and started again")
        _together(list(cluster.members.values()), history)
        if _read_everything(bootstrap, history) != final:
            history.complain("the cluster", "does not have the same records after a restart of all brokers")
        _wait_for_groups(observer, groups, ends, history, "have lost commits by a restart of all brokers")
        observer.close()
        require_agreement(cluster.client_ports_by_id(), administrators, history)
    outcome.acknowledged = len(history.acknowledged)
    outcome.polled = sum(map(len, history.polled.values()))
    outcome.group_reads = sum(len(group.reads) for group in history.groups.values())
    outcome.violations = checker.violations(history, final)
    return outcome


def _let_begin(admin: AdminClient, groups: Sequence[str]) -> None:
    """Commit the beginning for all groups, so that no member has to ask where it is.

    When librdkafka (2.16) is told that only after a rebalance, it goes back there from wherever it has come since.
    """
    beginning = [TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)]
    for group in groups:
        [altered] = admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, beginning)], request_timeout=CHANGE_S
        ).values()
        altered.result(CHANGE_S)


def _together(members: Sequence[Member], history: History) -> None:
    """Stop what runs of these brokers, and start them all at the same time."""

    def start(member: Member) -> None:
        try:
            member.process.start()
        except AssertionError as error:
            history.complain(f"broker {member.node_id}", str(error))

    for member in members:
        if member.process.is_running:
            try:
                member.process.stop()
            except AssertionError as error:
                history.complain(f"broker {member.node_id}", str(error))
    threads = [threading.Thread(target=start, args=(member,), daemon=True) for member in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CHANGE_S)


def _read_everything(bootstrap: str, history: History) -> Final:
    try:
        return read_everything(bootstrap, TOPIC, PARTITIONS)
    except AssertionError as error:
        history.complain("the final reader", str(error))
        return {}


def _require_progress(
    history: History,
    clock: Clock,
    *,
    producers: int,
    groups: Sequence[str],
    administrators: Sequence[Administrator],
) -> None:
    """Once all is healed everybody gets on again, before anybody stops."""
    healed_s, deadline = clock(), clock() + _PROGRESS_S
    while clock() < deadline:
        answered = {one.sent.producer for one in history.acknowledged if one.at_s > healed_s}
        stuck = [f"{producers - len(answered)} producers"] if len(answered) < producers else []
        stuck += [f"group {group}" for group in groups if not _gets_on(history.groups[group], healed_s)]
        stuck += ["an administrator" for one in administrators if one.answered_s <= healed_s]
        if not stuck:
            return
        time.sleep(0.5)
    history.complain("the cluster", f"{_PROGRESS_S:.0f} s after all was healed these get no answers: {stuck}")


def _gets_on(group: GroupHistory, since_s: float) -> bool:
    """Whether it reads and commits."""
    reads = any(read.at_s > since_s for read in group.reads[-1:])
    return reads and any(since_s < commit.ended_s < inf for commit in group.commits)


def _stop_together(slots: Sequence[LibrdkafkaSlot | JavaSlot]) -> None:
    threads = [threading.Thread(target=slot.stop, args=[DRAIN_S]) for slot in slots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _wait_for_groups(
    observer: Observer, groups: Sequence[str], ends: Mapping[int, int], history: History, complaint: str
) -> None:
    """Until every group has committed that it has read everything."""
    deadline = time.monotonic() + DRAIN_S
    behind: Mapping[str, Mapping[int, int] | None] = dict.fromkeys(groups)
    while behind and time.monotonic() < deadline:
        looked = {group: observer.look(group) for group in behind}
        behind = {group: found for group, found in looked.items() if found != ends}
        time.sleep(0.2 if behind else 0)
    if behind:
        history.complain("groups", f"{complaint}, {ends}: {behind}")


def _require_use(counters: Counters, cluster: ChaosCluster, history: History) -> Counter[str]:
    """What brokers did for each other so far, once that is something of all that the run is to show."""
    deadline = time.monotonic() + _PROGRESS_S
    while not all(counters.total[name] for name in _TO_SHOW):
        if time.monotonic() > deadline:
            history.complain("the run", f"shows nothing of one of {_TO_SHOW}: {counters.total}")
            break
        read_newest(cluster.client_ports(), TOPIC)  # clients may all have come to one broker
        time.sleep(0.5)
    counters.stop()
    return counters.total


def _wait_for_consumers(history: History, ends: Mapping[int, int]) -> None:
    deadline = time.monotonic() + DRAIN_S
    wanted = [(consumer, at) for consumer in range(1, _CONSUMERS + 1) for at in ends]
    while time.monotonic() < deadline:
        behind = [key for key in wanted if len(history.polled[key]) < ends[key[1]]]
        if not behind:
            return
        time.sleep(0.2)
    history.complain("consumers", f"have not read everything: {behind}")


def _require_health(cluster: ChaosCluster, history: History) -> None:
    """Nothing is wrong any more: no broker has given a shard up, none found a mistake of its own."""
    for member in cluster.members.values():
        who = f"broker {member.node_id}"
        shards = _shards_of(cluster, member)
        if not shards:
            history.complain(who, f"does not answer\n{member.process.log_tail()}")
        for shard in shards:
            if shard["failure"] is not None:
                history.complain(who, f"has given up {shard['shard']}: {shard['failure']}")
        for line in member.process.log_text().splitlines():
            if _DEFECT in line:
                history.complain(who, line)


def _shards_of(cluster: ChaosCluster, member: Member) -> list[Mapping[str, Any]]:
    """A log that was broken until just now may not yet say where it ends."""
    deadline = time.monotonic() + CHANGE_S
    while not (shards := cluster.shards_of(member, CHANGE_S)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return shards
