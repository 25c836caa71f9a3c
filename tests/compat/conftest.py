"""Fixtures of the tests with real clients."""

from __future__ import annotations

import pytest

from tests.compat.clients import CLIENTS, Client
from tests.support.broker import BrokerProcess


@pytest.fixture(params=CLIENTS.values(), ids=CLIENTS)
def client(request: pytest.FixtureRequest, broker: BrokerProcess) -> Client:
    """Each of the Python clients in turn, on the shared broker."""
    made: Client = request.param(broker.bootstrap)
    return made
