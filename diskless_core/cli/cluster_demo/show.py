"""The show from the first broker to the verdict: does what the story asks for, and waits until clients are over it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskless_core.cli.client.cluster_unregister import forget
from diskless_core.cli.cluster_demo import story, traffic
from diskless_core.cli.cluster_demo.brokers import SESSION_MS, Brokers, Fate
from diskless_core.cli.cluster_demo.bucket import Bucket
from diskless_core.cli.cluster_demo.ledger import Ledger, Verdict
from diskless_core.cli.cluster_demo.screen import BrokerLine, Picture, Screen, fault_table
from diskless_core.cli.cluster_demo.story import Act
from diskless_core.cli.cluster_demo.watch import Watch
from diskless_core.clock import Clock

_FRAME_S = 0.2
_RATE_S = 2.0


class ShowError(Exception):
    """The cluster did not come to what was waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the audience asked for.

    Attributes:
        pace_s: how long all goes well before the next thing is done.
        rate: records a second, of all producers together.
        patience_s: how long anything may take before the show is broken off.
    """

    brokers: int
    racks: int
    pace_s: float
    rate: float
    patience_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What was done, and when clients were over it."""

    act: Act
    began_s: float
    ended_s: float


class Show:
    """One run. `run` returns what was not as it should be."""

    def __init__(self, plan: Plan, folder: Path, bucket: Bucket, screen: Screen, clock: Clock) -> None:
        self._plan = plan
        self._screen = screen
        self._clock = clock
        self._bucket = bucket
        self._began_s = clock.monotonic()
        self._pause = threading.Event()
        self._ledger = Ledger()
        self._brokers = Brokers(folder, plan.racks, bucket.properties, clock, plan.patience_s)
        self._watch = Watch(self._brokers, bucket.requests)
        self._producers: list[traffic.DemoProducer] = []
        self._title = ""
        self._counts: deque[tuple[float, int, int]] = deque()
        self._faults: list[Fault] = []
        self._newcomer: int | None = None

    def run(self) -> list[str]:
        """Run all of it, and return what was not as it should be; empty when everything was.

        Raises:
            BrokerProcessError: a broker did not start or stop.
            ShowError, TrafficError, ClusterError: something that was waited for did not come.
        """
        with ExitStack() as stack:
            stack.enter_context(self._brokers)
            self._open(stack)
            for act in story.acts(self._plan.racks):
                self._tell("all is well")
                self._wait(self._plan.pace_s)
                self._play(act)
            verdict = self._close()
        return self._judge(verdict)

    # --- acts --------------------------------------------------------------------------------------------------------

    def _open(self, stack: ExitStack) -> None:
        plan = self._plan
        self._tell(f"{plan.brokers} brokers start in {plan.racks} racks, on {self._bucket.place}")
        taken = self._brokers.start(*range(1, plan.brokers + 1))
        for node_id, seconds in taken.items():
            told = f"broker {node_id} in {self._brokers.rack(node_id)} listens on {self._brokers.address(node_id)}"
            self._tell(f"{told} after {seconds:.1f} s")
        self._watch.start()
        stack.callback(self._watch.end)
        bootstrap = self._brokers.bootstrap()
        traffic.create_topic(bootstrap, plan.patience_s)
        stack.enter_context(self._clients(bootstrap))
        self._tell(f"{len(self._producers)} idempotent producers and a group of {traffic.MEMBERS} are at work")
        self._until_over({}, "clients begin")

    @contextmanager
    def _clients(self, bootstrap: str) -> Iterator[None]:
        racks = [story.rack_of(number + 1, self._plan.racks) for number in range(self._plan.racks)]
        rate = self._plan.rate / len(racks)
        members = [
            traffic.DemoMember(bootstrap, number, racks[number % len(racks)], self._ledger, self._clock)
            for number in range(traffic.MEMBERS)
        ]
        self._producers += [
            traffic.DemoProducer(bootstrap, number, rack, rate, self._ledger, self._clock)
            for number, rack in enumerate(racks)
        ]
        try:
            for member in members:
                member.start()
            for producer in self._producers:
                producer.start()
            yield
        finally:
            for producer in self._producers:
                producer.end()
                producer.give_up()
            for member in members:
                member.end()

    def _play(self, act: Act) -> None:
        victims = story.victims(act, self._watch.stage(), self._newcomer)
        began_s = self._clock.monotonic()
        self._do(act, victims)
        self._until_over(self._sent(), f"clients are over: {act.value}")
        ended_s = self._clock.monotonic()
        self._faults.append(Fault(act=act, began_s=began_s, ended_s=ended_s))
        gap_s, _ = self._ledger.longest_silence_s(began_s, ended_s)
        self._tell(f"all producers are acknowledged again; none waited longer than {gap_s:.2f} s")
        if act is Act.KILL:
            self._start(*victims)

    def _do(self, act: Act, victims: Sequence[int]) -> None:
        match act:
            case Act.KILL:
                for node_id in victims:
                    self._tell(f"kill -9 {self._brokers.pid(node_id)}: broker {node_id}, which {self._role(node_id)}")
                    self._brokers.kill(node_id)
            case Act.PAUSE:
                for node_id in victims:
                    self._tell(f"broker {node_id}, which {self._role(node_id)}, stands still")
                    self._brokers.pause(node_id)
                    try:
                        self._until_fenced(node_id)
                        self._wait(SESSION_MS / 2000)
                    finally:
                        self._brokers.wake(node_id)
                    self._tell(f"broker {node_id} wakes, and finds out what it missed")
            case Act.ADD:
                self._newcomer = max(self._brokers.fates) + 1
                self._start(self._newcomer)
            case Act.REMOVE:
                for node_id in victims:
                    self._tell(f"broker {node_id}, which {self._role(node_id)}, is asked to stop")
                    self._brokers.stop(node_id)
                    self._unregister(node_id)
            case Act.STOP_RACK:
                names = " and ".join(f"broker {node_id}" for node_id in victims)
                self._tell(f"{self._brokers.rack(victims[0])} is gone at one blow: {names}")
                for node_id in victims:
                    self._brokers.kill(node_id)

    def _start(self, *node_ids: int) -> None:
        for node_id, seconds in self._brokers.start(*node_ids).items():
            self._tell(f"broker {node_id} in {self._brokers.rack(node_id)} is live after {seconds:.1f} s")

    def _unregister(self, node_id: int) -> None:
        self._until_fenced(node_id)
        forget([self._brokers.address(other) for other in self._brokers.running()], node_id)
        self._tell(f"broker {node_id} has stopped, and is unregistered")

    def _role(self, node_id: int) -> str:
        sight = self._watch.sight
        leads = f"leads {sight.leads()[node_id]} coordinators"
        return f"is the controller and {leads}" if sight.controller == node_id else leads

    def _close(self) -> Verdict:
        self._tell("no more is produced; everything is read from its beginning")
        for producer in self._producers:
            producer.end()
        deadline_s = self._clock.monotonic() + self._plan.patience_s
        for producer in self._producers:
            left = producer.flush(max(0.0, deadline_s - self._clock.monotonic()))
            if left:
                self._ledger.complain(f"{left} records of a producer never got an answer")
        bootstrap = ",".join(str(self._brokers.address(node_id)) for node_id in self._brokers.running())
        log = traffic.read_everything(bootstrap, self._clock, self._plan.patience_s)
        self._until(lambda: self._ledger.all_is_read(), "the group has read everything")
        return self._ledger.verdict(log)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        until_s = self._clock.monotonic() + seconds
        while self._clock.monotonic() < until_s:
            self._frame()

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = self._clock.monotonic() + self._plan.patience_s
        while not condition():
            if self._clock.monotonic() > deadline_s:
                raise ShowError(f"it did not come to be in {self._plan.patience_s:.0f} s that {what}")
            self._frame()

    def _until_fenced(self, node_id: int) -> None:
        self._until(lambda: node_id not in self._watch.sight.live, f"broker {node_id} is fenced")

    def _sent(self) -> dict[tuple[int, int], int]:
        return {key: count for producer in self._producers for key, count in producer.sent().items()}

    def _until_over(self, sent: dict[tuple[int, int], int], what: str) -> None:
        """Until each producer is acknowledged in each partition for what it sent after that, and the group reads."""
        read = self._ledger.read

        def is_over() -> bool:
            newest = self._ledger.newest()
            places = [(number, at) for number in range(len(self._producers)) for at in range(traffic.PARTITIONS)]
            return self._ledger.read > read and all(newest.get(one, -1) >= sent.get(one, 0) for one in places)

        self._until(is_over, what)

    def _frame(self) -> None:
        self._pause.wait(_FRAME_S)
        ended = self._brokers.unexpected()
        if ended:
            raise ShowError(ended[0])
        now_s = self._clock.monotonic()
        self._counts.append((now_s, self._ledger.acknowledged, self._ledger.read))
        while now_s - self._counts[0][0] > _RATE_S:
            self._counts.popleft()
        self._screen.show(now_s - self._began_s, self._picture())

    def _picture(self) -> Picture:
        (first_s, first_acknowledged, first_read), (last_s, acknowledged, read) = self._counts[0], self._counts[-1]
        span_s = max(last_s - first_s, _FRAME_S)
        return Picture(
            title=self._title,
            brokers=[
                BrokerLine(
                    node_id=node_id,
                    rack=self._brokers.rack(node_id),
                    fate=fate,
                    pid=self._brokers.pid(node_id) if fate in (Fate.RUNNING, Fate.PAUSED) else None,
                )
                for node_id, fate in sorted(self._brokers.fates.items())
            ],
            sight=self._watch.sight,
            acknowledged=acknowledged,
            read=read,
            produced_s=(acknowledged - first_acknowledged) / span_s,
            consumed_s=(read - first_read) / span_s,
            requests=self._watch.requests,
        )

    def _tell(self, line: str) -> None:
        self._title = line
        self._screen.tell(self._clock.monotonic() - self._began_s, line)

    # --- the verdict -------------------------------------------------------------------------------------------------

    def _judge(self, verdict: Verdict) -> list[str]:
        rows = [
            (fault.act.value, *self._ledger.longest_silence_s(fault.began_s, fault.ended_s)) for fault in self._faults
        ]
        problems = [*verdict.problems(), *self._ledger.complaints]
        figures = (
            f"{verdict.acknowledged:,} records acknowledged: {verdict.lost:,} lost, {verdict.doubled:,} doubled, "
            f"{verdict.reordered:,} out of order"
        )
        read = f"{verdict.read:,} of them read by the group, {verdict.read_again:,} more than once after it rebalanced"
        self._screen.end(fault_table(rows), "proved:" if not problems else "found:", f"  {figures}", f"  {read}")
        return problems
