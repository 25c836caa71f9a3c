"""One PostgreSQL for all tests of a session, and a schema for each."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from postgres_server import OpenLog, Server

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_postgres.config import PostgresLogSettings
from diskless_postgres.postgres_log import PostgresLog

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """For tests that neither stop nor break it."""
    with Server() as running:
        yield running


@pytest.fixture
def own_server() -> Iterator[Server]:
    """For a test that does."""
    with Server() as running:
        yield running


@pytest.fixture
def schema() -> str:
    """Of this test alone."""
    return f"log_{next(_NUMBERS)}"


@pytest.fixture
def open_log(tmp_path: Path) -> OpenLog:
    """Makes logs of nodes with such properties."""

    def make(settings: dict[str, object], node_id: int = 1) -> PostgresLog:
        context = PluginContext(
            node_id=node_id, data_dir=tmp_path / f"{node_id}", log_dir=tmp_path, clock=SystemClock()
        )
        return PostgresLog(context, PostgresLogSettings.model_validate(settings))

    return make
