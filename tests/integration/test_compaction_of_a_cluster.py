"""Tools that are told one address of three brokers: they find the leaders, and follow them when they die."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from diskless_core.cli.admin_client import RefusedError
from diskless_core.cli.cluster_admin import ClusterAdmin
from tests.support.armed import arm, disarm, make_mortal
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import BrokerCluster, settled, view
from tests.support.crash import (
    CLIENT,
    PARTITIONS,
    SteadyProducer,
    assert_nothing_is_lost,
    wait_for_acknowledgements,
)
from tests.support.waiting import wait_until

TIMEOUT_S = 300.0
DISKLESS = Path(sys.executable).with_name("diskless")
COORDINATORS = 3
SETTINGS = {
    "admin.listener": "http://127.0.0.1:0",
    "auto.leader.rebalance.enable": "true",
    "diskless.append.commit.interval.ms": "20",
    "diskless.compaction.driver.session.timeout.ms": "2000",
    "diskless.coordinator.placement": "",
    "diskless.metadata.topic.num.partitions": str(COORDINATORS),
    "offsets.topic.num.partitions": "1",
}
TIER = "diskless_core.diskless.shard:DisklessShard.tier"


def mortal_cluster(folder: Path) -> BrokerCluster:
    """Brokers that can be armed: then the next segment that the coordinator takes kills them."""
    made = BrokerCluster(folder, {**SETTINGS, "remote_storage.fsspec.url": (folder / "segments").as_uri()})
    for broker in made.brokers.values():
        make_mortal(broker, TIER)
    return made


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    made = mortal_cluster(tmp_path_factory.mktemp("three"))
    try:
        yield made.start()
    finally:
        made.end()


@pytest.fixture
def cluster(started: BrokerCluster) -> BrokerCluster:
    """All brokers run, and coordinators are spread over them."""
    for broker in started.brokers.values():
        disarm(broker)
        if not broker.is_running:
            broker.start()
    settled(started.brokers)
    return started


def run(*arguments: str) -> Any:
    """What a command says in JSON."""
    done = subprocess.run([DISKLESS, *arguments, "--json"], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def segments(broker: BrokerProcess, topic: str) -> list[Any]:
    url = f"{broker.admin}/remote-log"
    return list(httpx.get(url, params={"topic": topic}, timeout=TIMEOUT_S).raise_for_status().json())


def files(started: BrokerCluster, topic: str) -> set[str]:
    """The ids of a topic's segments whose logs lie in remote storage."""
    folder = started.follower.folder.parent / "segments"
    return {path.stem.split("-", 1)[1] for path in folder.rglob("*.log") if path.parent.name.startswith(f"{topic}-")}


def producing(broker: BrokerProcess, topic: str) -> SteadyProducer:
    """An idempotent producer that has written something to each partition of a new topic."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **CLIENT})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(TIMEOUT_S)
    producer = SteadyProducer(broker.bootstrap, topic, "steady", idempotent=True).start()
    wait_for_acknowledgements([producer], 100, TIMEOUT_S)
    producer.stop()
    return producer


def assert_once(cluster: BrokerCluster, asked: BrokerProcess, topic: str, producer: SteadyProducer) -> None:
    """All that was acknowledged is there, in segments that follow each other, and nothing else is."""
    assert_nothing_is_lost(asked.bootstrap, topic, [producer])

    def only_complete_ones() -> list[Any] | None:
        """The segments. Copies that a broker had begun when it died are kept for a day, in case that it comes back."""
        known = segments(asked, topic)
        complete = [one for one in known if one["state"] == "COPY_SEGMENT_FINISHED"]
        begun = {one["segment_id"] for one in known if one["state"] == "COPY_SEGMENT_STARTED"}
        is_all = len(complete) + len(begun) == len(known)
        return complete if is_all and {one["segment_id"] for one in complete} == files(cluster, topic) - begun else None

    known = wait_until(only_complete_ones, "the same complete segments in files and metadata")
    ends = [0] * PARTITIONS
    for one in sorted(known, key=lambda one: one["start_offset"]):
        assert one["start_offset"] == ends[one["partition"]]
        ends[one["partition"]] = one["end_offset"] + 1
    assert sum(ends) == len(producer.acknowledged)


def test_a_compaction_that_one_broker_is_asked_for_is_done_by_all_leaders(cluster: BrokerCluster) -> None:
    leaders, asked = settled(cluster.brokers), cluster.follower
    assert len(set(leaders)) > 1
    producer = producing(asked, "all")
    planned = run("compact", "--topic", "all", "--everything", "--plan", "--url", asked.admin)
    assert {segment["partition"] for segment in planned} == set(range(PARTITIONS))
    report = run("compact", "--topic", "all", "--everything", "--url", asked.admin)
    assert (report["state"], report["segments"]) == ("finished", len(planned))
    assert {shard: job["node_id"] for job in report["jobs"] for shard in job["shards"]} == dict(enumerate(leaders))
    assert report["topics"]["all"]["partitions"] == PARTITIONS
    assert_once(cluster, asked, "all", producer)


@pytest.mark.parametrize(
    ("here", "ends_by"),
    [(False, signal.SIGKILL), (True, signal.SIGTERM)],
    ids=["in brokers, one of which dies", "in another process, and a broker stops"],
)
def test_a_compaction_goes_on_at_the_next_leader_when_the_broker_ends_that_was_asked_first(
    cluster: BrokerCluster, here: bool, ends_by: signal.Signals
) -> None:
    topic = f"{ends_by.name.lower()}-{here}"
    leader, *_ = settled(cluster.brokers)
    dying, survivor = cluster.brokers[leader], cluster.brokers[1 if leader != 1 else 2]
    producer = producing(survivor, topic)
    arm(dying, ends_by)
    options = ["--topic", topic, "--everything", "--url", f"{dying.admin},{survivor.admin}"]
    if here:
        options += ["--here", *(part for item in dying._properties.items() for part in ("-o", "=".join(item)))]
    report = run("compact", *options)
    assert dying._running().wait(TIMEOUT_S) == (-signal.SIGKILL if ends_by is signal.SIGKILL else 0)
    assert (report["state"], report["failures"]) == ("finished", [])
    assert {job["node_id"] for job in report["jobs"] if job["state"] != "finished"} <= {leader}
    finished = [job for job in report["jobs"] if job["state"] == "finished"]
    assert {shard for job in finished for shard in job["shards"]} == set(range(COORDINATORS))
    assert_once(cluster, survivor, topic, producer)


def test_a_scan_for_orphans_is_done_by_the_controller_whoever_is_asked(cluster: BrokerCluster) -> None:
    [asked, *_] = (one for node_id, one in cluster.brokers.items() if node_id != view(one)["controller"])
    refused = httpx.post(f"{asked.admin}/orphans/scan", params={"dry_run": True}, timeout=TIMEOUT_S)
    assert refused.status_code == 421
    assert run("orphans", "scan", "--dry-run", "--url", asked.admin)["orphans"] == []


def test_segments_are_adopted_by_the_leader_of_their_partition_alone(cluster: BrokerCluster) -> None:
    producing(cluster.follower, "full")
    body = {"topic": "full", "partition": 0, "log_start_offset": 0, "segments": []}
    answers = [
        httpx.post(f"{broker.admin}/remote-log/adopt", json=body, timeout=TIMEOUT_S)
        for broker in cluster.brokers.values()
    ]
    assert sorted(answer.status_code for answer in answers) == [409, 421, 421]
    client = ClusterAdmin([cluster.follower.admin])
    with pytest.raises(RefusedError, match="do not make a log"):
        client.ask_leader(lambda view: view.node_id, "POST", "/remote-log/adopt", body)


def test_brokers_say_who_speaks_and_agree_about_the_cluster(cluster: BrokerCluster) -> None:
    def agreed() -> Any:
        views = [view(broker) for broker in cluster.brokers.values()]
        assert [told.pop("node_id") for told in views] == list(cluster.brokers)
        return views[0] if all(told == views[0] for told in views) else None

    told = wait_until(agreed, "all brokers say the same of the cluster")
    assert {broker["node_id"]: broker["http"] for broker in told["brokers"]} == {
        node_id: broker.admin for node_id, broker in cluster.brokers.items()
    }
    for node_id, broker in cluster.brokers.items():
        ready = httpx.get(f"{broker.admin}/health/ready", timeout=TIMEOUT_S)
        assert ready.json()["node_id"] == int(ready.headers["Diskless-Node-Id"]) == node_id
        assert ready.json()["cluster_id"] == ready.headers["Diskless-Cluster-Id"] == told["cluster_id"]
    health = httpx.get(f"{cluster.follower.admin}/health/cluster", timeout=TIMEOUT_S)
    assert (health.status_code, health.json()["healthy"], health.json()["fenced"]) == (200, True, [])
    compared = httpx.get(f"{cluster.follower.admin}/cluster", params={"lag": True}, timeout=TIMEOUT_S).json()
    assert all(set(map(int, shard["lag"])) == set(cluster.brokers) for shard in compared["shards"])
