"""The coordinator log in an Apache Kafka keeps the contract."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from diskless_core.testing.coordinator_log import CoordinatorLogContract
from diskless_core.testing.coordinator_log_appender import KillableLog
from diskless_core.testing.coordinator_log_tools import HangBackend, MakeLog
from diskless_kafka.kafka_log import KafkaCoordinatorLog
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_log import kafka_log, log_properties
from tests.support.waiting import wait_until


def _stands_still(pid: int) -> bool:
    """Whether a signal to stop has reached all threads of a process."""
    states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()]
    return set(states) == {"T"}


_numbers = itertools.count()


@pytest.fixture
def properties(apache_kafka: ApacheKafka) -> dict[str, Any]:
    return log_properties(apache_kafka.bootstrap, f"contract_{next(_numbers)}_")


class TestKafkaLog(CoordinatorLogContract):
    @pytest.fixture
    def make_log(self, properties: dict[str, Any], tmp_path: Path) -> MakeLog:
        def make(node_id: int = 1) -> KafkaCoordinatorLog:
            return kafka_log(properties, tmp_path, node_id)

        return make

    @pytest.fixture
    def killable_log(self, properties: dict[str, Any], tmp_path: Path) -> KillableLog:
        return KillableLog(
            module="diskless_kafka.plugin", name="kafka", data_dir=tmp_path / "killed", settings=properties
        )

    @pytest.fixture
    def hang_backend(self, apache_kafka: ApacheKafka, properties: dict[str, Any]) -> HangBackend:
        properties["append.timeout.ms"] = 5_000

        @asynccontextmanager
        async def hang() -> AsyncIterator[None]:
            os.kill(apache_kafka.pid, signal.SIGSTOP)
            wait_until(partial(_stands_still, apache_kafka.pid), "a Kafka that stands still")
            try:
                yield
            finally:
                os.kill(apache_kafka.pid, signal.SIGCONT)

        return hang
