"""A real Apache Kafka, for tests that compare with it or run its tools: a JVM, one KRaft broker."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 300.0

_POLL_S = 0.05
_LOG_TAIL_LINES = 25
# Below what kernels give to outgoing connections, so that none takes the port before the JVM does.
_PORTS = range(20_000, 32_000)
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
# The kernel ends the JVM with the process that started it, however that one ends.
GUARD = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()


def classpath(jars: Path) -> str:
    return os.pathsep.join(sorted(map(str, jars.glob("*.jar"))))


def java(
    jars: Path,
    main: str,
    *arguments: str,
    options: Sequence[str] = (*QUICK_START, "-Xmx256m"),
    log_level: str = "warn",
) -> list[str]:
    """The command line of a JVM that runs a main class of Kafka and logs to standard error."""
    logging = (f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}", "-Dorg.slf4j.simpleLogger.showDateTime=true")
    return [*GUARD, "java", *options, *logging, "-cp", classpath(jars), main, *arguments]


def free_ports(count: int) -> list[int]:
    """Different ports of the loopback interface that nobody listens on and no outgoing connection gets."""
    free: list[int] = []
    # pytest-randomly seeds the shared generator alike in all workers, which would then pick the same ports
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return free
    raise AssertionError("no port is free")


class ApacheKafka:
    """One KRaft node, broker and controller, with its data in `folder`.

    Args:
        folder: holds the data, `server.properties` and the log in `kafka.log`.
        properties: what is set besides the folder, the listeners and replication factors of 1.
        options: of the JVM.
    """

    def __init__(
        self,
        jars: Path,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        options: Sequence[str] = (*QUICK_START, "-Xmx512m"),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.jars = jars
        self.folder = folder
        self.log = folder / "kafka.log"
        self._options = options
        self.bootstrap, self.controller = (f"127.0.0.1:{port}" for port in free_ports(2))
        self._settings = folder / "server.properties"
        self._settings.write_text(
            "".join(f"{name}={value}\n" for name, value in {**self._defaults(), **(properties or {})}.items())
        )
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, properties: Mapping[str, str]) -> None:
        """Set more, over what is set. To be called before the start."""
        with self._settings.open("a") as settings:
            settings.writelines(f"{name}={value}\n" for name, value in properties.items())

    def advertise(self, address: str) -> None:
        """Tell clients to connect to another address, such as a relay's. To be called before the start."""
        self.configure({"advertised.listeners": f"PLAINTEXT://{address}"})

    def start(self) -> ApacheKafka:
        """Format the folder if it is new, start the broker and wait until it serves clients."""
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Format the folder if it is new and start the process: one of several nodes is not ready alone."""
        self.format()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                java(self.jars, "kafka.Kafka", str(self._settings), options=self._options, log_level="info"),
                stdout=log,
                stderr=log,
            )

    def wait_until_ready(self) -> None:
        """Wait until a process that was launched serves clients.

        Raises:
            AssertionError: it ended, or takes too long and was ended.
        """
        assert self._process is not None, "Apache Kafka is not running"
        deadline = time.monotonic() + START_TIMEOUT_S
        while "Kafka Server started" not in self.log_text():
            try:
                code = self._process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
                self.end()
                raise AssertionError(f"Apache Kafka was not ready in time\n{self.log_tail()}") from None
            raise AssertionError(f"Apache Kafka ended with code {code} instead of starting\n{self.log_tail()}")

    def stop(self) -> None:
        """SIGTERM: it ends by itself and leaves its log folder in order."""
        assert self._process is not None, "Apache Kafka is not running"
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        finally:
            self.end()

    def end(self) -> None:
        """Make sure that no process is left; its data stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def log_tail(self) -> str:
        return "\n".join(self.log_text().splitlines()[-_LOG_TAIL_LINES:])

    def _defaults(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{self.controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder / "data"),
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
        }

    @property
    def pid(self) -> int:
        assert self._process is not None, "Apache Kafka is not running"
        return self._process.pid

    def format(self) -> None:
        """Make the data folder, unless there is one."""
        if (self.folder / "data" / "meta.properties").exists():
            return
        arguments = ["format", "--cluster-id", CLUSTER_ID, "--config", str(self._settings), "--ignore-formatted"]
        done = subprocess.run(
            java(self.jars, "kafka.tools.StorageTool", *arguments),
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr


class TieredKafka(ApacheKafka):
    """One that keeps segments in a folder, as `LocalTieredStorage` does, and copies and drops them every half second.

    Attributes:
        storage: the folder, the storage's `dir`. Kafka deletes nothing in it.
    """

    def __init__(self, jars: Path, folder: Path) -> None:
        self.storage = folder / "tiered"
        super().__init__(jars, folder, self._tiered(), options=(*QUICK_START, "-Xmx256m"))

    def _tiered(self) -> dict[str, str]:
        return {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": ("org.apache.kafka.server.log.remote.storage.LocalTieredStorage"),
            "rsm.config.dir": str(self.storage),
            "rsm.config.delete.enable": "false",
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
            "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
            "remote.log.manager.task.interval.ms": "500",
            "log.retention.check.interval.ms": "500",
            "log.initial.task.delay.ms": "500",
        }
