"""kafka-consumer-groups on Diskless and on Apache Kafka: what it shows of groups, and what it does to their offsets."""

from __future__ import annotations

import pytest

from diskless_core.protocol.messages import ConsumerGroupHeartbeatRequest
from tests.support.waiting import wait_until
from tests.support.wire import WireClient


@pytest.fixture
def group(both, topic):
    """A group without members, on both clusters, that consumed the three records of its topic's partition 0."""
    both.same("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    for tools in (both.diskless, both.kafka):
        # The same key, so that one partition gets all of them.
        tools.out(
            "kafka-console-producer",
            *("--topic", topic, "--reader-property", "parse.key=true"),
            stdin="key\tone\nkey\ttwo\nkey\tthree\n",
        )
        tools.out(
            "kafka-console-consumer", "--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "3"
        )
    return topic


def rows(said, group):
    """The columns of a table's lines about a group, the group's name before the others."""
    return [columns for line in said.splitlines() if (columns := line.split())[:1] == [group]]


def test_a_group_is_listed_described_moved_and_deleted(both, group):
    def groups(*arguments):
        return both.same("kafka-consumer-groups", *arguments)

    listed = both.diskless.out("kafka-consumer-groups", "--list", "--state", "--type")
    assert [group, "Classic", "Empty"] in [line.split() for line in listed.splitlines()]
    assert sorted(row[3:6] for row in rows(groups("--describe", "--group", group), group)) == [
        ["0", "0", "0"],
        ["3", "3", "0"],
    ]
    assert "has no active members" in groups("--describe", "--group", group, "--members", "--verbose")
    assert rows(groups("--describe", "--group", group, "--state"), group)[0][-2:] == ["Empty", "0"]

    reset = ("--reset-offsets", "--group", group, "--topic", group)
    for target, offset in {
        ("--to-earliest",): "0",
        ("--to-offset", "2"): "2",
        ("--shift-by", "-1"): "1",
        ("--to-datetime", "2020-01-01T00:00:00.000"): "0",
        ("--by-duration", "P1D"): "0",
        ("--to-latest",): "3",
        ("--to-current",): "3",
    }.items():
        assert offset in {row[3] for row in rows(groups(*reset, *target, "--execute"), group)}
    groups(*reset, "--to-earliest", "--dry-run")
    groups(*reset, "--to-earliest", "--dry-run", "--export")

    groups("--delete-offsets", "--group", group, "--topic", group)
    assert "was successful" in groups("--delete", "--group", group)
    assert "GroupIdNotFoundException" in groups("--delete", "--group", group)
    assert "GroupIdNotFoundException" in groups("--describe", "--group", group)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_a_live_member_shows_it_and_is_not_changed(both, group, protocol):
    consumer = ["--topic", group, "--group", group, "--command-property", "client.id=who|is{this}?"]
    consumer += ["--command-property", f"group.protocol={protocol}"]

    def member(tools):
        """The one member's host, client id, number of partitions, and assignments, or nothing."""
        said = tools.out("kafka-consumer-groups", "--describe", "--group", group, "--members", "--verbose")
        return [[*columns[2:5], *columns[6::2]] for columns in rows(said, group)]

    with (
        both.diskless.running("kafka-console-consumer", *consumer),
        both.kafka.running("kafka-console-consumer", *consumer),
    ):
        for tools in (both.diskless, both.kafka):
            wait_until(lambda tools=tools: f"{group}:0,1" in str(member(tools)), "the member is described")
        assert member(both.diskless) == member(both.kafka)
        assert member(both.diskless)[0][:3] == ["/127.0.0.1", "who|is{this}?", "2"]
        state = both.same("kafka-consumer-groups", "--describe", "--group", group, "--state")
        assert rows(state, group)[0][-2:] == ["Stable", "1"]
        assert "GroupNotEmptyException" in both.same("kafka-consumer-groups", "--delete", "--group", group)
        reset = ("--reset-offsets", "--group", group, "--topic", group, "--to-earliest", "--execute")
        assert "inactive" in both.same("kafka-consumer-groups", *reset)


def test_settings_of_a_group_are_shown_altered_listed_and_heard_by_its_members(both, topic):
    entity = ("--entity-type", "groups", "--entity-name", topic)

    def configs(*arguments):
        return both.same("kafka-configs", *arguments)

    assert f"The group '{topic}' doesn't exist and doesn't have dynamic config." in configs("--describe", *entity)
    assert "consumer.session.timeout.ms=45000" in configs("--describe", *entity, "--all")
    configs("--alter", *entity, "--add-config", "consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=7000")
    assert "  consumer.session.timeout.ms=50000 sensitive=false" in configs("--describe", *entity)
    assert f"Dynamic configs for group {topic} are:" in both.diskless.out(
        "kafka-configs", "--describe", "--entity-type", "groups"
    )
    host, _, port = both.diskless.bootstrap.rpartition(":")
    with WireClient(host, int(port)) as wire:
        request = ConsumerGroupHeartbeatRequest(
            group_id=topic, member_id="m", rebalance_timeout_ms=1, subscribed_topic_names=[], topic_partitions=[]
        )
        assert wire.call(request, 1).heartbeat_interval_ms == 7_000
    for done in both.run("kafka-configs", "--alter", *entity, "--add-config", "consumer.session.timeout.ms=1"):
        assert "must be greater than or equal to group.consumer.min.session.timeout.ms" in done.err
        assert done.code == 1
    configs("--alter", *entity, "--delete-config", "consumer.session.timeout.ms,consumer.heartbeat.interval.ms")
    assert both.diskless.out("kafka-configs", "--describe", *entity) == f"Dynamic configs for group {topic} are:\n"
