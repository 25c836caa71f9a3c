"""Broker processes that share nothing but a bucket: one that is killed, and started again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.admin import DescribeClusterRequest

from tests.support.batches import batch_of
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import on_one_bucket, settled
from tests.support.cluster import until
from tests.support.requests import append, create_topic, metadata_request

SESSION_MS = 1_000_000
"""Longer than any test waits."""

LEASE_MS = 600_000
"""So is the lease of the bucket log, which ends only where it is released, or its holder is found out to have ended."""


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[int, BrokerProcess]]:
    made = {
        node_id: BrokerProcess(
            tmp_path / f"broker-{node_id}",
            {
                "node.id": str(node_id),
                **on_one_bucket(tmp_path),
                "coordinator_log.bucket.lease.ms": str(LEASE_MS),
                "broker.session.timeout.ms": str(SESSION_MS),
                "admin.listener": "http://127.0.0.1:0",
            },
        )
        for node_id in (1, 2, 3)  # a test starts those that it needs
    }
    try:
        yield made
    finally:
        for broker in made.values():
            broker.end()


def fenced(broker: BrokerProcess) -> dict[int, bool]:
    """The brokers that one knows, and whether they are fenced."""
    with broker.connect() as wire:
        answer = wire.call(DescribeClusterRequest(include_fenced_brokers=True), 2)
    return {one.broker_id: one.is_fenced for one in answer.brokers}


def controller(broker: BrokerProcess) -> int:
    """The controller, as one broker knows."""
    with broker.connect() as wire:
        return wire.call(DescribeClusterRequest(include_fenced_brokers=True), 2).controller_id


def told_leaders(broker: BrokerProcess) -> set[int]:
    """Whom one broker tells any of fifty clients to produce to."""
    told = set()
    for number in range(50):
        with broker.connect(client_id=f"client-{number}") as wire:
            answer = wire.call(metadata_request("t"), 12)
        told |= {partition.leader_id for partition in answer.topics[0].partitions}
    return told


async def test_a_process_that_is_killed_is_fenced_before_its_session_ends_and_may_start_again_at_once(brokers):
    one, two = brokers[1].start(), brokers[2].start()
    await until(lambda: fenced(one) == fenced(two) == {1: False, 2: False})
    two.kill()
    await until(lambda: fenced(one) == {1: False, 2: True})
    two.start()
    await until(lambda: fenced(one) == fenced(two) == {1: False, 2: False})


async def test_clients_are_sent_to_no_broker_that_was_killed_though_nobody_has_fenced_it(brokers):
    for broker in brokers.values():
        broker.start()
    settled(brokers)
    asleep = brokers[controller(brokers[1])]
    victim, other = (broker for broker in brokers.values() if broker is not asleep)
    victim_id, asleep_id = (next(one for one in brokers if brokers[one] is broker) for broker in (victim, asleep))
    with other.connect() as wire:
        create_topic(wire, "t", 8)
    assert told_leaders(other) == {1, 2, 3}
    os.kill(asleep.pid, signal.SIGSTOP)
    try:
        victim.kill()
        await until(lambda: victim_id not in told_leaders(other))
        assert fenced(other)[victim_id] is False
        assert asleep_id in told_leaders(other), "it has not ended"
    finally:
        os.kill(asleep.pid, signal.SIGCONT)


async def test_a_controller_that_stops_leaves_when_another_broker_is_the_controller_and_may_start_again(brokers):
    one, two = brokers[1].start(), brokers[2].start()
    await until(lambda: controller(one) == controller(two) in (1, 2))
    leaver, heir = (one, two) if controller(one) == 1 else (two, one)
    heir_id = 2 if heir is two else 1
    leaver.stop()
    await until(lambda: controller(heir) == heir_id)
    assert fenced(heir) == {heir_id: False, 3 - heir_id: True}
    assert "stops without" not in leaver.log_text()
    assert "stops before" not in leaver.log_text()
    leaver.start()
    assert fenced(heir) == {1: False, 2: False}


async def test_a_controller_that_is_killed_is_followed_before_its_lease_ends_and_may_start_again(brokers):
    one, two = brokers[1].start(), brokers[2].start()
    await until(lambda: controller(one) == controller(two) in (1, 2))
    victim, heir = (one, two) if controller(one) == 1 else (two, one)
    heir_id = 2 if heir is two else 1
    with victim.connect() as wire:
        create_topic(wire, "kept", 2)
        append(wire, "kept", batch_of(b"before"))
    victim.kill()
    await until(lambda: controller(heir) == heir_id and fenced(heir) == {heir_id: False, 3 - heir_id: True})
    with heir.connect() as wire:
        for partition in range(2):
            append(wire, "kept", batch_of(b"after"), partition=partition)
        create_topic(wire, "new")
    victim.start()
    await until(lambda: fenced(heir) == fenced(victim) == {1: False, 2: False})
    assert controller(heir) == heir_id


async def test_a_second_process_with_the_node_id_of_the_controller_ends_and_the_controller_goes_on(brokers, tmp_path):
    one = brokers[1].start()
    await until(lambda: controller(one) == 1)
    listeners = "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0"
    second = BrokerProcess(tmp_path / "second", one._properties | {"log.dirs": str(tmp_path / "second")})
    before = len(one.log_text())
    try:
        with pytest.raises(AssertionError, match=f"the node id 1 is that of the broker at {one.bootstrap}, which runs"):
            second.start({"listeners": listeners})
    finally:
        second.end()
    assert "no longer leads" not in one.log_text(before)
    assert controller(one) == 1
    assert fenced(one) == {1: False}
