"""One run: clients at work, faults by plan, and then the check of everything that clients were told."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos import checker
from tests.chaos.clients import Clock, JavaProducer, LibrdkafkaConsumer, LibrdkafkaProducer, read_everything
from tests.chaos.cluster import ChaosCluster, Member
from tests.chaos.history import Final, History
from tests.chaos.logs import Log
from tests.chaos.plan import Fault, plan
from tests.chaos.saboteur import CHANGE_S, Saboteur
from tests.chaos.stores import Store

TOPIC, PARTITIONS = "chaos", 6
BROKERS = 3
DRAIN_S = 180.0
"""How long producers may take for their last answers once nothing is wrong any more."""

_PRODUCERS, _CONSUMERS = 3, 2
_RATE = 40
_PROGRESS_S = 120.0
_DEFECT = "defect of the broker"


@dataclass(slots=True)
class Outcome:
    """What a run came to. `lines` tell what was done when."""

    seed: int
    seconds: float
    lines: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    acknowledged: int = 0
    polled: int = 0
    faults: Counter[Fault] = field(default_factory=Counter)
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
        for client in (*producers, *consumers):
            client.start()
        saboteur.carry_out([one for one in plan(seed, seconds, faults) if one.fault not in left_out])
        saboteur.note("all is healed")
        _require_progress(history, clock, len(producers))
        outcome.longest_gap_s = checker.longest_gap_s(history, since_s=0, until_s=clock())
        for producer in producers:
            producer.stop(DRAIN_S)
        final = _read_everything(bootstrap, history)
        _wait_for_consumers(history, {at: len(records) for at, records in final.items()})
        for consumer in consumers:
            consumer.stop()
        _require_health(cluster, history)
        saboteur.note("all are stopped and started again")
        _together(list(cluster.members.values()), history)
        if _read_everything(bootstrap, history) != final:
            history.complain("the cluster", "does not have the same records after a restart of all brokers")
    outcome.acknowledged = len(history.acknowledged)
    outcome.polled = sum(map(len, history.polled.values()))
    outcome.violations = checker.violations(history, final)
    return outcome


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


def _require_progress(history: History, clock: Clock, producers: int) -> None:
    """Once all is healed every producer gets answers again, before anybody stops."""
    healed_s, deadline = clock(), clock() + _PROGRESS_S
    while clock() < deadline:
        if len({one.sent.producer for one in history.acknowledged if one.at_s > healed_s}) == producers:
            return
        time.sleep(0.5)
    history.complain("the cluster", f"not every producer got an answer within {_PROGRESS_S:.0f} s after all was healed")


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
        shards = cluster.shards_of(member, CHANGE_S)
        if not shards:
            history.complain(who, f"does not answer\n{member.process.log_tail()}")
        for shard in shards:
            if shard["failure"] is not None:
                history.complain(who, f"has given up {shard['shard']}: {shard['failure']}")
        for line in member.process.log_text().splitlines():
            if _DEFECT in line:
                history.complain(who, line)
