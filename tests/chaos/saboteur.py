"""Does to a cluster what a plan says, and undoes it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush

from tests.chaos.clients import Clock
from tests.chaos.cluster import ChaosCluster, Member
from tests.chaos.history import History
from tests.chaos.plan import Fault, Planned, Role
from tests.chaos.proxy import Kind, Proxy, Trouble
from tests.support.apache_kafka import ApacheKafka

EXTRA_NODE = 4

CHANGE_S = 180.0
"""How long a broker may take to start or stop once nothing is wrong any more."""

_LOOK_S = 0.25
_AGAIN_S = 0.5

_TROUBLES: Mapping[Fault, Trouble] = {
    Fault.BUCKET_AWAY: Trouble(Kind.CUT),
    Fault.BUCKET_UNAVAILABLE: Trouble(Kind.UNAVAILABLE),
    Fault.BUCKET_SLOW: Trouble(Kind.SLOW, delay_s=0.5),
    Fault.BUCKET_RESETS: Trouble(Kind.RESETS),
    Fault.BUCKET_ANSWERS_LOST: Trouble(Kind.ANSWERS_LOST),
    Fault.PEERS_CUT: Trouble(Kind.CUT),
    Fault.PEERS_HANG: Trouble(Kind.HANG),
    Fault.PEERS_SLOW: Trouble(Kind.SLOW, delay_s=0.2),
    Fault.OBJECTS_GARBLED: Trouble(Kind.GARBLES_OBJECTS),
    Fault.CLIENTS_CUT: Trouble(Kind.CUT),
    Fault.LOG_CUT: Trouble(Kind.CUT),
    Fault.LOG_HANGS: Trouble(Kind.HANG),
}


class Saboteur:
    """Breaks things by plan and heals them.

    What takes a broker's time, starts and stops, is done in threads: nothing keeps a fault from ending.

    Attributes:
        lines: what was done when.
        faults: how often each was done.
    """

    def __init__(self, cluster: ChaosCluster, clock: Clock, history: History) -> None:
        self.lines: list[str] = []
        self.faults: Counter[Fault] = Counter()
        self._cluster = cluster
        self._clock = clock
        self._history = history
        self._undo: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._threads: list[threading.Thread] = []
        self._changing: dict[int, threading.Thread] = {}
        self._dead_nodes: set[ApacheKafka] = set()
        self._is_over = threading.Event()

    def carry_out(self, planned: Sequence[Planned]) -> None:
        """All of it, in its time; at return nothing is wrong any more and every broker runs."""
        try:
            for one in planned:
                self._undo_until(one.at_s)
                self._wait_until(one.at_s)
                self._begin(one)
            self._undo_until(float("inf"))
            self._look_after_brokers()
            self._join()
        finally:
            self._is_over.set()

    def _join(self) -> None:
        deadline = time.monotonic() + CHANGE_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._history.complain(thread.name, f"does not run {CHANGE_S:.0f} s after everything else was healed")

    def note(self, what: str) -> None:
        line = f"{self._clock():8.1f} s  {what}"
        self.lines.append(line)
        print(line, flush=True)

    def _undo_until(self, at_s: float) -> None:
        while self._undo and self._undo[0][0] <= at_s:
            due_s, _, undo = heappop(self._undo)
            self._wait_until(due_s)
            undo()

    def _wait_until(self, at_s: float) -> None:
        while (left_s := at_s - self._clock()) > 0:
            self._look_after_brokers()
            time.sleep(min(left_s, _LOOK_S))  # the plan's time has to come

    def _look_after_brokers(self) -> None:
        """No fault makes a broker end by itself."""
        for member in list(self._cluster.members.values()):
            if not member.is_changing and not member.process.is_running:
                self.note(f"broker {member.node_id} ended by itself")
                self._history.complain(f"broker {member.node_id}", f"ended by itself\n{member.process.log_tail()}")
                self._change([member], partial(self._start, member))

    def _later(self, one: Planned, undo: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._undo, (self._clock() + one.lasts_s, self._count, undo))

    def _begin(self, one: Planned) -> None:
        if one.role is Role.LOG:
            self._kill_nodes(one)
            return
        found = self._cluster.of_role(one.role, one.pick)
        nodes = [EXTRA_NODE] if one.fault is Fault.ADD else [member.node_id for member in found]
        who = ", ".join(map(str, nodes)) or "none, for none runs"
        self._note_begin(one, f"broker {who} ({one.role.value})")
        if not found:
            return
        self.faults[one.fault] += 1
        match one.fault:
            case Fault.KILL:
                found[0].is_changing = True
                found[0].process.kill()
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

    def _note_begin(self, one: Planned, who: str) -> None:
        lasts = f", for {one.lasts_s:.1f} s" if one.lasts_s else ""
        self.note(f"{one.fault.text}{lasts}: {who}")

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
            finally:
                for member in members:
                    member.is_changing = False

        thread = self._in_thread(names, change)
        self._changing |= {member.node_id: thread for member in members}
        thread.start()

    def _in_thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        return thread

    def _start(self, member: Member) -> None:
        """As a supervisor does: again, when it ended instead of starting."""
        while self._is_wanted(member) and not member.process.is_running:
            try:
                member.process.start()
                self.note(f"broker {member.node_id} runs again")
            except AssertionError as error:
                self.note(f"broker {member.node_id} did not start: {str(error).splitlines()[-1]}")
                time.sleep(_AGAIN_S)

    def _stop(self, stop: Callable[[], None], member: Member) -> None:
        """A stop may be broken off, and say so, where a broker can neither store nor hand over what it has."""
        if not member.process.is_running:
            return
        try:
            stop()
        except AssertionError as error:
            self.note(f"broker {member.node_id} stopped uncleanly: {str(error).splitlines()[0]}")

    def _is_wanted(self, member: Member) -> bool:
        return self._cluster.members.get(member.node_id) is member and not self._is_over.is_set()

    def _restart(self, member: Member, pause_s: float = 0.0) -> None:
        self._stop(member.process.stop, member)
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
        self._stop(partial(self._cluster.remove, member), member)
        self.note(f"broker {member.node_id} is removed")

    # --- nodes of the log ----------------------------------------------------------------------------------------

    def _kill_nodes(self, one: Planned) -> None:
        count = 2 if one.fault is Fault.LOG_BROKERS_KILLED else 1
        nodes = self._cluster.log.nodes
        first = int(one.pick * len(nodes))
        chosen = [nodes[(first + step) % len(nodes)] for step in range(count)]
        found = [node for node in chosen if node not in self._dead_nodes]
        who = ", ".join(node.folder.name for node in found) or "none, for it is dead already"
        self._note_begin(one, who)
        if not found:
            return
        self.faults[one.fault] += 1
        self._dead_nodes |= set(found)
        for node in found:
            node.end()
        self._later(one, partial(self._revive, found))

    def _revive(self, nodes: Sequence[ApacheKafka]) -> None:
        """Launched here: the kernel ends such a process with the thread that launched it."""
        for node in nodes:
            node.launch()
            self._in_thread(node.folder.name, partial(self._wait_for_node, node)).start()

    def _wait_for_node(self, node: ApacheKafka) -> None:
        try:
            node.wait_until_ready()
        except AssertionError as error:
            self._history.complain(node.folder.name, str(error))
            return
        self._dead_nodes.discard(node)
        self.note(f"{node.folder.name} runs again")

    # --- what is quick -------------------------------------------------------------------------------------------

    def _trouble(self, one: Planned, found: Sequence[Member]) -> None:
        trouble = _TROUBLES[one.fault]
        places: list[tuple[Proxy, Trouble]] = []
        for member in found:
            match one.fault:
                case Fault.OBJECTS_GARBLED:
                    places.append((member.peers, trouble))
                case Fault.PEERS_CUT | Fault.PEERS_HANG | Fault.PEERS_SLOW:
                    places += self._cluster.peer_troubles(member, trouble)
                case Fault.LOG_CUT | Fault.LOG_HANGS:
                    places += self._cluster.log_troubles(member, trouble)
                case Fault.CLIENTS_CUT:
                    places.append((member.clients, trouble))
                case _:
                    assert member.bucket is not None, "nothing can come between the brokers and a folder"
                    places.append((member.bucket, trouble))
        for proxy, what in places:
            self._cluster.begin(proxy, what)
        self._later(one, partial(self._heal, one, places))

    def _heal(self, one: Planned, places: Sequence[tuple[Proxy, Trouble]]) -> None:
        for proxy, trouble in places:
            self._cluster.end(proxy, trouble)
        self.note(f"over: {one.fault.text}")

    def _wake(self, member: Member) -> None:
        if member.is_paused:
            self._cluster.wake(member)
            self.note(f"broker {member.node_id} wakes")

    def _free_disk(self, member: Member) -> None:
        self._cluster.free_disk(member)
        self.note(f"the disk of broker {member.node_id} has room again")
