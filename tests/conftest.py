"""Fixtures that tests of more than one folder use: brokers in processes of their own, connections, topic names."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.apache_kafka import ApacheKafka
from tests.support.broker import BrokerFactory, BrokerProcess
from tests.support.broker_cluster import BrokerCluster
from tests.support.maven import jars_or_skip
from tests.support.wire import WireClient

# how long an example takes says more about the machine than about what is tested
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

ALONE, IN_A_CLUSTER = "alone", "in-a-cluster"
_DEFECTS = ("Traceback (most recent call last)", "defect of the broker")
_topic_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that most tests of a worker share; it has to stop cleanly in the end.

    It checks every record, so that all batches that clients produce here have to pass that.
    """
    properties = {"diskless.produce.records.validation": "all"}
    broker = BrokerProcess(tmp_path_factory.mktemp("shared-broker"), properties)
    try:
        yield broker.start()
        broker.stop()
    finally:
        broker.end()


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    """The cluster that tests of one worker share; its brokers have to stop cleanly in the end."""
    cluster = BrokerCluster(tmp_path_factory.mktemp("shared-cluster"))
    try:
        yield cluster.start()
        cluster.stop()
    finally:
        cluster.end()


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """The shared broker, which must live through the test and log no defect of its own meanwhile.

    For tests that are marked so, it is in turn the one of the shared cluster that leads nothing.
    """
    if getattr(request, "param", ALONE) == IN_A_CLUSTER:
        cluster: BrokerCluster = request.getfixturevalue("shared_cluster")
        broker, brokers = cluster.follower, list(cluster.brokers.values())
    else:
        broker = request.getfixturevalue("shared_broker")
        brokers = [broker]
        if not broker.is_running:
            broker.start()
    before = [one.log.stat().st_size for one in brokers]
    yield broker
    for one, size in zip(brokers, before, strict=True):
        assert one.is_running, one.log_tail()
        logged = one.log_text(size)
        assert not any(defect in logged for defect in _DEFECTS), logged


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is marked `in_a_cluster_too` once more, with a broker of a cluster that leads nothing."""
    test = metafunc.definition
    runs_twice = test.get_closest_marker("in_a_cluster_too") and not test.get_closest_marker("one_broker")
    if runs_twice and "broker" in metafunc.fixturenames:
        cluster = pytest.param(IN_A_CLUSTER, marks=pytest.mark.xdist_group("cluster"))
        metafunc.parametrize("broker", [ALONE, cluster], indirect=True)


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
