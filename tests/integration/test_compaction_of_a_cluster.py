"""`diskless compact` of three brokers: it is told one address, finds the leaders, and follows them when they die."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.armed import arm, make_mortal
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import BrokerCluster
from tests.support.crash import (
    CLIENT,
    PARTITIONS,
    SteadyProducer,
    assert_nothing_is_lost,
    wait_for_acknowledgements,
)
from tests.support.waiting import wait_until

TOPIC = "spread"
TIMEOUT_S = 300.0
SETTINGS = {
    "admin.listener": "http://127.0.0.1:0",
    "diskless.metadata.topic.num.partitions": "3",
    "offsets.topic.num.partitions": "1",
    "diskless.append.commit.interval.ms": "20",
    "diskless.compaction.driver.session.timeout.ms": "2000",
    "diskless.coordinator.placement": "",
    "auto.leader.rebalance.enable": "true",
    "log.segment.bytes": str(1 << 20),
}
TIER = "diskless_core.diskless.shard:DisklessShard.tier"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerCluster]:
    storage = (tmp_path / "segments").as_uri()
    made = BrokerCluster(tmp_path, {**SETTINGS, "remote_storage.fsspec.url": storage})
    for broker in made.brokers.values():
        make_mortal(broker, TIER)
    try:
        yield made.start()
    finally:
        made.end()


def view(broker: BrokerProcess) -> Any:
    return httpx.get(f"{broker.admin}/cluster").raise_for_status().json()


def leaders(broker: BrokerProcess) -> dict[str, int]:
    return {shard["shard"]: shard["leader"] for shard in view(broker)["shards"]}


def test(cluster: BrokerCluster, tmp_path: Path) -> None:
    wait_until(lambda: len({leaders(cluster.follower)[f"diskless-{i}"] for i in range(3)}) == 3, "leaders are spread")
    print(leaders(cluster.follower))
    first, *others = cluster.brokers.values()
    admin = AdminClient({"bootstrap.servers": first.bootstrap, **CLIENT})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
    producers = [SteadyProducer(first.bootstrap, TOPIC, "steady", idempotent=True).start()]
    wait_for_acknowledgements(producers, 100)
    try:
        done = subprocess.run(
            [Path(sys.executable).with_name("diskless"), "compact", "--all", "--everything", "--json", "--url", first.admin],
            capture_output=True, text=True, timeout=100)
        print(done.stdout, done.stderr)
        led = leaders(first)
        dying = cluster.brokers[led["diskless-0"]]
        arm(dying)
        other = next(b for b in cluster.brokers.values() if b is not dying)
        done = subprocess.run(
            [Path(sys.executable).with_name("diskless"), "compact", "--all", "--everything", "--json", "--url", f"{dying.admin},{other.admin}"],
            capture_output=True, text=True, timeout=100)
        print(done.stdout, done.stderr)
    finally:
        for producer in producers:
            producer.stop()
    assert not dying.is_running
    assert_nothing_is_lost(other.bootstrap, TOPIC, producers)
    assert 0
