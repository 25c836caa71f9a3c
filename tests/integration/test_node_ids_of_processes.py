"""Broker processes with `node.id=auto`: each has an id that no other one ever had, and keeps it as long as it may."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kafka.protocol.admin import DescribeClusterRequest

from diskless_core.protocol.messages import UnregisterBrokerRequest
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import on_one_bucket
from tests.support.cluster import in_thread, until

SESSION_MS = 3_000


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    made = [
        BrokerProcess(
            tmp_path / f"broker-{number}",
            {
                "node.id": "auto",
                **on_one_bucket(tmp_path),
                "broker.heartbeat.interval.ms": "500",
                "broker.session.timeout.ms": str(SESSION_MS),
            },
        )
        for number in range(3)
    ]
    try:
        yield made
    finally:
        for broker in made:
            broker.end()


def start_at_once(brokers: list[BrokerProcess]) -> None:
    with ThreadPoolExecutor() as threads:
        list(threads.map(BrokerProcess.start, brokers))


def node_id(broker: BrokerProcess) -> int:
    """As its folder has it."""
    [found] = [
        line.removeprefix("node.id=")
        for line in (broker.folder / "data" / "meta.properties").read_text().splitlines()
        if line.startswith("node.id=")
    ]
    return int(found)


def registered(broker: BrokerProcess) -> dict[int, bool]:
    """The brokers that one knows, and whether they are fenced."""
    with broker.connect() as wire:
        answer = wire.call(DescribeClusterRequest(include_fenced_brokers=True), 2)
    return {one.broker_id: one.is_fenced for one in answer.brokers}


async def test_brokers_that_begin_a_cluster_at_once_have_different_ids_and_keep_them(brokers):
    await in_thread(lambda: start_at_once(brokers))
    ids = [node_id(broker) for broker in brokers]
    assert sorted(ids) == [1, 2, 3]
    await until(lambda: all(registered(broker) == dict.fromkeys([1, 2, 3], False) for broker in brokers))
    for broker in brokers:
        broker.kill()
    await in_thread(lambda: start_at_once(brokers))
    assert [node_id(broker) for broker in brokers] == ids
    await until(lambda: registered(brokers[0]) == dict.fromkeys([1, 2, 3], False))

    folder = brokers[0].folder.parent / "configured"
    others = {"node.id": "2", "log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0"}
    configured = BrokerProcess(folder, brokers[0]._properties | others)
    try:
        with pytest.raises(AssertionError, match="has given the node id 2 to a broker"):
            await in_thread(configured.start)
    finally:
        configured.end()


async def test_a_broker_that_was_unregistered_takes_another_id_when_it_is_back(brokers):
    stays, leaves, stands_still = brokers
    for broker in brokers:
        await in_thread(broker.start)
    assert [node_id(broker) for broker in brokers] == [1, 2, 3]
    leaves.stop()
    os.kill(stands_still.pid, signal.SIGSTOP)
    try:
        await until(lambda: registered(stays) == {1: False, 2: True, 3: True})
        for gone in (2, 3):
            with stays.connect() as wire:
                assert not wire.call(UnregisterBrokerRequest(broker_id=gone), 0).error_code
        assert registered(stays) == {1: False}
    finally:
        os.kill(stands_still.pid, signal.SIGCONT)

    await until(lambda: registered(stays) == {1: False, 4: False})
    assert node_id(stands_still) == 4
    assert stands_still.is_running
    await in_thread(leaves.start)
    assert node_id(leaves) == 5
    assert registered(stays) == {1: False, 4: False, 5: False}


@pytest.fixture
def single(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One broker with a log of its own."""
    broker = BrokerProcess(tmp_path, {"node.id": "auto"})
    try:
        yield broker
    finally:
        broker.end()


async def test_a_broker_with_a_log_of_its_own_gives_an_id_to_itself(single):
    await in_thread(single.start)
    assert (registered(single), node_id(single)) == ({1: False}, 1)
    single.stop()
    forget_node_id(single)  # as where it died before it could write the id that it was given
    await in_thread(single.start)
    assert (registered(single), node_id(single)) == ({1: False}, 1)


async def test_a_broker_with_the_id_of_another_cluster_takes_one_of_this(single):
    single.folder.joinpath("data").mkdir()
    file = single.folder / "data" / "meta.properties"
    file.write_text("version=1\nnode.id=9\nallocation.id=00000000-0000-0000-0000-000000000007\n")
    await in_thread(single.start)
    assert (registered(single), node_id(single)) == ({1: False}, 1)


def forget_node_id(broker: BrokerProcess) -> None:
    file = broker.folder / "data" / "meta.properties"
    file.write_text("".join(line for line in file.read_text().splitlines(True) if not line.startswith("node.id=")))
