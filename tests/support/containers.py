"""What a container would run, as processes on loopback: the image's settings, and addresses for a network."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.support.apache_kafka import free_ports
from tests.support.environments import PROJECT
from tests.support.waiting import PATIENCE_S, wait_until

CONTAINERFILE = PROJECT / "deploy" / "Containerfile"
DATA = "/var/lib/diskless"
PATIENT = {
    "DISKLESS_CONFIG_BROKER_SESSION_TIMEOUT_MS": "60000",
    "DISKLESS_CONFIG_DISKLESS_SHUTDOWN_TIMEOUT_MS": "60000",
}
"""Variables that make brokers wait for each other on a machine that has much else to do."""
_ADDRESS = re.compile(r"(?<=://)(?P<host>[\w.-]+):(?P<port>\d+)")


class Image:
    """What the last stage of a container file says of the processes in its containers."""

    def __init__(self, file: Path = CONTAINERFILE) -> None:
        text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.M).replace("\\\n", " ")
        stage = text[text.rindex("\nFROM ") :]
        self._instructions = [line.split(maxsplit=1) for line in stage.splitlines() if line.strip()]

    def one(self, instruction: str) -> str:
        """The arguments of an instruction that is there once."""
        [found] = [arguments for name, arguments in self._instructions if name == instruction]
        return found

    @property
    def entrypoint(self) -> list[str]:
        """What is run, before the arguments."""
        found: list[str] = json.loads(self.one("ENTRYPOINT"))
        return found

    @property
    def command(self) -> list[str]:
        """The arguments, where none are given."""
        found: list[str] = json.loads(self.one("CMD"))
        return found

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it sets."""
        return dict(item.split("=", 1) for item in shlex.split(self.one("ENV")))

    @property
    def user(self) -> tuple[int, int]:
        """Who its processes are: user id and group id."""
        user, group = self.one("USER").split(":")
        return int(user), int(group)

    @property
    def health_check(self) -> list[str]:
        """The command that is asked whether a container is healthy."""
        found: list[str] = json.loads(self.one("HEALTHCHECK").partition("CMD ")[2])
        return found


class Network:
    """Free ports of loopback in the place of the ports of hosts that exist only where containers do.

    Args:
        published: which port of which container a port of the host's localhost is.
    """

    def __init__(self, published: Mapping[int, tuple[str, int]] | None = None) -> None:
        self._published = published or {}
        self._ports: dict[tuple[str, int], int] = {}

    def bind(self, host: str, port: int, real: int) -> None:
        """Let a port of a host be one that somebody listens on already."""
        self._ports[host, port] = real

    def address(self, host: str, port: int) -> str:
        """Where `host:port` is on loopback."""
        if host == "localhost":
            host, port = self._published[port]
        if (host, port) not in self._ports:
            [self._ports[host, port]] = free_ports(1)
        return f"127.0.0.1:{self._ports[host, port]}"

    def translate(self, text: str, own: str) -> str:
        """A text with addresses, as the container `own` has to be told. 0.0.0.0 is itself, and so is a port of
        localhost that is not published.
        """

        def on_loopback(match: re.Match[str]) -> str:
            host, port = match["host"], int(match["port"])
            is_own = host == "0.0.0.0" or (host == "localhost" and port not in self._published)
            return self.address(own if is_own else host, port)

        return _ADDRESS.sub(on_loopback, text)


class Container:
    """One broker's container as a process, with its data in `folder`.

    Args:
        host: its name in the network.
        arguments: what the image's entry point is given.
        environment: all variables that it has, besides PATH and those by which tests find the modules.
        python: the interpreter beside whose `diskless` command is run.
    """

    def __init__(
        self,
        folder: Path,
        host: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        network: Network,
        *,
        http_port: int = 9644,
        python: Path = Path(sys.executable),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.host = host
        self.log = folder / "broker.log"
        self.http = f"http://{network.address(host, http_port)}"
        self.environment = {
            name: network.translate(value.replace(DATA, str(folder / "data")), host)
            for name, value in (PATIENT | dict(environment)).items()
        }
        self._command = [str(python.with_name("diskless")), *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait for nothing."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=_outside() | self.environment, cwd=self.log.parent
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def probe(self, path: str) -> int:
        """The status that it answers, 0 for no answer."""
        assert self.is_running, self.log.read_text()
        try:
            return httpx.get(self.http + path, timeout=PATIENCE_S).status_code
        except httpx.TransportError:
            return 0

    def wait_for(self, path: str, status: int) -> None:
        """Wait until it answers this."""
        wait_until(lambda: self.probe(path) == status, f"{path} answers {status}")

    def json(self, path: str) -> Any:
        """What it answers."""
        return httpx.get(self.http + path, timeout=PATIENCE_S).raise_for_status().json()

    def wait_for_check(self, *, healthy: bool, told: str) -> None:
        """Wait until the image's health check says this, and prints something with `told`."""
        wait_until(lambda: (found := self._check())[0] == healthy and told in found[1], f"the check says {told!r}")

    def _check(self) -> tuple[bool, str]:
        script = Path(Image().health_check[-1]).name
        done = subprocess.run(
            [sys.executable, "-I", PROJECT / "deploy" / script],
            env=_outside() | {"DISKLESS_CONFIG_ADMIN_LISTENER": self.http},
            capture_output=True,
            text=True,
        )
        return done.returncode == 0, done.stdout + done.stderr

    def stop(self) -> int:
        """SIGTERM, as the image and Kubernetes stop it; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE_S)

    def end(self) -> None:
        """Make sure that no process is left."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _outside() -> dict[str, str]:
    kept = ("PATH", "PYTHONPATH", "HOME")
    return {name: os.environ[name] for name in kept if name in os.environ}
