"""Fixtures of the tests with real clients."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.clients import CLIENTS, Client
from tests.support.broker import BrokerProcess

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """kafka-python leaves the sockets of connections that it gave up to the garbage collector."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(autouse=True)
def _no_socket_is_left_to_later_tests() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(params=CLIENTS.values(), ids=CLIENTS)
def client(request: pytest.FixtureRequest, broker: BrokerProcess) -> Client:
    """Each of the Python clients in turn, on the shared broker."""
    made: Client = request.param(broker.bootstrap)
    return made
