"""Kafka's tools, and ours, at a broker of a cluster that leads nothing: it answers like any other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from diskless_core.cli.main import main
from tests.compat.kafka_tools import KafkaTools, ToolRunner
from tests.support.broker import BrokerProcess
from tests.support.broker_cluster import LEADS_NOTHING, NODE_IDS, BrokerCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture
def follower(shared_cluster: BrokerCluster) -> Iterator[BrokerProcess]:
    """A broker that leads nothing, not to be failed by a defect."""
    broker = shared_cluster.follower
    before = broker.log.stat().st_size
    yield broker
    assert broker.is_running, broker.log_tail()
    assert "defect of the broker" not in broker.log_text(before)


@pytest.fixture
def tools(follower: BrokerProcess, kafka_jars: Path, tool_runner: ToolRunner) -> KafkaTools:
    """Kafka's command line tools at that broker."""
    return KafkaTools(kafka_jars, tool_runner, follower.bootstrap)


def test_topics_and_their_settings_are_changed(tools, topic):
    tools.out("kafka-topics", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=100000")
    tools.out("kafka-topics", "--alter", "--topic", topic, "--partitions", "3")
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tools.out("kafka-configs", "--alter", *entity, "--add-config", "max.message.bytes=3000")

    described = tools.out("kafka-topics", "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert re.search(r"Configs: .*max.message.bytes=3000", described)
    assert re.search(r"Configs: .*retention.ms=100000", described)
    tools.out("kafka-console-producer", "--topic", topic, stdin="hello\n")
    read = ("--topic", topic, "--from-beginning", "--max-messages", "1", "--timeout-ms", "60000")
    assert tools.out("kafka-console-consumer", *read).splitlines() == ["hello"]
    tools.out("kafka-topics", "--delete", "--topic", topic)
    assert topic not in tools.out("kafka-topics", "--list")


def test_settings_of_any_broker_and_of_all_are_altered(tools):
    for entity in (("--entity-name", str(LEADS_NOTHING)), ("--entity-name", "2"), ("--entity-default",)):
        of_broker = ("--entity-type", "brokers", *entity)
        tools.out("kafka-configs", "--alter", *of_broker, "--add-config", "message.max.bytes=2000000")
        assert "message.max.bytes=2000000" in tools.out("kafka-configs", "--describe", *of_broker)
        tools.out("kafka-configs", "--alter", *of_broker, "--delete-config", "message.max.bytes")


def test_the_cluster_is_shown_with_its_brokers_and_who_leads_it(tools):
    endpoints = tools.out("kafka-cluster", "list-endpoints", "--include-fenced-brokers")
    assert sorted(int(line.split()[0]) for line in endpoints.splitlines()[1:]) == list(NODE_IDS)
    status = tools.out("kafka-metadata-quorum", "describe", "--status")
    leader = int(re.search(r"^LeaderId:\s+(\d+)$", status, re.MULTILINE).group(1))
    assert leader in set(NODE_IDS) - {LEADS_NOTHING}
    replication = tools.out("kafka-metadata-quorum", "describe", "--replication").splitlines()[1:]
    states = {int(line.split()[0]): line.split()[-1] for line in replication if line.strip()}
    assert states == {node_id: "Leader" if node_id == leader else "Follower" for node_id in NODE_IDS}


def test_our_own_command_shows_every_coordinator_and_that_nobody_is_behind(follower):
    def found():
        done = CliRunner().invoke(main, ["cluster", "status", "--json", "-b", follower.bootstrap])
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    def is_at_rest():
        shards = found()["shards"]
        lags = [copy["lag"] for shard in shards for copy in shard["copies"]]
        return all(shard["error"] is None for shard in shards) and set(lags) == {0}

    wait_until(is_at_rest, "all copies to be up to date")
    status = found()
    assert [(one["id"], one["rack"], one["is_fenced"]) for one in status["brokers"]] == [
        (node_id, f"rack-{node_id}", False) for node_id in NODE_IDS
    ]
    assert status["controller"] == next(one["leader"] for one in status["shards"] if one["shard"] == "cluster-0")
    assert {"cluster-0", "diskless-0", "groups-0"} <= {one["shard"] for one in status["shards"]}
    copies = {shard["shard"]: {copy["broker"] for copy in shard["copies"]} for shard in status["shards"]}
    without = {shard["shard"]: set(shard["without_copy"]) for shard in status["shards"]}
    assert copies["cluster-0"] == set(NODE_IDS)
    for shard, brokers in copies.items():
        assert brokers >= set(NODE_IDS) - {LEADS_NOTHING}, f"those that may be nominated for {shard} follow it"
        assert without[shard] == set(NODE_IDS) - brokers
    assert LEADS_NOTHING not in {shard["leader"] for shard in status["shards"]}
