"""The demo's broker processes, by node id, and what was done to each. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from types import TracebackType

from diskless_core.cli.broker_process import BrokerProcess
from diskless_core.cli.cluster_demo.story import rack_of
from diskless_core.cli.raw_request import Address
from diskless_core.clock import Clock

COORDINATORS = 6
GROUP_COORDINATORS = 2

SESSION_MS = 3_000
"""Shorter than the default, so that a broker that stands still is found out while somebody watches."""


class Fate(Enum):
    """What a broker's process is, as far as the demo did it."""

    RUNNING = "runs"
    PAUSED = "stands still"
    KILLED = "killed"
    STOPPED = "shut down"


class Brokers:
    """All of them, as a context manager: in the end no process is left.

    Args:
        shared: the properties that say where the objects are.
        patience_s: how long one may take to start, and to stop.
    """

    def __init__(self, folder: Path, racks: int, shared: Mapping[str, str], clock: Clock, patience_s: float) -> None:
        self._folder = folder
        self._racks = racks
        self._shared = shared
        self._clock = clock
        self._patience_s = patience_s
        self._processes: dict[int, BrokerProcess] = {}
        self.fates: dict[int, Fate] = {}

    def __enter__(self) -> Brokers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.end()

    def start(self, *node_ids: int) -> Mapping[int, float]:
        """Start them together, and return how many seconds each took until clients could connect.

        Raises:
            BrokerProcessError: one did not.
        """
        for node_id in node_ids:
            process = self._processes.setdefault(node_id, self._new(node_id))
            process.begin()
        taken = {node_id: self._processes[node_id].until_ready() for node_id in node_ids}
        for node_id in node_ids:
            self.fates[node_id] = Fate.RUNNING
        return taken

    def _new(self, node_id: int) -> BrokerProcess:
        properties = {
            "node.id": str(node_id),
            "broker.rack": rack_of(node_id, self._racks),
            "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "coordinator_log": "bucket",
            "diskless.metadata.topic.num.partitions": str(COORDINATORS),
            "offsets.topic.num.partitions": str(GROUP_COORDINATORS),
            "group.initial.rebalance.delay.ms": "0",
            "broker.session.timeout.ms": str(SESSION_MS),
            "broker.heartbeat.interval.ms": str(SESSION_MS // 6),
            **self._shared,
        }
        folder = self._folder / f"broker-{node_id}"
        return BrokerProcess(folder, self._clock, overrides=properties, patience_s=self._patience_s)

    def kill(self, node_id: int) -> None:
        """SIGKILL."""
        self.fates[node_id] = Fate.KILLED
        self._processes[node_id].kill()

    def pause(self, node_id: int) -> None:
        """SIGSTOP."""
        self.fates[node_id] = Fate.PAUSED
        self._processes[node_id].pause()

    def wake(self, node_id: int) -> None:
        """SIGCONT."""
        self._processes[node_id].wake()
        self.fates[node_id] = Fate.RUNNING

    def stop(self, node_id: int) -> None:
        """SIGTERM; return when it has ended.

        Raises:
            BrokerProcessError: it ended with an error, or not in time.
        """
        self.fates[node_id] = Fate.STOPPED
        self._processes[node_id].stop()

    def unexpected(self) -> list[str]:
        """The brokers that have ended although nobody ended them, each with the last lines of its log."""
        return [
            self._processes[node_id].obituary() for node_id in self.running() if not self._processes[node_id].is_running
        ]

    def running(self) -> list[int]:
        """Those that answer, by node id."""
        return [node_id for node_id, fate in sorted(self.fates.items()) if fate is Fate.RUNNING]

    def rack(self, node_id: int) -> str:
        """The rack that a broker says it is in."""
        return rack_of(node_id, self._racks)

    def pid(self, node_id: int) -> int:
        """Of a running or paused broker."""
        return self._processes[node_id].pid

    def address(self, node_id: int) -> Address:
        """Where clients connect to it."""
        host, _, port = self._processes[node_id].bootstrap.rpartition(":")
        return Address(host, int(port))

    def admin(self, node_id: int) -> str:
        """Its HTTP interface."""
        return self._processes[node_id].admin

    def bootstrap(self) -> str:
        """All brokers that there have been, for clients."""
        return ",".join(str(self.address(node_id)) for node_id in sorted(self._processes))
