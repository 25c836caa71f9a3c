"""Fixtures that tests of more than one folder use: brokers in processes of their own, connections, topic names."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.apache_kafka import ApacheKafka
from tests.support.broker import BrokerFactory, BrokerProcess
from tests.support.maven import jars_or_skip
from tests.support.wire import WireClient

_DEFECTS = ("Traceback (most recent call last)", "defect of the broker")
_topic_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that most tests of a worker share; it has to stop cleanly in the end."""
    broker = BrokerProcess(tmp_path_factory.mktemp("shared-broker"))
    try:
        yield broker.start()
        broker.stop()
    finally:
        broker.end()


@pytest.fixture
def broker(shared_broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """The shared broker, which must live through the test and log no defect of its own meanwhile."""
    if not shared_broker.is_running:
        shared_broker.start()
    before = shared_broker.log.stat().st_size
    yield shared_broker
    assert shared_broker.is_running, shared_broker.log_tail()
    logged = shared_broker.log_text(before)
    assert not any(defect in logged for defect in _DEFECTS), logged


@pytest.fixture
def new_broker(tmp_path: Path) -> Iterator[BrokerFactory]:
    """Make brokers of the test's own, started with the properties that it is called with."""
    factory = BrokerFactory(tmp_path)
    yield factory
    factory.end()


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[WireClient]:
    """A raw connection to the shared broker."""
    with broker.connect() as client:
        yield client


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder with the jars of Apache Kafka."""
    return jars_or_skip("kafka")


@pytest.fixture(scope="session")
def apache_kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """A real Apache Kafka of one broker that the tests of a worker share, each with topics and groups of its own."""
    kafka = ApacheKafka(kafka_jars, tmp_path_factory.mktemp("apache-kafka"))
    try:
        yield kafka.start()
    finally:
        kafka.end()


@pytest.fixture
def topic() -> str:
    """A topic name that nobody else in this process uses."""
    return f"topic-{next(_topic_numbers)}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Only one worker starts Apache Kafka: with `--dist loadgroup`, it runs all tests that compare with it.

    The tests of such groups come first, so that nothing waits for them at the end; besides that the order stays random.
    """
    for item in items:
        if "apache_kafka" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("apache-kafka"))
    yield
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Show what the brokers of a failed test logged."""
    report = yield
    if report.failed:
        brokers: list[BrokerProcess] = []
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, BrokerProcess):
                brokers.append(value)
            elif isinstance(value, BrokerFactory):
                brokers += value.brokers
        report.sections += [
            (f"log of the broker {broker.folder.name}", broker.log_tail()) for broker in dict.fromkeys(brokers)
        ]
    return report
