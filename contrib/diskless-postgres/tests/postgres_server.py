"""A PostgreSQL of a test's own, as a context manager. It refuses root, so root runs it as the user `postgres`."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg

from diskless_postgres.postgres_log import PostgresLog

OpenLog = Callable[..., PostgresLog]
"""Makes the log of a node, not started, with these properties."""

PASSWORD = "a secret of the tests"
_USER = "postgres"
_LIMIT_S = 120


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    assert on_path is not None, "these tests need a PostgreSQL: apt-get install postgresql"
    return Path(on_path).parent


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


class Server:
    """One server on 127.0.0.1."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self.data = self.folder / "data"
        self.port = free_port()
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "max_connections": "200",
            "shared_buffers": "32MB",
            "fsync": "on",
            "max_wal_size": "128MB",
            **(settings or {}),
        }
        self._user = _USER if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            shutil.chown(self.folder, self._user)

    def __enter__(self) -> Server:
        self.create()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    def create(self) -> None:
        """Make the folder of data."""
        password = self.folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self._run("initdb", "-D", str(self.data), "-U", "diskless", "-A", "scram-sha-256", "-N", f"--pwfile={password}")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(_programs() / "postgres"), "-D", str(self.data), *options],
                stdout=log,
                stderr=log,
                cwd="/",
                user=self._user,
                start_new_session=True,
            )
        ready = [str(_programs() / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port), "-t", "1"]
        for _ in range(_LIMIT_S * 20):
            assert self._process.poll() is None, (self.folder / "log").read_text()
            if subprocess.run(ready, capture_output=True, check=False).returncode == 0:
                return
            signal.sigtimedwait([], 0.05)
        raise AssertionError((self.folder / "log").read_text())

    def stop(self) -> None:
        """Stop it quickly and orderly."""
        self._signal(signal.SIGINT)
        self._ended()

    def kill(self) -> None:
        """Crash: what is in memory is gone."""
        self._signal(signal.SIGQUIT)
        self._ended()

    def kill_9(self) -> None:
        """SIGKILL to the postmaster and all its children."""
        assert self._process is not None
        for pid in [self._process.pid, *self._children()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._ended()

    def freeze(self) -> list[int]:
        """SIGSTOP to all its processes, which are returned."""
        assert self._process is not None
        pids = [self._process.pid, *self._children()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return pids

    def remove(self) -> None:
        """Stop it if it runs, and remove all that it has."""
        if self._process is not None and self._process.poll() is None:
            self.kill_9()
        shutil.rmtree(self.folder, ignore_errors=True)

    def copy_data(self, name: str) -> Path:
        """A copy of the data of a server that is stopped."""
        copy = self.folder / name
        subprocess.run(["cp", "-a", str(self.data), str(copy)], check=True)
        return copy

    def put_back(self, copy: Path) -> None:
        """Have an older copy in the place of the data."""
        shutil.rmtree(self.data)
        copy.rename(self.data)

    def promote(self) -> None:
        """Begin a new timeline: as a standby that nobody fed, promoted."""
        (self.data / "standby.signal").touch()
        if self._user is not None:
            shutil.chown(self.data / "standby.signal", self._user)
        self.start()
        self._run("pg_ctl", "promote", "-w", "-D", str(self.data))

    def execute(self, statement: Any, *parameters: Any, dbname: str = "postgres") -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        with psycopg.connect(**self.parameters(dbname), autocommit=True) as connection:
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def parameters(self, dbname: str = "postgres") -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.port, "user": "diskless", "password": PASSWORD, "dbname": dbname}

    def settings(self, schema: str = "diskless", **others: object) -> dict[str, object]:
        """Properties after `coordinator_log.postgres.`."""
        return {
            "host": "127.0.0.1",
            "port": str(self.port),
            "dbname": "postgres",
            "user": "diskless",
            "password": PASSWORD,
            "schema.name": schema,
            "poll.max.ms": 200,
            "session.timeout.ms": 2000,
            **others,
        }

    def _children(self) -> list[int]:
        assert self._process is not None
        task = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [int(pid) for pid in task.read_text().split()]

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _ended(self) -> None:
        assert self._process is not None
        self._process.wait(_LIMIT_S)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(_programs() / program), *arguments],
            capture_output=True,
            text=True,
            cwd="/",
            user=self._user,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
