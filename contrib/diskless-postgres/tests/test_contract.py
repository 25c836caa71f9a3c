"""The contract of `coordinator_log` on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from postgres_server import PASSWORD, OpenLog, Server
from tcp_relay import Relay

from diskless_core.testing.coordinator_log import CoordinatorLogContract
from diskless_core.testing.coordinator_log_appender import KillableLog
from diskless_core.testing.coordinator_log_tools import HangBackend, MakeLog

WRONG_PASSWORD = f"{PASSWORD}, mistyped"


class TestPostgresLog(CoordinatorLogContract):
    secrets = (PASSWORD, WRONG_PASSWORD)

    @pytest.fixture
    def relay(self, server: Server) -> Iterator[Relay]:
        with Relay(server.port) as relay:
            relay.pass_on()
            yield relay

    @pytest.fixture
    def make_log(self, request: pytest.FixtureRequest, server: Server, schema: str, open_log: OpenLog) -> MakeLog:
        """Only a log that is to hang is reached through a relay, whose own connections end a little later."""
        settings = server.settings(schema)
        if "hang_backend" in request.fixturenames:
            relay: Relay = request.getfixturevalue("relay")
            settings |= {"port": str(relay.port), "append.timeout.ms": 2000}
        return lambda node_id=1: open_log(settings, node_id)

    @pytest.fixture
    def make_unopenable_log(self, server: Server, schema: str, open_log: OpenLog) -> MakeLog:
        settings = server.settings(schema) | {"password": WRONG_PASSWORD}
        return lambda node_id=1: open_log(settings, node_id)

    @pytest.fixture
    def killable_log(self, server: Server, schema: str, tmp_path: Path) -> KillableLog:
        return KillableLog(
            module="diskless_postgres.plugin",
            name="postgres",
            data_dir=tmp_path / "killable",
            settings=server.settings(schema),
        )

    @pytest.fixture
    def hang_backend(self, relay: Relay) -> HangBackend:
        @asynccontextmanager
        async def hang() -> AsyncIterator[None]:
            relay.hang()
            yield
            relay.pass_on()

        return hang
