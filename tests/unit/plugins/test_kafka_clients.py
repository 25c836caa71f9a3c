"""Clients of a Kafka that is not there leave nothing open, however long they try."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from kafka.errors import KafkaError

from diskless_kafka.clients import open_admin


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_connections_that_are_refused_are_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"127.0.0.1:{server.getsockname()[1]}"
    before = open_descriptors()
    with pytest.raises(KafkaError):
        open_admin({"bootstrap_servers": [nobody], "bootstrap_timeout_ms": 300, "reconnect_backoff_ms": 1})
    assert open_descriptors() == before
