"""A broker in a process of its own, for commands that want to start one, kill it and start it again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from diskless_core.clock import Clock
from diskless_core.plugin.config import ENVIRONMENT_PREFIX

PATIENCE_S = 30.0
_POLL_S = 0.02
_WAL_OBJECT_PREFIX = "wal"


_SERVE = "from diskless_core.cli.broker_process import serve_with_parent; serve_with_parent()"


def serve_with_parent() -> None:
    """Be the command `diskless`, until standard input ends: the process that holds its other end is gone then."""
    from diskless_core.cli.main import main

    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()
    main()


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


class BrokerProcessError(Exception):
    """The broker did not start or did not stop as asked. The message ends with the last lines of its log."""


class BrokerProcess:
    """`diskless serve` on `folder`. Each `start` is a new process on the same data; ports are kept from the first on.

    Ctrl-C at the terminal does not reach it: the caller ends it. If the caller's process is killed before it has, the
    broker ends too: its standard input is a pipe from there.

    Args:
        folder: a folder of its own, which is made if it is not there: data in `data`, all objects in `objects`, its log
            in `broker.log`.
        clock: measures how long starting takes.
        overrides: further properties.
        environ: further environment variables. Of the inherited ones, those that set properties do not count.
        patience_s: how long it may take to start, and to stop.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        *,
        overrides: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.objects = folder / "objects"
        self.wal_objects = self.objects / _WAL_OBJECT_PREFIX
        self.log = folder / "broker.log"
        self._ready_file = folder / "ready.json"
        self._clock = clock
        self._patience_s = patience_s
        self._began_s = 0.0
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
        self._environ = {**inherited, **(environ or {})}
        self._properties = {
            "log.dirs": str(folder / "data"),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "admin.listener": "http://127.0.0.1:0",
            "wal_object_store.fsspec.url": self.objects.as_uri(),
            "diskless.wal.object.prefix": _WAL_OBJECT_PREFIX,
            **(overrides or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Make sure that no process is left."""
        if self._process is not None:
            self.kill()

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients."""
        urls = dict(url.split("://") for url in self._properties["listeners"].split(","))
        return urls["PLAINTEXT"]

    @property
    def admin(self) -> str:
        """The HTTP interface, `http://host:port`."""
        return self._properties["admin.listener"]

    @property
    def is_running(self) -> bool:
        """Whether it was started, and has not ended since."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> float:
        """Start the broker, and return how many seconds passed until clients could connect.

        Raises:
            BrokerProcessError: it ended, or was not ready in time.
        """
        self.begin()
        return self.until_ready()

    def begin(self) -> None:
        """Start the broker, and wait for nothing."""
        self._ready_file.unlink(missing_ok=True)
        self._began_s = self._clock.monotonic()
        arguments = [part for item in self._properties.items() for part in ("--override", "=".join(item))]
        command = [sys.executable, "-c", _SERVE, "serve", *arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                [*command, "--ready-file", str(self._ready_file)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self._environ,
                start_new_session=True,
            )

    def until_ready(self) -> float:
        """Wait until clients can connect, and return how many seconds that took since `begin`.

        Raises:
            BrokerProcessError: it ended, or was not ready in time.
        """
        ready = self._wait_until_ready(self._began_s + self._patience_s)
        elapsed = self._clock.monotonic() - self._began_s
        addresses = ready["listeners"].items()
        self._properties["listeners"] = ",".join(f"{name}://{address}" for name, address in addresses)
        self._properties["admin.listener"] = ready["admin"]
        return elapsed

    def pause(self) -> None:
        """Have it stand still, as a virtual machine that is not given any time; see `wake`."""
        self._running().send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Have it go on after `pause`."""
        self._running().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a power cut would: SIGKILL, no farewell."""
        process, self._process = self._running(), None
        process.kill()
        process.wait()
        _close_input(process)

    def stop(self) -> None:
        """Ask it to end, and wait until it has.

        Raises:
            BrokerProcessError: it ended with an error, or not in time.
        """
        process, self._process = self._running(), None
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(self._patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerProcessError(self._with_log(f"the broker did not stop in {self._patience_s:.0f} s")) from None
        finally:
            _close_input(process)
        if code != 0:
            raise BrokerProcessError(self._with_log(f"the broker ended with code {code}"))

    def obituary(self) -> str:
        """That it has ended and nobody asked it to, with the last lines of its log."""
        code = self._running().wait()
        return self._with_log(f"the broker of {self.log.parent.name} ended by itself with code {code}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process

    def _wait_until_ready(self, deadline: float) -> dict[str, Any]:
        while not self._ready_file.exists():
            try:
                code = self._running().wait(_POLL_S)
            except subprocess.TimeoutExpired:
                if self._clock.monotonic() > deadline:
                    self.kill()
                    raise BrokerProcessError(
                        self._with_log(f"the broker was not ready after {self._patience_s:.0f} s")
                    ) from None
            else:
                _close_input(self._running())
                self._process = None
                raise BrokerProcessError(self._with_log(f"the broker ended with code {code} instead of starting"))
        ready: dict[str, Any] = json.loads(self._ready_file.read_text(encoding="utf-8"))
        return ready

    def _with_log(self, message: str) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([message, *lines[-15:]])


def _close_input(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
