"""Fixtures of the tests with real clients."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.clients import CLIENTS, Client
from tests.compat.kafka_tools import Both, KafkaTools, ToolRunner
from tests.support.apache_kafka import ApacheKafka
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


@pytest.fixture(scope="session")
def tool_runner(kafka_jars: Path) -> Iterator[ToolRunner]:
    runner = ToolRunner(kafka_jars)
    yield runner
    runner.end()


@pytest.fixture
def tools(broker: BrokerProcess, kafka_jars: Path, tool_runner: ToolRunner) -> KafkaTools:
    """Kafka's command line tools on the shared broker."""
    return KafkaTools(kafka_jars, tool_runner, broker.bootstrap)


@pytest.fixture
def both(tools: KafkaTools, apache_kafka: ApacheKafka, tool_runner: ToolRunner) -> Both:
    """The tools on the shared broker and on a real Kafka, to be compared."""
    return Both(tools, KafkaTools(apache_kafka.jars, tool_runner, apache_kafka.bootstrap))
