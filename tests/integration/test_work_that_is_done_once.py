"""What brokers do by themselves for the coordinators that they lead goes on at the next leader when one is killed."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from diskless_core.wal.format import object_key
from tests.support.batches import batch_of
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import BrokerCluster
from tests.support.requests import create_topic, list_offset, produce_request
from tests.support.waiting import PATIENCE_S, wait_until

HOUR_MS = 3_600_000
PRODUCE_VERSION = 9
EARLIEST = -2
FIRST, SECOND = 0, 1
"""Diskless coordinators, and with them the partitions of topics of two: these are spread evenly."""

ANYWHERE = {"compaction_jobs"}
OF_FIRST = {"compaction_jobs", "coordinator_snapshots_taken diskless_metadata-0", "retention diskless_metadata-0"}
OF_SECOND = {"compaction_jobs", "coordinator_snapshots_taken diskless_metadata-1", "retention diskless_metadata-1"}
OF_CLUSTER = {"coordinator_snapshots_taken cluster_metadata-0", "orphans_deleted"}
WORK = OF_FIRST | OF_SECOND | OF_CLUSTER | {"wal_objects_deleted"}

METRIC = re.compile(r"^diskless_(\w+)_total(\{[^}]*\})? (\S+)$", re.MULTILINE)
SHARD = re.compile(r'shard="__([^"]*)"')
RETENTION = re.compile(r"retention removed records .*shard=__(\S+)")

SETTINGS = {
    "admin.listener": "http://127.0.0.1:0",
    # broker 2 leads the first, and the cluster; broker 1 comes later, and leads nothing until broker 2 is killed
    "diskless.coordinator.placement": "0:1|2,1:3,cluster-0:1|2,groups-0:3",
    "diskless.metadata.topic.num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "diskless.coordinator.orphan.scan.grace.period.ms": "60000",
    "diskless.coordinator.orphan.scan.interval.ms": "1000",
    "diskless.file.delete.delay.ms": "0",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "500",
    "metadata.log.max.snapshot.interval.ms": "500",
    "remote.log.manager.task.interval.ms": "500",
    "remote.log.storage.system.enable": "true",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerCluster]:
    made = BrokerCluster(tmp_path, {**SETTINGS, "remote_storage.fsspec.url": (tmp_path / "segments").as_uri()})
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(BrokerProcess.start, (made.brokers[2], made.brokers[3])))
        made.brokers[1].start()
        yield made
    finally:
        made.end()


def get(broker: BrokerProcess, path: str) -> httpx.Response:
    return httpx.get(f"{broker.admin}{path}", timeout=PATIENCE_S).raise_for_status()


def leaders(broker: BrokerProcess) -> dict[str, int]:
    return {shard["shard"]: shard["leader"] for shard in get(broker, "/cluster").json()["shards"]}


def done_by(broker: BrokerProcess) -> set[str]:
    """What of `WORK` a broker has done since its start."""
    done = set()
    for name, labels, count in METRIC.findall(get(broker, "/metrics").text):
        shard = SHARD.search(labels)
        done |= {f"{name} {shard[1]}" if shard else name} if float(count) else set()
    done |= {f"retention {shard}" for shard in RETENTION.findall(broker.log_text())}
    return done & WORK


class Round:
    """Something of everything that brokers have to do, and what is seen of it."""

    def __init__(self, cluster: BrokerCluster, folder: Path, name: str) -> None:
        self.asked = cluster.brokers[3]
        self._objects = folder / "bucket"
        self._old, self._large = f"old-{name}", f"large-{name}"
        self._orphan = self._objects / object_key("wal", int(time.time() * 1000) - HOUR_MS, uuid.uuid4())
        self._known = self._all_objects()

    def begin(self) -> None:
        """Write something that has to be removed, something to compact, and an object that nobody knows."""
        with self.asked.connect() as wire:
            create_topic(wire, self._old, 2, **{"retention.ms": "1"})
            create_topic(wire, self._large, 2, **{"segment.bytes": str(1 << 20), "remote.storage.enable": "true"})
            for topic, value in ((self._old, b"x"), (self._large, b"x" * 900_000), (self._large, b"x" * 900_000)):
                batches = {partition: batch_of(value) for partition in (FIRST, SECOND)}
                [answer] = wire.call(produce_request(topic, batches), PRODUCE_VERSION).responses
                assert {one.error_code for one in answer.partition_responses} == {0}
        self._orphan.parent.mkdir(exist_ok=True, parents=True)
        self._orphan.write_bytes(b"nobody knows it")

    def wait(self) -> None:
        """Wait until all of it is done.

        Each WAL object has batches of both coordinators, of which one hands it over to the other before it is deleted.
        """
        for partition in (FIRST, SECOND):
            wait_until(partial(self._is_retained_from, 1, partition), f"retention of {self._old}-{partition}")
        wait_until(lambda: len(self.segments()) == 2, "a segment of each partition")
        wait_until(lambda: not self._orphan.exists(), "the end of the orphan")
        wait_until(lambda: len(self._all_objects() - self._known) == 1, "the end of all objects but the latest")

    def _is_retained_from(self, start: int, partition: int) -> bool:
        with self.asked.connect() as wire:
            found: bool = list_offset(wire, self._old, EARLIEST, partition=partition).offset == start
        return found

    def segments(self) -> Mapping[int, int]:
        """The brokers that made the segments, by partition; none while there is one that is not complete."""
        found: list[Any] = get(self.asked, f"/remote-log?topic={self._large}").json()
        if any(one["state"] != "COPY_SEGMENT_FINISHED" for one in found):
            return {}
        made = {one["partition"]: one["broker_id"] for one in found}
        assert len(made) == len(found), "a segment was made twice"
        return made

    def _all_objects(self) -> set[Path]:
        return {path for path in (self._objects / "wal").rglob("*") if path.is_file() and ".incoming" not in path.parts}


def test_each_leader_does_its_part_and_the_next_one_goes_on_with_it(cluster: BrokerCluster, tmp_path: Path) -> None:
    one, two, three = cluster.brokers.values()
    led = {"cluster-0": 2, "diskless-0": 2, "diskless-1": 3, "groups-0": 3}
    wait_until(lambda: leaders(three) == led, "leaders as they are placed")
    before = Round(cluster, tmp_path, "before")
    before.begin()
    before.wait()
    assert before.segments() == {FIRST: 2, SECOND: 3}
    wait_until(lambda: done_by(two) >= OF_FIRST | OF_CLUSTER, "all that broker 2 has to do")
    wait_until(lambda: done_by(three) >= OF_SECOND, "all that broker 3 has to do")
    assert done_by(two).isdisjoint(OF_SECOND - ANYWHERE)
    assert done_by(one) == set()

    meanwhile = Round(cluster, tmp_path, "meanwhile")
    meanwhile.begin()
    two.kill()
    wait_until(lambda: leaders(three) == led | {"cluster-0": 1, "diskless-0": 1}, "broker 1 has taken over")
    meanwhile.wait()

    after = Round(cluster, tmp_path, "after")
    after.begin()
    after.wait()
    assert after.segments() == {FIRST: 1, SECOND: 3}
    wait_until(lambda: done_by(one) >= OF_FIRST | OF_CLUSTER, "all that broker 2 had to do")
    assert done_by(one).isdisjoint(OF_SECOND - ANYWHERE)
    assert done_by(three).isdisjoint((OF_FIRST | OF_CLUSTER) - ANYWHERE)
