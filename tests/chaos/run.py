"""One run: clients at work, faults by plan, and then the check of everything that clients were told."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos import checker
from tests.chaos.clients import Clock, JavaProducer, LibrdkafkaConsumer, LibrdkafkaProducer, read_everything
from tests.chaos.cluster import ChaosCluster, Member
from tests.chaos.history import History
from tests.chaos.plan import Fault, Planned, plan
from tests.chaos.proxy import Kind, Proxy, Trouble

TOPIC, PARTITIONS = "chaos", 6
BROKERS = 3
EXTRA_NODE = 4
DRAIN_S = 180.0
"""How long producers may take for their last answers once nothing is wrong any more."""

CHANGE_S = 180.0
"""How long a broker may take to start or stop once nothing is wrong any more."""

_PRODUCERS, _CONSUMERS = 3, 2
_RATE = 40
_PROGRESS_S = 120.0

_TROUBLES: Mapping[Fault, Trouble] = {
    Fault.BUCKET_AWAY: Trouble(Kind.CUT),
    Fault.BUCKET_UNAVAILABLE: Trouble(Kind.UNAVAILABLE),
    Fault.BUCKET_SLOW: Trouble(Kind.SLOW, delay_s=0.5),
    Fault.BUCKET_RESETS: Trouble(Kind.RESETS),
    Fault.BUCKET_ANSWERS_LOST: Trouble(Kind.ANSWERS_LOST),
    Fault.PEERS_CUT: Trouble(Kind.CUT),
    Fault.PEERS_HANG: Trouble(Kind.HANG),
    Fault.CLIENTS_CUT: Trouble(Kind.CUT),
}


@dataclass(slots=True)
class Outcome:
    """What a run came to. `lines` tell what was done when."""

    seed: int
    seconds: float
    lines: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    acknowledged: int = 0
    polled: int = 0
    faults: int = 0
    longest_gap_s: float = 0.0


class Run:
    """Does what the plan says to a cluster, and undoes it.

    What takes a broker's time, starts and stops, is done in threads: nothing keeps a fault from ending.
    """

    def __init__(self, cluster: ChaosCluster, clock: Clock, history: History, outcome: Outcome) -> None:
        self._cluster = cluster
        self._clock = clock
        self._history = history
        self._outcome = outcome
        self._undo: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._threads: list[threading.Thread] = []
        self._changing: dict[int, threading.Thread] = {}

    def carry_out(self, planned: Sequence[Planned]) -> None:
        """All of it, in its time; at return nothing goes on any more."""
        for one in planned:
            self._undo_until(one.at_s)
            self._wait_until(one.at_s)
            self._begin(one)
        self._undo_until(float("inf"))
        for thread in self._threads:
            thread.join(CHANGE_S)
            if thread.is_alive():
                self._history.complain(thread.name, f"has not ended {CHANGE_S:.0f} s after everything else")

    def note(self, what: str) -> None:
        line = f"{self._clock():8.1f} s  {what}"
        self._outcome.lines.append(line)
        print(line, flush=True)

    def _undo_until(self, at_s: float) -> None:
        while self._undo and self._undo[0][0] <= at_s:
            due_s, _, undo = heappop(self._undo)
            self._wait_until(due_s)
            undo()

    def _wait_until(self, at_s: float) -> None:
        time.sleep(max(0.0, at_s - self._clock()))  # the plan's time has to come

    def _later(self, one: Planned, undo: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._undo, (self._clock() + one.lasts_s, self._count, undo))

    def _begin(self, one: Planned) -> None:
        found = self._cluster.of_role(one.role, one.pick)
        names = ", ".join(str(member.node_id) for member in found)
        self.note(f"{one.fault.text}, for {one.lasts_s:.1f} s: broker {names or 'none is there'} ({one.role.value})")
        if not found:
            return
        self._outcome.faults += 1
        match one.fault:
            case Fault.KILL:
                found[0].process.kill()
                found[0].is_changing = True
                self._later(one, partial(self._change, found[:1], partial(self._start, found[0])))
            case Fault.PAUSE:
                self._cluster.pause(found[0])
                self._later(one, partial(self._wake, found[0]))
            case Fault.RESTART:
                self._change(found[:1], partial(self._restart, found[0], pause_s=one.lasts_s))
            case Fault.ROLL:
                self._change(found, partial(self._roll, found))
            case Fault.ADD:
                self._add(one)
            case Fault.CLOCK_OFF:
                self._set_clock(found[0], is_ahead=True)
                self._later(one, partial(self._set_clock, found[0], is_ahead=False))
            case Fault.DISK_FULL:
                self._cluster.fill_disk(found[0])
                self._later(one, partial(self._free_disk, found[0]))
            case _:
                self._trouble(one, found)

    # --- starts and stops, in threads ----------------------------------------------------------------------------

    def _change(self, members: Sequence[Member], work: Callable[[], None]) -> None:
        """Have somebody start or stop brokers, after whoever does so now."""
        names = ", ".join(f"broker {member.node_id}" for member in members)
        before = [self._changing[member.node_id] for member in members if member.node_id in self._changing]
        for member in members:
            member.is_changing = True

        def change() -> None:
            for other in before:
                other.join()
            for member in members:
                member.is_changing = True
            try:
                work()
            except AssertionError as error:  # it did not stop as it should
                self._history.complain(names, str(error))
            finally:
                for member in members:
                    member.is_changing = False

        thread = threading.Thread(target=change, name=names, daemon=True)
        self._threads.append(thread)
        self._changing |= {member.node_id: thread for member in members}
        thread.start()

    def _start(self, member: Member) -> None:
        """As a supervisor does: again, when it ended instead of starting."""
        while not member.process.is_running and member.node_id in self._cluster.members:
            try:
                member.process.start()
                self.note(f"broker {member.node_id} runs again")
            except AssertionError as error:
                self.note(f"broker {member.node_id} did not start: {str(error).splitlines()[-1]}")

    def _restart(self, member: Member, pause_s: float = 0.0) -> None:
        if member.process.is_running:
            member.process.stop()
        time.sleep(pause_s)  # as long as the plan says
        self._start(member)

    def _roll(self, found: Sequence[Member]) -> None:
        for member in found:
            self._restart(member)

    def _set_clock(self, member: Member, *, is_ahead: bool) -> None:
        def restart() -> None:
            self._cluster.set_clock(member, is_ahead=is_ahead)
            self._restart(member)
            self.note(f"broker {member.node_id} has {'another' if is_ahead else 'the right'} time")

        self._change([member], restart)

    def _add(self, one: Planned) -> None:
        if EXTRA_NODE not in self._cluster.members:
            member = self._cluster.add(EXTRA_NODE)
            self._change([member], partial(self._start, member))
            self._later(one, partial(self._change, [member], partial(self._remove, member)))

    def _remove(self, member: Member) -> None:
        self._wake(member)
        self._cluster.remove(member)
        self.note(f"broker {member.node_id} is removed")

    # --- what is quick -------------------------------------------------------------------------------------------

    def _trouble(self, one: Planned, found: Sequence[Member]) -> None:
        trouble = _TROUBLES[one.fault]
        places: list[tuple[Proxy, Trouble]] = []
        for member in found:
            match one.fault:
                case Fault.PEERS_CUT | Fault.PEERS_HANG:
                    places += self._cluster.peer_troubles(member, trouble)
                case Fault.CLIENTS_CUT:
                    places.append((member.clients, trouble))
                case _:
                    places.append((member.bucket, trouble))
        for proxy, what in places:
            self._cluster.begin(proxy, what)
        self._later(one, partial(self._heal, one, places))

    def _heal(self, one: Planned, places: Sequence[tuple[Proxy, Trouble]]) -> None:
        for proxy, trouble in places:
            self._cluster.end(proxy, trouble)
        self.note(f"over: {one.fault.text}")

    def _wake(self, member: Member) -> None:
        if member.process.is_running and member.is_paused:
            self._cluster.wake(member)
            self.note(f"broker {member.node_id} wakes")

    def _free_disk(self, member: Member) -> None:
        self._cluster.free_disk(member)
        self.note(f"the disk of broker {member.node_id} has room again")


def run(
    folder: Path, *, seed: int, seconds: float, faults: Sequence[Fault], log: Mapping[str, str], jars: Path
) -> Outcome:
    """One run of a cluster in `folder`.

    Args:
        log: the properties that choose the coordinator log.
        jars: Apache Kafka's, for the Java producer.
    """
    outcome, history = Outcome(seed, seconds), History()
    with ChaosCluster(folder, log, random.Random(seed)) as cluster:
        for node_id in range(1, BROKERS + 1):
            cluster.add(node_id).process.start()
        bootstrap = cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
            created.result(60)
        clock = Clock()
        going = Run(cluster, clock, history, outcome)
        producers: list[LibrdkafkaProducer | JavaProducer] = [
            LibrdkafkaProducer(bootstrap, TOPIC, PARTITIONS, number, _RATE, history, clock)
            for number in range(1, _PRODUCERS + 1)
        ]
        producers.append(JavaProducer(jars, folder, bootstrap, TOPIC, 100, _RATE, history, clock))
        consumers = [
            LibrdkafkaConsumer(bootstrap, TOPIC, PARTITIONS, number, history) for number in range(1, _CONSUMERS + 1)
        ]
        for client in (*producers, *consumers):
            client.start()
        going.carry_out(plan(seed, seconds, faults))
        going.note("all is healed")
        _require_progress(history, clock, len(producers))
        outcome.longest_gap_s = checker.longest_gap_s(history, since_s=0, until_s=clock())
        for producer in producers:
            producer.stop(DRAIN_S)
        final = read_everything(bootstrap, TOPIC, PARTITIONS)
        _wait_for_consumers(history, {at: len(records) for at, records in final.items()})
        for consumer in consumers:
            consumer.stop()
        outcome.acknowledged = len(history.acknowledged)
        outcome.polled = sum(map(len, history.polled.values()))
        outcome.violations = checker.violations(history, final)
    return outcome


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
