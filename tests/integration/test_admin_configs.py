"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources over the wire."""

from __future__ import annotations

import pytest

from diskless_core.cluster.config_model import ConfigSource, ConfigType
from diskless_core.cluster.topic_configs import CONFIGS
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import ConsumerGroupHeartbeatRequest
from tests.support.admin_requests import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    SET,
    TOPIC,
    alter,
    alter_configs_request,
    describe_configs,
    describe_configs_request,
    incremental_request,
    list_config_resources_request,
)
from tests.support.batches import batch_of
from tests.support.requests import append, create_topic, produce
from tests.support.waiting import wait_until

pytestmark = pytest.mark.in_a_cluster_too


def values(configs):
    return {name: config.value for name, config in configs.items()}


# --- DescribeConfigs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topics_settings_are_described_with_their_defaults(wire, topic, version):
    create_topic(wire, topic, retention_ms="1000")

    configs = describe_configs(wire, TOPIC, topic, version=version)

    assert set(configs) == set(CONFIGS)
    own, inherited = configs["retention.ms"], configs["max.message.bytes"]
    assert (own.value, own.config_source, own.read_only) == ("1000", ConfigSource.DYNAMIC_TOPIC, False)
    assert (inherited.value, inherited.config_source) == ("1048588", ConfigSource.DEFAULT)
    assert [(one.name, one.value, one.source) for one in own.synonyms] == [
        ("retention.ms", "1000", ConfigSource.DYNAMIC_TOPIC),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]
    if version >= 3:
        assert (own.config_type, configs["cleanup.policy"].config_type) == (ConfigType.LONG, ConfigType.LIST)
        assert "milliseconds" in own.documentation


def test_a_brokers_settings_are_described(new_broker):
    with new_broker({"num.partitions": "3", "log.retention.ms": "9"}).connect() as wire:
        configs = describe_configs(wire, BROKER, "1")

    partitions, rack, retention = configs["num.partitions"], configs["broker.rack"], configs["log.retention.ms"]
    assert (partitions.value, partitions.config_source, partitions.read_only) == ("3", ConfigSource.STATIC_BROKER, True)
    assert [(one.value, one.source) for one in partitions.synonyms] == [
        ("3", ConfigSource.STATIC_BROKER),
        ("1", ConfigSource.DEFAULT),
    ]
    assert (rack.value, rack.config_source) == (None, ConfigSource.DEFAULT)
    assert (retention.value, retention.read_only) == ("9", False)
    assert {"listeners", "log.dirs", "message.max.bytes"} <= set(configs)


def test_only_what_is_asked_for_is_described(wire, topic):
    create_topic(wire, topic)

    assert set(describe_configs(wire, TOPIC, topic, ["retention.ms", "absent"])) == {"retention.ms"}
    assert set(describe_configs(wire, TOPIC, topic, [])) == set(CONFIGS)
    [result] = wire.call(describe_configs_request(TOPIC, topic, synonyms=False, documentation=False), 4).results
    assert all(config.synonyms == [] and config.documentation is None for config in result.configs)


@pytest.mark.one_broker
@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "absent-for-sure", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_resources_that_are_not_here_are_errors(wire, resource_type, name, code):
    [described] = wire.call(describe_configs_request(resource_type, name), 4).results
    [altered] = wire.call(incremental_request(resource_type, name, ("retention.ms", SET, "1")), 1).responses

    assert (described.error_code, described.resource_type, described.resource_name) == (code, resource_type, name)
    assert described.configs == []
    assert altered.error_code == code


# --- altering topics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2))
def test_an_altered_setting_is_in_force_for_the_next_produce(wire, topic, version):
    create_topic(wire, topic, retention_ms="1000")
    append(wire, topic, batch_of(b"v" * 300))

    assert alter(wire, TOPIC, topic, ("max.message.bytes", SET, "200"), version=version) == (0, None)
    refused = produce(wire, topic, batch_of(b"v" * 300)).error_code
    assert alter(wire, TOPIC, topic, ("max.message.bytes", DELETE, None), version=version) == (0, None)

    assert refused == ErrorCode.MESSAGE_TOO_LARGE
    assert append(wire, topic, batch_of(b"v" * 300)) == [1]
    assert describe_configs(wire, TOPIC, topic)["retention.ms"].value == "1000"


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_settings_of_a_topic(wire, topic, version):
    create_topic(wire, topic, retention_ms="1000", segment_ms="5")

    [answer] = wire.call(alter_configs_request(TOPIC, topic, {"retention.ms": "7"}), version).responses

    assert (answer.error_code, answer.resource_type, answer.resource_name) == (0, TOPIC, topic)
    configs = describe_configs(wire, TOPIC, topic)
    assert configs["retention.ms"].value == "7"
    assert configs["segment.ms"].config_source == ConfigSource.DEFAULT


@pytest.mark.parametrize(
    ("change", "code", "hint"),
    [
        (("retention.mss", SET, "1"), ErrorCode.INVALID_CONFIG, "retention.mss"),
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG, "soon"),
        (("cleanup.policy", APPEND, "compact"), ErrorCode.INVALID_CONFIG, "compact"),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG, "not LIST"),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "Null value"),
        (("retention.ms", 7, "1"), ErrorCode.INVALID_REQUEST, "7"),
    ],
)
def test_bad_changes_are_refused_with_the_reason_and_nothing_is_changed(wire, topic, change, code, hint):
    create_topic(wire, topic)
    before = values(describe_configs(wire, TOPIC, topic))

    error, message = alter(wire, TOPIC, topic, ("retention.bytes", SET, "5"), change)

    assert error == code
    assert hint in message
    assert values(describe_configs(wire, TOPIC, topic)) == before


def test_validate_only_alters_nothing(wire, topic):
    create_topic(wire, topic)
    request = alter_configs_request(TOPIC, topic, {"retention.ms": "1"}, validate_only=True)

    assert alter(wire, TOPIC, topic, ("retention.ms", SET, "1"), validate_only=True) == (0, None)
    assert wire.call(request, 2).responses[0].error_code == 0
    assert alter(wire, TOPIC, topic, ("retention.ms", SET, "x"), validate_only=True)[0] == ErrorCode.INVALID_CONFIG

    assert describe_configs(wire, TOPIC, topic)["retention.ms"].config_source == ConfigSource.DEFAULT


def test_a_resource_that_is_twice_in_a_request_is_refused_and_the_others_are_altered(wire, topic):
    other = f"{topic}-other"
    create_topic(wire, topic)
    create_topic(wire, other)
    request = incremental_request(TOPIC, topic, ("retention.ms", SET, "1"))
    request.resources += incremental_request(TOPIC, other, ("retention.ms", SET, "1")).resources
    request.resources += incremental_request(TOPIC, topic, ("segment.ms", SET, "1")).resources

    answers = wire.call(request, 1).responses

    assert [(one.resource_name, one.error_code) for one in answers] == [(topic, 42), (other, 0), (topic, 42)]
    assert describe_configs(wire, TOPIC, topic)["retention.ms"].config_source == ConfigSource.DEFAULT
    assert describe_configs(wire, TOPIC, other)["retention.ms"].value == "1"


# --- altering brokers ------------------------------------------------------------------------------------------------


def test_a_brokers_alterable_settings_are_its_topics_defaults_at_once_and_after_a_kill(new_broker, topic):
    broker = new_broker({"log.retention.hours": "2"})
    with broker.connect() as wire:
        create_topic(wire, topic)
        create_topic(wire, f"{topic}-own", max_message_bytes="1000")
        append(wire, topic, batch_of(b"v" * 300))

        assert alter(wire, BROKER, "", ("message.max.bytes", SET, "200"), ("log.retention.ms", SET, "5")) == (0, None)

        assert produce(wire, topic, batch_of(b"v" * 300)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        append(wire, f"{topic}-own", batch_of(b"v" * 300))
        assert values(describe_configs(wire, BROKER, "")) == {"message.max.bytes": "200", "log.retention.ms": "5"}
        assert alter(wire, BROKER, "1", ("message.max.bytes", SET, "500")) == (0, None)
        append(wire, topic, batch_of(b"v" * 300))
    broker.kill()
    broker.start()
    with broker.connect() as wire:
        shown = describe_configs(wire, TOPIC, topic)
        assert (shown["max.message.bytes"].value, shown["retention.ms"].value) == ("500", "5")
        assert [(one.name, one.value, one.source) for one in shown["retention.ms"].synonyms] == [
            ("log.retention.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER),
            ("log.retention.hours", "2", ConfigSource.STATIC_BROKER),
            ("log.retention.hours", "168", ConfigSource.DEFAULT),
        ]
        assert describe_configs(wire, BROKER, "1")["message.max.bytes"].config_source == ConfigSource.DYNAMIC_BROKER
        assert alter(wire, BROKER, "1", ("message.max.bytes", DELETE, None)) == (0, None)
        assert produce(wire, topic, batch_of(b"v" * 300)).error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("name", ["", "1"])
def test_a_brokers_other_settings_cannot_be_altered(wire, name):
    error, message = alter(wire, BROKER, name, ("num.partitions", SET, "5"))

    assert (error, message) == (
        ErrorCode.INVALID_REQUEST,
        "Cannot update these configs dynamically: [num.partitions]",
    )


def test_unknown_settings_and_values_of_a_broker_are_refused(wire):
    assert alter(wire, BROKER, "1", ("message.max.byte", SET, "5"))[0] == ErrorCode.INVALID_CONFIG
    assert alter(wire, BROKER, "1", ("message.max.bytes", SET, "-5"))[0] == ErrorCode.INVALID_REQUEST
    [answer] = wire.call(alter_configs_request(BROKER, "1", {"listeners": "x"}), 2).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_the_greatest_number_of_connections_is_altered_for_the_next_one(new_broker):
    broker = new_broker()
    with broker.connect() as wire:
        assert alter(wire, BROKER, "", ("max.connections", SET, "1")) == (0, None)
        with broker.connect() as refused:
            assert refused.is_closed()
        assert alter(wire, BROKER, "1", ("max.connections", SET, "2")) == (0, None)
        with broker.connect() as accepted:
            assert describe_configs(accepted, BROKER, "1")["max.connections"].value == "2"


# --- altering groups -------------------------------------------------------------------------------------------------

SESSION_TIMEOUT, HEARTBEAT_INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def beat(wire, group, epoch=0):
    """A heartbeat of the group's only member, which joins first."""
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=epoch, **({} if epoch else joins)
    )
    return wire.call(request, 1)


def test_a_groups_own_times_hold_for_its_members_from_now_on_and_after_a_restart(new_broker, topic):
    broker = new_broker(
        {
            "group.consumer.min.session.timeout.ms": "30",
            "group.consumer.min.heartbeat.interval.ms": "10",
        }
    )
    group = f"{topic}-group"
    with broker.connect() as wire:
        joined = beat(wire, group)

        changes = (SESSION_TIMEOUT, SET, "30"), (HEARTBEAT_INTERVAL, SET, "20"), ("share.isolation.level", SET, "x")
        assert alter(wire, GROUP, group, *changes)[0] == ErrorCode.INVALID_CONFIG
        assert beat(wire, group, joined.member_epoch).heartbeat_interval_ms == 5_000
        idle = ("consumer.assignment.interval.ms", SET, "5")
        assert alter(wire, GROUP, group, *changes[:2], idle) == (0, None)

        beaten = beat(wire, group, joined.member_epoch)
        assert (beaten.error_code, beaten.heartbeat_interval_ms) == (0, 20)
        wait_until(lambda: "member fenced" in broker.log_text(), "the end of the session")
        assert beat(wire, group, joined.member_epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert beat(wire, f"{group}-other").heartbeat_interval_ms == 5_000
        assert listed(wire, GROUP) == (0, {(GROUP, group)})
    broker.kill()
    broker.start({"group.consumer.min.heartbeat.interval.ms": "25"})
    with broker.connect() as wire:
        shown = describe_configs(wire, GROUP, group)[SESSION_TIMEOUT]
        assert (shown.value, shown.config_source) == ("30", ConfigSource.DYNAMIC_GROUP)
        assert beat(wire, group).heartbeat_interval_ms == 25
        gone = SESSION_TIMEOUT, HEARTBEAT_INTERVAL, "consumer.assignment.interval.ms"
        assert alter(wire, GROUP, group, *((name, DELETE, None) for name in gone)) == (0, None)
        assert beat(wire, group).heartbeat_interval_ms == 5_000
        assert listed(wire, GROUP) == (0, set())
    warnings = [line for line in broker.log_text().splitlines() if "settings were set that have no effect" in line]
    assert len(warnings) == 1
    assert "consumer.assignment.interval.ms" in warnings[0]


# --- ListConfigResources ---------------------------------------------------------------------------------------------


def listed(wire, *types, version=1):
    response = wire.call(list_config_resources_request(*types), version)
    return response.error_code, {(one.resource_type, one.resource_name) for one in response.config_resources}


def test_topics_and_the_broker_are_the_resources_that_have_settings(wire, topic):
    create_topic(wire, topic)

    error, everything = listed(wire)

    assert error == 0
    assert {(TOPIC, topic), (BROKER, "1")} <= everything
    assert listed(wire, BROKER) == (0, {(BROKER, "1")})
    assert {kind for kind, _ in listed(wire, TOPIC)[1]} == {TOPIC}
    assert listed(wire, 8, 16, 32) == (0, set())


def test_version_0_lists_client_metrics_of_which_there_are_none(wire, topic):
    create_topic(wire, topic)

    assert listed(wire, version=0) == (0, set())


def test_resources_of_an_unknown_type_cannot_be_listed(wire):
    assert listed(wire, TOPIC, 3) == (ErrorCode.UNSUPPORTED_VERSION, set())
