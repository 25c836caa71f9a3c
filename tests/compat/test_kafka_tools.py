"""Kafka's own tools for topics, settings, records and the cluster, on Diskless and, where it is cheap, on both."""

from __future__ import annotations

import json
import re

import pytest

from tests.compat.clients import compressed_again

TOPIC_LINE = re.compile(
    r"^Topic: (\S+)\tTopicId: ([\w-]{22})\tPartitionCount: (\d+)\tReplicationFactor: 1\tConfigs: (.*)$"
)

UNDER_AND_AT_MIN_ISR = ("--under-min-isr-partitions", "--at-min-isr-partitions")


def settings_of(described):
    """The setting=value that kafka-configs shows, by name."""
    return dict(re.findall(r"^  (\S+)=(\S*) sensitive=false", described, re.MULTILINE))


def test_topics_are_created_described_grown_listed_and_deleted(both, topic):
    both.same("kafka-topics", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=100000")

    assert "already exists" in both.same("kafka-topics", "--create", "--topic", topic, code=1)
    described = both.same("kafka-topics", "--describe", "--topic", topic)
    name, _, partitions, configs = TOPIC_LINE.match(described.splitlines()[0]).groups()
    assert (name, partitions, configs) == (topic, "2", "retention.ms=100000")
    assert described.count("Leader: 1\tReplicas: 1\tIsr: 1") == 2
    both.same("kafka-topics", "--alter", "--topic", topic, "--partitions", "3")
    both.same("kafka-topics", "--alter", "--topic", topic, "--partitions", "2", code=1)
    assert "PartitionCount: 3" in both.same("kafka-topics", "--describe", "--topic", topic)
    assert both.same("kafka-topics", "--list", "--topic", topic) == f"{topic}\n"
    both.same("kafka-topics", "--delete", "--topic", topic)
    assert both.same("kafka-topics", "--list", "--topic", topic).strip() == ""
    for action in ("--describe", "--delete"):
        assert "does not exist as expected" in both.same("kafka-topics", action, "--topic", topic, code=1)


def test_partitions_with_few_replicas_in_sync_are_found_by_the_topics_setting(both, topic):
    both.same("kafka-topics", "--create", "--topic", topic, "--config", "min.insync.replicas=1")
    under, at = (("--describe", "--topic", topic, option) for option in UNDER_AND_AT_MIN_ISR)

    assert both.same("kafka-topics", *under).strip() == ""
    assert "Isr: 1" in both.same("kafka-topics", *at)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    both.same("kafka-configs", "--alter", *entity, "--add-config", "min.insync.replicas=2")
    assert "Isr: 1" in both.same("kafka-topics", *under)
    assert both.same("kafka-topics", *at).strip() == ""
    assert both.diskless.out("kafka-console-producer", "--topic", topic, stdin="it has no effect\n").strip() == ""


def test_no_partition_is_being_moved(both):
    assert "No partition reassignments found." in both.same("kafka-reassign-partitions", "--list")


def test_topics_that_kafka_would_refuse_are_refused(both, topic):
    said = both.same("kafka-topics", "--create", "--topic", topic, "--config", "no.such.setting=1", code=1)
    assert "Unknown topic config name: no.such.setting" in said
    for options, error in (
        (["--topic", "a+b"], "InvalidTopicException"),
        (["--topic", topic, "--replication-factor", "3"], "InvalidReplicationFactorException"),
    ):
        for done in both.run("kafka-topics", "--create", *options):
            assert (error in done.err, done.code) == (True, 1)


def test_settings_of_a_topic_are_shown_added_deleted_and_refused(both, topic):
    entity = ("--entity-type", "topics", "--entity-name", topic)
    both.same("kafka-topics", "--create", "--topic", topic, "--config", "max.message.bytes=2000000")

    both.same("kafka-configs", "--alter", *entity, "--add-config", "retention.bytes=12345,max.message.bytes=3000")
    described = both.same("kafka-configs", "--describe", *entity)
    assert settings_of(described) == {"max.message.bytes": "3000", "retention.bytes": "12345"}
    both.same("kafka-configs", "--alter", *entity, "--delete-config", "max.message.bytes,segment.ms,no.such.setting")
    assert settings_of(both.same("kafka-configs", "--describe", *entity)) == {"retention.bytes": "12345"}
    said = both.same("kafka-configs", "--alter", *entity, "--add-config", "no.such.setting=1", code=1)
    assert "Unknown topic config name: no.such.setting" in said
    for done in both.run("kafka-configs", "--alter", *entity, "--add-config", "retention.ms=soon"):
        assert "InvalidConfigurationException: Invalid value soon for configuration retention.ms" in done.out + done.err
    ours, theirs = (settings_of(done.out) for done in both.run("kafka-configs", "--describe", *entity, "--all"))
    assert {name: theirs.get(name) for name in ours} == ours


def test_a_topic_that_is_not_there_has_no_settings(both, topic):
    entity = ("--entity-type", "topics", "--entity-name", topic)

    assert "doesn't exist" in both.same("kafka-configs", "--describe", *entity)
    said = both.same("kafka-configs", "--alter", *entity, "--add-config", "retention.ms=1", code=1)
    assert f"UnknownTopicOrPartitionException: The topic '{topic}' does not exist." in said


@pytest.mark.parametrize("entity", [("--entity-name", "1"), ("--entity-default",)], ids=["one", "all"])
def test_settings_of_brokers_change_while_they_run(both, entity):
    entity = ("--entity-type", "brokers", *entity)

    both.same("kafka-configs", "--alter", *entity, "--add-config", "message.max.bytes=2000000")
    try:
        assert settings_of(both.same("kafka-configs", "--describe", *entity))["message.max.bytes"] == "2000000"
    finally:
        both.same("kafka-configs", "--alter", *entity, "--delete-config", "message.max.bytes")
    assert "message.max.bytes" not in settings_of(both.same("kafka-configs", "--describe", *entity))
    said = both.same("kafka-configs", "--alter", *entity, "--add-config", "node.id=9", code=1)
    assert "InvalidRequestException: Cannot update these configs dynamically: [node.id]" in said


def test_all_settings_of_a_broker_are_shown_with_kafkas_defaults(both):
    entity = ("--entity-type", "brokers", "--entity-name", "1")

    ours, theirs = (settings_of(done.out) for done in both.run("kafka-configs", "--describe", *entity, "--all"))

    assert ours["message.max.bytes"] == theirs["message.max.bytes"]
    assert ours["log.retention.hours"] == theirs["log.retention.hours"]


def test_lines_with_keys_and_headers_go_through_the_console_tools(both, topic):
    both.same("kafka-topics", "--create", "--topic", topic)
    parsed = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    shown = [
        part
        for name in ("key", "headers", "offset", "partition")
        for part in ("--formatter-property", f"print.{name}=true")
    ]

    lines = "h1:a,h2:b\tk1\thello\nh1:c\tk2\tworld\n"
    both.same("kafka-console-producer", "--topic", topic, *parsed, stdin=lines)
    read = ("--topic", topic, "--max-messages", "2", "--timeout-ms", "30000")

    shown_lines = both.same("kafka-console-consumer", *read, "--from-beginning", "--group", topic, *shown).splitlines()
    assert "Partition:0\tOffset:0\th1:a,h2:b\tk1\thello" in shown_lines
    assert "Partition:0\tOffset:1\th1:c\tk2\tworld" in shown_lines
    tools = both.diskless
    tools.out("kafka-console-producer", "--topic", topic, stdin="again\n")
    rest = tools.out("kafka-console-consumer", "--topic", topic, "--max-messages", "1", "--group", topic)
    assert rest.splitlines()[-1:] == ["again"]
    tail = ("--partition", "0", "--offset", "1", "--max-messages", "2")
    assert tools.out("kafka-console-consumer", "--topic", topic, *tail).splitlines() == ["world", "again"]


def test_kafkas_consumer_reads_what_a_topic_compresses_again(tools, topic, wire):
    sent = compressed_again(wire, topic)

    read = ("--topic", topic, "--partition", "0", "--offset", "0", "--max-messages", str(len(sent)))
    assert tools.out("kafka-console-consumer", *read).splitlines() == [value.decode() for value in sent]


def test_offsets_of_all_kinds_and_the_deletion_of_records(both, topic, tmp_path):
    both.same("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    records = "".join(f"key\tvalue {number}\n" for number in range(10))
    both.same("kafka-console-producer", "--topic", topic, "--reader-property", "parse.key=true", stdin=records)
    [written] = [line for line in both.same("kafka-get-offsets", "--topic", topic).splitlines() if line.endswith(":10")]
    partition = int(written.split(":")[1])
    wanted = tmp_path / "offsets.json"

    def delete(offset):
        asked = [{"topic": topic, "partition": partition, "offset": offset}]
        wanted.write_text(json.dumps({"version": 1, "partitions": asked}))
        return both.same("kafka-delete-records", "--offset-json-file", str(wanted))

    assert f"partition: {topic}-{partition}\tlow_watermark: 4" in delete(4)
    assert "OffsetOutOfRangeException" in delete(11)
    for time, offset in {"earliest": 4, "latest": 10, "earliest-local": 4, "1": 4}.items():
        said = both.same("kafka-get-offsets", "--topic", topic, "--time", time).splitlines()
        assert f"{topic}:{partition}:{offset}" in said
    assert both.same("kafka-get-offsets", "--topic", topic, "--time", "latest-tiered").strip() == ""
    assert "low_watermark: 10" in delete(-1)
    assert both.diskless.out("kafka-get-offsets", "--topic", topic, "--time", "max-timestamp").count(":") in (0, 2)
    both.same("kafka-get-offsets", "--topic-partitions", f"{topic}-not-there:0", code=1)


def test_the_performance_tools_measure(tools, topic):
    tools.out("kafka-topics", "--create", "--topic", topic, "--partitions", "3")

    load = ("--num-records", "5000", "--record-size", "200", "--throughput", "-1")
    produced = tools.out("kafka-producer-perf-test", "--topic", topic, *load)
    consumed = tools.out("kafka-consumer-perf-test", "--topic", topic, "--num-records", "5000", "--timeout", "30000")

    assert "5000 records sent" in produced
    head, row = ([column.strip() for column in line.split(",")] for line in consumed.strip().splitlines()[-2:])
    assert dict(zip(head, row, strict=True))["data.consumed.in.nMsg"] == "5000"


def test_what_the_verifiable_producer_sent_the_verifiable_consumer_gets(tools, topic):
    tools.out("kafka-topics", "--create", "--topic", topic)

    sent = events(tools.out("kafka-verifiable-producer", "--topic", topic, "--max-messages", "50"))
    with tools.running(
        "kafka-verifiable-consumer", "--topic", topic, "--group-id", topic, "--reset-policy", "earliest", "--verbose"
    ) as consumer:
        got = []
        while sum(event["name"] == "record_data" for event in got) < 50:
            got.append(json.loads(consumer.stdout.readline()))

    assert [(e["offset"], e["value"]) for e in sent if e["name"] == "producer_send_success"] == [
        (offset, str(offset)) for offset in range(50)
    ]
    assert [(e["offset"], e["value"]) for e in got if e["name"] == "record_data"] == [
        (offset, str(offset)) for offset in range(50)
    ]


def events(lines):
    return [json.loads(line) for line in lines.splitlines()]


def test_kafka_can_use_every_api_that_a_broker_offers(both):
    ours, theirs = (
        dict(re.findall(r"\t(\w+\(\d+\)): (.*?),?\n", done.out)) for done in both.run("kafka-broker-api-versions")
    )

    assert set(ours) == set(theirs)
    assert {name: span for name, span in ours.items() if "usable" not in span and span != "UNSUPPORTED"} == {}
    assert "[usable: 13]" in ours["Produce(0)"]


def test_the_log_directory_shows_how_big_partitions_are(both, topic):
    both.same("kafka-topics", "--create", "--topic", topic)
    both.same("kafka-console-producer", "--topic", topic, stdin="a line\n")

    ours, theirs = (
        json.loads(done.out.splitlines()[-1])["brokers"][0]["logDirs"][0]["partitions"]
        for done in both.run("kafka-log-dirs", "--describe", "--topic-list", topic)
    )

    assert ours == theirs
    assert [(entry["partition"], entry["size"] > 0) for entry in ours] == [(f"{topic}-0", True)]


def test_the_cluster_tool_knows_the_cluster(both):
    assert re.fullmatch(r"Cluster ID: [\w-]{22}\n", both.diskless.out("kafka-cluster", "cluster-id"))
    both.same("kafka-cluster", "list-endpoints")
    for done in both.run("kafka-cluster", "unregister", "--id", "77"):
        assert ("BrokerIdNotRegisteredException" in done.err, done.code) == (True, 1)
    done = both.diskless.run("kafka-cluster", "unregister", "--id", "1")
    assert ("InvalidRequestException: Broker 1 is running." in done.err, done.code) == (True, 1)


def test_the_level_of_the_cluster_is_described_and_set_and_one_that_brokers_lack_is_refused(tools):
    described = tools.out("kafka-features", "describe")
    [line] = [line for line in described.splitlines() if "diskless.version" in line]
    assert re.findall(r"(\w+Version|FinalizedVersionLevel): (\d+)", line) == [
        ("SupportedMinVersion", "1"),
        ("SupportedMaxVersion", "1"),
        ("FinalizedVersionLevel", "1"),
    ]
    assert "was upgraded to 1" in tools.out("kafka-features", "upgrade", "--feature", "diskless.version=1")
    refused = tools.run("kafka-features", "upgrade", "--feature", "diskless.version=2")
    assert refused.code == 1
    assert "The broker only supports versions 1-1" in refused.out + refused.err
