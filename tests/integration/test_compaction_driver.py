"""`diskless compact --here`: the engine runs in the command's process, for a broker that keeps the coordinators."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_tiering import SETTINGS, SHARD, STORAGE, create, files, segments
from tests.support.broker import BrokerFactory, BrokerProcess
from tests.support.crash import (
    PARTITIONS,
    CrashPoint,
    SteadyProducer,
    assert_nothing_is_lost,
    wait_for_acknowledgements,
)
from tests.support.waiting import wait_until

TOPIC = "driven"
TIMEOUT_S = 300
COMMAND = Path(sys.executable).with_name("diskless")
DEATH = CrashPoint(f"{STORAGE}.copy", 2, after=True, is_async=True)


@pytest.fixture
def broker(new_broker: BrokerFactory) -> BrokerProcess:
    """One whose drivers have lost their job when they are silent for two seconds."""
    broker = new_broker(SETTINGS | {"diskless.compaction.driver.session.timeout.ms": "2000"})
    create(broker, TOPIC, PARTITIONS)
    return broker


@pytest.fixture
def producers(broker: BrokerProcess) -> Iterator[list[SteadyProducer]]:
    """An idempotent producer at work."""
    made = [SteadyProducer(broker.bootstrap, TOPIC, "steady", idempotent=True).start()]
    wait_for_acknowledgements(made, 50)
    yield made
    for producer in made:
        producer._stopping.set()


def begin(broker: BrokerProcess, *, command: Path = COMMAND) -> subprocess.Popen[str]:
    """A driver with the configuration of the broker."""
    overrides = broker._properties | {"admin.listener": broker.admin}
    options = [part for item in overrides.items() for part in ("-o", "=".join(item))]
    arguments = ["compact", "--here", "--engine", "inline", "--topic", TOPIC, "--everything", "--json", *options]
    return subprocess.Popen(
        [command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


def end(driver: subprocess.Popen[str]) -> Any:
    """The report of a driver that has done its work."""
    out, err = driver.communicate(timeout=TIMEOUT_S)
    assert driver.returncode == 0, out + err
    return json.loads(out)


def assert_all_is_there(broker: BrokerProcess, producers: list[SteadyProducer]) -> None:
    for producer in producers:
        producer.stop()
    assert_nothing_is_lost(broker.bootstrap, TOPIC, producers)
    known = segments(broker)
    assert {one["state"] for one in known} == {"COPY_SEGMENT_FINISHED"}
    wait_until(
        lambda: {one["segment_id"] for one in segments(broker)} == files(broker),
        "the same segments in files and metadata",
    )
    for partition in range(PARTITIONS):
        own = [one for one in known if one["partition"] == partition]
        assert [one["start_offset"] for one in own] == [0, *(one["end_offset"] + 1 for one in own[:-1])]


def test_two_drivers_at_once_take_turns_while_producers_go_on(
    broker: BrokerProcess, producers: list[SteadyProducer]
) -> None:
    reports = [end(driver) for driver in (begin(broker), begin(broker))]
    assert [(report["state"], report["engine"]) for report in reports] == [("finished", "inline")] * 2
    assert sum(report["segments"] for report in reports) == len(segments(broker)) >= PARTITIONS
    assert reports[0]["bytes_copied"] == reports[0]["topics"][TOPIC]["size_bytes"]
    assert_all_is_there(broker, producers)


def test_a_driver_that_is_killed_loses_nothing_and_the_next_one_goes_on(
    broker: BrokerProcess, producers: list[SteadyProducer]
) -> None:
    dies = begin(broker, command=DEATH.write_command(broker.folder / "diskless-that-dies"))
    dies.communicate(timeout=TIMEOUT_S)
    assert dies.returncode == -signal.SIGKILL
    assert end(begin(broker))["segments"] >= 1
    assert_all_is_there(broker, producers)


def test_a_driver_whose_broker_dies_goes_on_when_the_broker_is_back(
    broker: BrokerProcess, producers: list[SteadyProducer]
) -> None:
    broker.stop()
    healthy = broker._command
    dying = CrashPoint(f"{SHARD}.tier", 2, after=True, is_async=True)
    broker._command = dying.write_command(broker.folder / "diskless-that-dies")
    broker.start()
    driver = begin(broker)
    broker._running().wait(TIMEOUT_S)
    broker._command = healthy
    broker.start({"admin.listener": broker.admin})
    report = end(driver)
    assert (report["state"], report["failures"]) == ("finished", [])
    assert [job["state"] for job in report["jobs"]] == ["lost", "finished"]
    assert_all_is_there(broker, producers)
