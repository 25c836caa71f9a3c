"""A broker whose cluster is moved from one coordinator log to another, with a topic whose records are counted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.batches import batch_of, read_values
from tests.support.broker import BrokerProcess
from tests.support.requests import append, create_topic, fetch

LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
}

COMMAND_TIMEOUT_S = 300.0

_DIED = 9

_DYING = f"""
import os
from diskless_core.cli.main import main
from diskless_core.coordinator.log_migration import LogMigration

end_log = LogMigration._end_log

async def end_log_and_die(*arguments):
    await end_log(*arguments)
    os._exit({_DIED})

LogMigration._end_log = end_log_and_die
main()
"""


class MovingBroker:
    """Args:
    settings: of all logs; commands get them, and whatever else the broker was started with does not concern them.
    """

    def __init__(self, broker: BrokerProcess, topic: str, settings: Mapping[str, str]) -> None:
        self.broker = broker
        self._topic = topic
        self._settings = settings
        self._values: list[bytes] = []
        with broker.connect() as wire:
            create_topic(wire, topic)

    def produce_and_read(self, count: int) -> None:
        """Produce so many records, and read all that were ever produced."""
        with self.broker.connect() as wire:
            for _ in range(count):
                self._values.append(b"%d" % len(self._values))
                append(wire, self._topic, batch_of(self._values[-1]))
            assert read_values(fetch(wire, self._topic, 0).records) == self._values

    def migrate(self, source: str, target: str, *options: str) -> subprocess.CompletedProcess[str]:
        return self.run("migrate-log", f"--from={source}", f"--to={target}", *options)

    def migrate_and_die(self, source: str, target: str) -> None:
        """The process of the migration ends as soon as the first of the old logs has."""
        command = self._command(self._settings, "migrate-log", f"--from={source}", f"--to={target}")
        died = subprocess.run(
            [sys.executable, "-c", _DYING, *command[1:]], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S
        )
        assert died.returncode == _DIED, died.stderr

    def run(self, *command: str, settings: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """A `diskless` command on the folder of the broker."""
        return subprocess.run(
            self._command(self._settings if settings is None else settings, *command),
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT_S,
        )

    def _command(self, settings: Mapping[str, str], *command: str) -> list[str]:
        options = {**settings, "log.dirs": str(self.broker.folder / "data")}
        overrides = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        return [str(Path(sys.executable).with_name("diskless")), *command, *overrides]
