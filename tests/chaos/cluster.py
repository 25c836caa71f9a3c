"""A cluster of real brokers with proxies everywhere: before the bucket, between brokers, and before clients."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from diskless_core.shards import parse_shard, short_name
from tests.chaos.logs import Log
from tests.chaos.plan import Role
from tests.chaos.proxy import Proxies, Proxy, Trouble
from tests.chaos.stores import Store
from tests.support.apache_kafka import free_ports
from tests.support.broker import BrokerProcess

SESSION_MS = 10_000
"""After which a silent member is out of its group."""

CLIENTS, BROKERS = "PLAINTEXT", "INTERNAL"

SETTINGS: Mapping[str, str] = {
    "diskless.metadata.topic.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "metadata.log.max.record.bytes.between.snapshots": "65536",
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
"""What every broker is told: leaders in several places, snapshots so often that logs are pruned all the time, and
members of groups that are soon taken for gone."""

SHARED = "shared"
RACKS: Mapping[int, str] = {1: SHARED, 2: SHARED, 3: "other", 4: "other"}
"""Of the brokers by node id. Two that always run share what they read of the bucket."""

_ASK_TIMEOUT_S = 1.0
_DISK_BYTES = 256 << 20
_FILLING = bytes(64 << 10)


@dataclass(slots=True, kw_only=True)
class Member:
    """One broker and what stands before it.

    Attributes:
        bucket: before its object store; None where nothing can come between.
        is_changing: while somebody starts or stops it.
    """

    node_id: int
    process: BrokerProcess
    admin_port: int
    clients: Proxy
    peers: Proxy
    bucket: Proxy | None
    disk: Path
    is_paused: bool = False
    is_changing: bool = False

    @property
    def runs(self) -> bool:
        return self.process.is_running and not self.is_paused and not self.is_changing


class ChaosCluster:
    """Brokers by node id, each of which can be hurt. A context manager; nothing is left behind at its end.

    Args:
        store: where all brokers keep their objects, not started.
        log: the coordinator log that all brokers share, not started.
    """

    def __init__(self, folder: Path, store: Store, log: Log, source: random.Random) -> None:
        self.members: dict[int, Member] = {}
        self.log = log
        self._folder = folder
        self._store = store
        self._stack = ExitStack()
        self._proxies = Proxies(self._who, source)

    def __enter__(self) -> ChaosCluster:
        with ExitStack() as stack:
            stack.callback(self._store.end)
            self._store.start()
            stack.enter_context(self._proxies)
            stack.callback(self.log.end)
            self.log.start(self._proxies)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{member.clients.port}" for member in list(self.members.values()))

    def client_ports(self) -> list[int]:
        """Where clients reach the brokers that there are, running or not."""
        return list(self.client_ports_by_id().values())

    def client_ports_by_id(self) -> dict[int, int]:
        return {member.node_id: member.clients.port for member in list(self.members.values())}

    # --- brokers -------------------------------------------------------------------------------------------------

    def add(self, node_id: int) -> Member:
        """A new broker, not started."""
        clients, peers, admin = free_ports(3)
        port = self._store.port
        bucket = None if port is None else self._proxies.before(port)
        member = Member(
            node_id=node_id,
            admin_port=admin,
            clients=self._proxies.before(clients),
            peers=self._proxies.before(peers),
            bucket=bucket,
            disk=self._disk(node_id),
            process=BrokerProcess(self._folder / f"broker-{node_id}"),
        )
        member.process = BrokerProcess(
            self._folder / f"broker-{node_id}",
            {
                "node.id": str(node_id),
                "broker.rack": RACKS[node_id],
                "log.dirs": str(member.disk),
                "listeners": f"{CLIENTS}://127.0.0.1:{clients},{BROKERS}://127.0.0.1:{peers}",
                "advertised.listeners": (
                    f"{CLIENTS}://127.0.0.1:{member.clients.port},{BROKERS}://127.0.0.1:{member.peers.port}"
                ),
                "listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{BROKERS}:PLAINTEXT",
                "inter.broker.listener.name": BROKERS,
                "admin.listener": f"http://127.0.0.1:{admin}",
                **SETTINGS,
                **self._store.properties(None if bucket is None else bucket.port),
                **self.log.properties(),
            },
        )
        self._stack.callback(member.process.end)
        self.members[node_id] = member
        return member

    def remove(self, member: Member) -> None:
        """It is stopped, and does not come back."""
        del self.members[member.node_id]
        if member.process.is_running:
            member.process.stop()

    def pause(self, member: Member) -> None:
        os.kill(member.process.pid, signal.SIGSTOP)
        member.is_paused = True

    def wake(self, member: Member) -> None:
        member.is_paused = False
        with suppress(AssertionError, ProcessLookupError):  # it is not running any more
            os.kill(member.process.pid, signal.SIGCONT)

    def set_clock(self, member: Member, *, is_ahead: bool) -> None:
        """What its next start has: a wall clock ten minutes ahead, or the right one. The monotonic clock stays."""
        member.process.environment = clock_ahead() if is_ahead else {}

    def fill_disk(self, member: Member) -> None:
        """Leave next to no byte free where its data are."""
        with (member.disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):  # it is full
            while True:
                filler.write(_FILLING)

    def free_disk(self, member: Member) -> None:
        (member.disk / "filler").unlink(missing_ok=True)

    def of_role(self, role: Role, pick: float) -> list[Member]:
        """Whom a fault hits now: running brokers only. Where none has the role, as after another fault, any of them."""
        running = [member for member in list(self.members.values()) if member.runs]
        match role:
            case Role.ALL:
                return running
            case Role.CONTROLLER:
                running = [member for member in running if self._leads(member, "cluster-0")] or running
            case Role.LEADER:
                running = [member for member in running if self._leads(member, "diskless-")] or running
            case Role.GROUPS:
                running = [member for member in running if self._leads(member, "groups-")] or running
            case Role.LENDER:
                running = [member for member in running if RACKS[member.node_id] == SHARED] or running
            case Role.ANY | Role.LOG:
                pass
        return [running[int(pick * len(running))]] if running else []

    def _leads(self, member: Member, prefix: str) -> bool:
        return any(
            shard["leading"] and short_name(parse_shard(shard["shard"])).startswith(prefix)
            for shard in self.shards_of(member)
        )

    def shards_of(self, member: Member, timeout_s: float = _ASK_TIMEOUT_S) -> list[Mapping[str, Any]]:
        """What a broker says of its shards; nothing if it does not answer in time."""
        try:
            url = f"http://127.0.0.1:{member.admin_port}/coordinator/shards"
            with urllib.request.urlopen(url, timeout=timeout_s) as answer:
                found: list[Mapping[str, Any]] = json.load(answer)
                return found
        except (OSError, ValueError):
            return []

    # --- networks ------------------------------------------------------------------------------------------------

    def begin(self, proxy: Proxy, trouble: Trouble) -> None:
        self._proxies.begin(proxy, trouble)

    def end(self, proxy: Proxy, trouble: Trouble) -> None:
        self._proxies.end(proxy, trouble)

    def peer_troubles(self, member: Member, trouble: Trouble) -> list[tuple[Proxy, Trouble]]:
        """What cuts a broker from all others in both directions."""
        inwards = [(member.peers, trouble)]
        outwards = [
            (other.peers, Trouble(trouble.kind, source=member.node_id, delay_s=trouble.delay_s))
            for other in list(self.members.values())
            if other is not member
        ]
        return inwards + outwards

    def log_troubles(self, member: Member, trouble: Trouble) -> list[tuple[Proxy, Trouble]]:
        """What comes between one broker and the processes of the log."""
        return [(proxy, Trouble(trouble.kind, source=member.node_id)) for proxy in self.log.proxies]

    def _who(self, port: int) -> int | None:
        """The broker that has opened a connection from a local port."""
        for member in list(self.members.values()):
            try:
                connections = psutil.Process(member.process.pid).net_connections("tcp4")
            except (psutil.Error, AssertionError):
                continue  # it has ended
            if any(connection.laddr.port == port for connection in connections):
                return member.node_id
        return None

    def _disk(self, node_id: int) -> Path:
        """A small disk of its own, where this process may mount one; else a folder."""
        disk = self._folder / f"disk-{node_id}"
        if disk.exists():
            return disk  # a broker of that id was there before
        disk.mkdir(parents=True)
        if can_fill_disks():
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(disk)], check=True)
            self._stack.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=True)
        return disk


def clock_ahead() -> dict[str, str]:
    """What a process has to find in its environment for a wall clock ten minutes ahead."""
    folders = str(Path(__file__).with_name("clock_ahead")), os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join(filter(None, folders))}


def can_fill_disks() -> bool:
    """Whether disks of a limited size can be mounted here."""
    return sys.platform == "linux" and os.geteuid() == 0 and shutil.which("mount") is not None
