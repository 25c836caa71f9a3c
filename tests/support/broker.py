"""A broker in a process of its own, for tests: `diskless serve` on a folder, to be stopped, killed, started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.wire import WireClient

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 300.0
_POLL_S = 0.02
_LOG_TAIL_LINES = 25


class BrokerProcess:
    """One broker with its data in `folder`. Every start is a new process on the same data and the same port.

    Args:
        folder: holds `data`, the log in `broker.log`, and whatever `properties` put there.
        properties: what every start sets, besides the folder and the listener.
        python: the interpreter beside whose `diskless` command is run.

    Attributes:
        environment: what the next start has of variables, besides those of this process.
    """

    def __init__(
        self, folder: Path, properties: Mapping[str, str] | None = None, *, python: Path = Path(sys.executable)
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log = folder / "broker.log"
        self._ready_file = folder / "ready.json"
        self._command = python.with_name("diskless")
        self._properties = {
            "log.dirs": str(folder / "data"),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "admin.listener": "",
            "group.initial.rebalance.delay.ms": "0",
            **(properties or {}),
        }
        self.environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients; known after the first start."""
        return self.address_of("PLAINTEXT")

    def address_of(self, listener: str) -> str:
        """`host:port` of any of its listeners; known after the first start."""
        urls = dict(url.split("://") for url in self._properties["listeners"].split(","))
        return urls[listener]

    @property
    def admin(self) -> str:
        """Where its HTTP interface is, if it has one; known after a start."""
        address: str = json.loads(self._ready_file.read_text())["admin"]
        return address

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self, overrides: Mapping[str, str] | None = None) -> BrokerProcess:
        """Start it and wait until clients can connect. `overrides` hold for later starts too."""
        self._properties |= overrides or {}
        self.begin()
        addresses = self._wait_until_ready()
        if "advertised.listeners" not in self._properties:  # then the ports that were free are kept
            self._properties["listeners"] = ",".join(f"{name}://{address}" for name, address in addresses.items())
        return self

    def begin(self) -> None:
        """Start it, and do not wait for anything."""
        self._ready_file.unlink(missing_ok=True)
        options = [part for item in self._properties.items() for part in ("-o", "=".join(item))]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._command), "serve", *options, "--ready-file", str(self._ready_file)],
                stdout=log,
                stderr=log,
                env={name: value for name, value in os.environ.items() if not name.startswith("DISKLESS_CONFIG_")}
                | self.environment,
            )

    def stop(self) -> None:
        """SIGTERM: it has to end by itself, in time and without an error."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the broker did not stop in time\n{self.log_tail()}") from None
        self._process = None
        assert code == 0, f"the broker ended with code {code}\n{self.log_tail()}"

    def kill(self) -> None:
        """SIGKILL: it ends as if the power had failed."""
        process = self._running()
        process.kill()
        process.wait()
        self._process = None

    def restart(self) -> None:
        """Stop it and start it again on the same data and port."""
        self.stop()
        self.start()

    def end(self) -> None:
        """Make sure that no process is left, whatever the test did."""
        if self._process is not None:
            self.kill()

    def connect(self, listener: str = "PLAINTEXT", **options: Any) -> WireClient:
        """A raw connection to it."""
        host, _, port = self.address_of(listener).rpartition(":")
        return WireClient(host, int(port), **options)

    def log_text(self, start: int = 0) -> str:
        """What it logged, from a byte position of the log file on."""
        return self.log.read_bytes()[start:].decode("utf-8", errors="replace")

    def log_tail(self) -> str:
        return "\n".join(self.log_text().splitlines()[-_LOG_TAIL_LINES:])

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the broker was not started"
        return self._process

    def _wait_until_ready(self) -> dict[str, str]:
        process = self._running()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._ready_file.exists():
            try:
                code = process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    self.kill()
                    raise AssertionError(f"the broker was not ready in time\n{self.log_tail()}") from None
            else:
                self._process = None
                raise AssertionError(f"the broker ended with code {code} instead of starting\n{self.log_tail()}")
        addresses: dict[str, str] = json.loads(self._ready_file.read_text())["listeners"]
        return addresses


class BrokerFactory:
    """Makes brokers that each have a new folder below `folder`, and starts them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.brokers: list[BrokerProcess] = []

    def __call__(self, properties: Mapping[str, str] | None = None) -> BrokerProcess:
        broker = BrokerProcess(self._folder / f"broker-{len(self.brokers)}", properties)
        self.brokers.append(broker)
        return broker.start()

    def end(self) -> None:
        """Make sure that no process is left."""
        for broker in self.brokers:
            broker.end()
