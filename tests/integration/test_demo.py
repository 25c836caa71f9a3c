"""The demo as a new user runs it, with fewer records: from a wheel, beside what the wheel says that it needs."""

from __future__ import annotations

import subprocess

import pytest

from diskless_core.cli import demo_traffic
from diskless_core.cli.broker_process import BrokerProcess, BrokerProcessError
from diskless_core.clock import SystemClock
from tests.support.environments import PROJECT, environment_with, link_declared_dependencies


@pytest.fixture(scope="module")
def diskless(tmp_path_factory):
    """The command in a fresh environment."""
    python = environment_with(tmp_path_factory.mktemp("wheel"), [PROJECT])
    link_declared_dependencies(python, "diskless")
    return python.with_name("diskless")


def test_the_demo_proves_its_point_and_cleans_up(diskless, tmp_path):
    done = subprocess.run(
        [diskless, "demo", "--records", "3000"],
        capture_output=True,
        text=True,
        timeout=120,
        env={"TMPDIR": str(tmp_path)},
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "3,000 records acknowledged, and 3,000 read" in done.stdout
    assert "none lost, none twice" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_producer_waits_for_a_broker_that_takes_seconds_to_acknowledge(tmp_path):
    clock = SystemClock()
    slow = {"diskless.append.commit.interval.ms": "2000", "diskless.append.linger.ms": "2000"}
    with BrokerProcess(tmp_path, clock, overrides=slow) as broker:
        broker.start()
        demo_traffic.create_topic(broker.bootstrap)
        assert demo_traffic.produce(broker.bootstrap, 10, clock, lambda _: None) == 10


def test_a_broker_that_does_not_start_is_reported_with_its_log(tmp_path):
    broker = BrokerProcess(tmp_path, SystemClock(), overrides={"node.id": "many"})

    with pytest.raises(BrokerProcessError, match=r"(?s)instead of starting.*node\.id"):
        broker.start()


def test_a_broker_keeps_its_port_and_data_over_a_kill_and_stops_when_asked(tmp_path):
    with BrokerProcess(tmp_path, SystemClock()) as broker:
        broker.start()
        bootstrap, pid = broker.bootstrap, broker.pid
        broker.kill()
        broker.start()

        assert broker.bootstrap == bootstrap
        assert broker.pid != pid
        broker.stop()
