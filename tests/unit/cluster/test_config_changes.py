"""Alterations of settings, as the cluster shard decides them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from diskless_core.cluster import broker_configs, config_changes, group_configs, topic_configs
from diskless_core.cluster.config_changes import ALL_BROKERS, Alteration, AlterOperation, BrokerSide, ConfigChange
from diskless_core.cluster.config_layers import BrokerLayers, BrokerSettings, topic_defaults
from diskless_core.cluster.config_values import MAX_VALUE_CHARS, InvalidTopicConfigError, double_as_text
from diskless_core.cluster.records import ResourceType
from diskless_core.config.broker import BrokerConfig
from diskless_core.protocol.errors import ErrorCode
from tests.unit.cluster.cluster_state import ClusterState

SET, DELETE, APPEND, SUBTRACT = AlterOperation
NODE_ID = 1
STARTED_WITH = BrokerSettings.of(BrokerConfig())
BROKER = BrokerSide(
    properties=STARTED_WITH.described,
    defaults=STARTED_WITH.values(),
    topic_defaults=topic_defaults(BrokerLayers(settings=STARTED_WITH, dynamic={}, dynamic_default={})),
    tiering_is_enabled=True,
    group_value=group_configs.BROKER_DEFAULTS.__getitem__,
)


@pytest.fixture
def cluster():
    state = ClusterState()
    state.create_topic("t", configs={"retention.ms": "7", "segment.ms": "9"})
    return state


def alter(cluster, *changes, kind=ResourceType.TOPIC, name="t", replace=False, validate_only=False, broker=None):
    alteration = Alteration(
        resource_type=int(kind),
        resource_name=name,
        changes=[ConfigChange(key, value, operation) for key, operation, value in changes],
        replace=replace,
    )
    refusal = config_changes.check_alteration(alteration, {NODE_ID})
    return refusal or cluster.run(
        lambda command: config_changes.alter(command, alteration, broker or BROKER, validate_only=validate_only)
    )


def test_settings_are_set_and_deleted_and_others_stay(cluster):
    assert alter(cluster, ("retention.bytes", SET, "5"), ("segment.ms", DELETE, None)) is None

    assert cluster.configs(ResourceType.TOPIC, "t") == {"retention.ms": "7", "retention.bytes": "5"}


def test_a_replacement_removes_what_it_does_not_name(cluster):
    assert alter(cluster, ("retention.bytes", SET, "5"), ("segment.ms", SET, "10"), replace=True) is None
    assert cluster.configs(ResourceType.TOPIC, "t") == {"retention.bytes": "5", "segment.ms": "10"}

    assert alter(cluster, replace=True) is None
    assert cluster.configs(ResourceType.TOPIC, "t") == {}


def test_deleting_what_is_not_set_is_no_error(cluster):
    assert alter(cluster, ("retention.bytes", DELETE, None)) is None


def test_lists_are_appended_to_and_subtracted_from(cluster):
    assert alter(cluster, ("cleanup.policy", APPEND, "delete")) is None
    assert cluster.configs(ResourceType.TOPIC, "t")["cleanup.policy"] == "delete"

    assert alter(cluster, ("cleanup.policy", SUBTRACT, "compact")) is None
    assert cluster.configs(ResourceType.TOPIC, "t")["cleanup.policy"] == "delete"

    assert alter(cluster, ("cleanup.policy", SUBTRACT, "delete")) is None
    assert cluster.configs(ResourceType.TOPIC, "t")["cleanup.policy"] == ""


def test_a_list_of_which_nothing_was_said_is_appended_to_as_the_broker_has_it(cluster):
    broker = replace(BROKER, topic_defaults={**BROKER.topic_defaults, "leader.replication.throttled.replicas": "0:1"})

    assert alter(cluster, ("leader.replication.throttled.replicas", APPEND, "1:1"), broker=broker) is None
    assert alter(cluster, ("log.cleanup.policy", APPEND, "delete"), kind=ResourceType.BROKER, name="1") is None

    assert cluster.configs(ResourceType.TOPIC, "t")["leader.replication.throttled.replicas"] == "0:1,1:1"
    assert cluster.configs(ResourceType.BROKER, "1")["log.cleanup.policy"] == "delete"


def test_a_value_is_kept_as_apache_kafka_shows_it(cluster):
    changes = {"preallocate": " TRUE", "flush.ms": " +07 ", "compression.type": "lz4 "}

    assert alter(cluster, *((name, SET, value) for name, value in changes.items())) is None

    kept = cluster.configs(ResourceType.TOPIC, "t")
    assert (kept["preallocate"], kept["flush.ms"], kept["compression.type"]) == ("true", "7", "lz4")


@pytest.mark.parametrize("known", [topic_configs.CONFIGS, broker_configs.ALTERABLE, group_configs.CONFIGS])
@pytest.mark.parametrize(
    "value",
    ["9" * 5_000, f"1e{'9' * 5_000}", "1e999", f"by_duration:PT{'9' * 5_000}S", "x" * MAX_VALUE_CHARS, "0:1," * 9_000],
)
def test_no_value_is_more_than_a_check_can_take(known, value):
    for name, config in known.items():
        with suppress(InvalidTopicConfigError):
            assert len(topic_configs.check_value(name, config, value)) <= MAX_VALUE_CHARS


def test_a_list_does_not_grow_beyond_what_a_value_can_have(cluster):
    name = "leader.replication.throttled.replicas"
    assert alter(cluster, (name, SET, ",".join(["0:1"] * 8_000))) is None

    refusal = alter(cluster, (name, APPEND, ",".join(f"1:{number}" for number in range(1_000))))

    assert refusal.code is ErrorCode.INVALID_CONFIG
    assert len(cluster.configs(ResourceType.TOPIC, "t")[name]) < MAX_VALUE_CHARS


def test_a_refusal_shows_no_more_than_the_beginning_of_a_long_value(cluster):
    refusal = alter(cluster, ("retention.ms", SET, "x" * 30_000))

    assert refusal.code is ErrorCode.INVALID_CONFIG
    assert len(refusal.message) < 1_000


def test_the_id_of_a_group_has_a_greatest_length(cluster):
    change = ("consumer.session.timeout.ms", SET, "50000")

    assert alter(cluster, change, kind=ResourceType.GROUP, name="g" * MAX_VALUE_CHARS) is None
    refusal = alter(cluster, change, kind=ResourceType.GROUP, name="g" * (MAX_VALUE_CHARS + 1))

    assert refusal.code is ErrorCode.INVALID_REQUEST


def test_what_compaction_would_go_by_has_to_go_together_though_nothing_is_compacted(cluster):
    assert alter(cluster, ("max.compaction.lag.ms", SET, "5")) is None

    refusal = alter(cluster, ("min.compaction.lag.ms", SET, "6"))

    assert refusal.code is ErrorCode.INVALID_CONFIG
    assert refusal.message == ("conflict topic config setting min.compaction.lag.ms (6) > max.compaction.lag.ms (5)")


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (("cleanup.policy", APPEND, "compact"), "delete,compact"),
        (("retention.ms", APPEND, "1"), "Can't APPEND to key retention.ms because its type is not LIST."),
        (("retention.ms", SUBTRACT, "1"), "Can't SUBTRACT"),
        (("retention.ms", SET, "soon"), "soon"),
        (("retention.ms", SET, "-2"), "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        (("retention.ms", SET, "1_000"), "Not a number of type LONG"),
        (("retention.ms", SET, ""), "Not a number of type LONG"),
        (("segment.bytes", SET, str(2**31)), "Not a number of type INT"),
        (("message.timestamp.type", SET, "x"), "String must be one of: CreateTime, LogAppendTime"),
        (("cleanup.policy", SET, "compact"), "there are no compacted topics"),
        (("cleanup.policy", SET, "keep"), "String must be one of: compact, delete"),
        (("compression.type", SET, "none"), "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        (("compression.gzip.level", SET, "0"), "Value must be between 1 and 9 or equal to -1"),
        (("compression.zstd.level", SET, "23"), "Value must be no more than 22"),
        (("min.cleanable.dirty.ratio", SET, "1.5"), "Value must be no more than 1"),
        (("min.cleanable.dirty.ratio", SET, "NaN"), "Not a number of type DOUBLE"),
        (("follower.replication.throttled.replicas", SET, "0-1"), "[partitionId]:[brokerId]"),
        (("min.insync.replicas", SET, "0"), "Value must be at least 1"),
        (("flush.messages", SET, "0"), "Value must be at least 1"),
        (("retention.mss", SET, "1"), "Unknown topic config name: retention.mss"),
        (("log.retention.ms", SET, "1"), "log.retention.ms"),
    ],
)
def test_what_a_topic_does_not_take_is_an_invalid_config_and_changes_nothing(cluster, change, hint):
    before = cluster.configs(ResourceType.TOPIC, "t")

    refusal = alter(cluster, ("retention.bytes", SET, "5"), change)

    assert refusal.code is ErrorCode.INVALID_CONFIG
    assert hint in refusal.message
    assert cluster.configs(ResourceType.TOPIC, "t") == before


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], "duplicate"),
        ([("retention.ms", SET, None)], "Null value not supported for : retention.ms"),
        ([("cleanup.policy", APPEND, None)], "Null value"),
        ([("retention.ms", 9, "1")], "Unknown operation type 9"),
    ],
)
def test_what_makes_no_sense_is_an_invalid_request(cluster, changes, hint):
    refusal = alter(cluster, *changes)

    assert refusal.code is ErrorCode.INVALID_REQUEST
    assert hint in refusal.message


def test_validate_only_changes_nothing_and_finds_what_altering_would(cluster):
    assert alter(cluster, ("retention.ms", SET, "1"), validate_only=True) is None
    assert alter(cluster, ("retention.ms", SET, "x"), validate_only=True).code is ErrorCode.INVALID_CONFIG

    assert cluster.configs(ResourceType.TOPIC, "t")["retention.ms"] == "7"


def test_an_unknown_topic_has_no_settings_to_alter(cluster):
    assert alter(cluster, ("retention.ms", SET, "1"), name="u").code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.configs(ResourceType.TOPIC, "u") == {}


@pytest.mark.parametrize("name", [ALL_BROKERS, str(NODE_ID)])
def test_a_brokers_settings_that_topics_follow_can_be_altered(cluster, name):
    kind = ResourceType.BROKER
    assert alter(cluster, ("log.retention.ms", SET, "1"), ("message.max.bytes", SET, "2"), kind=kind, name=name) is None
    assert cluster.configs(kind, name) == {"log.retention.ms": "1", "message.max.bytes": "2"}

    assert alter(cluster, ("log.retention.ms", DELETE, None), kind=kind, name=name) is None
    assert cluster.configs(kind, name) == {"message.max.bytes": "2"}


@pytest.mark.parametrize("prop", ["listeners", "log.retention.hours"])
def test_a_brokers_other_settings_need_a_restart(cluster, prop):
    refusal = alter(cluster, (prop, SET, "1"), kind=ResourceType.BROKER, name=ALL_BROKERS)

    assert refusal.code is ErrorCode.INVALID_REQUEST
    assert refusal.message == f"Cannot update these configs dynamically: [{prop}]"


@pytest.mark.parametrize("prop", ["listeners", "no.such.setting"])
def test_to_delete_what_is_not_set_changes_nothing(cluster, prop):
    assert alter(cluster, (prop, DELETE, None)) is None
    assert alter(cluster, (prop, DELETE, None), kind=ResourceType.BROKER, name=ALL_BROKERS) is None
    assert cluster.configs(ResourceType.BROKER, ALL_BROKERS) == {}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("log.retention.mss", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("message.max.bytes", SET, "-1"), ErrorCode.INVALID_REQUEST),
        (("message.max.bytes", SET, "x"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_a_broker_does_not_take_is_refused_with_the_code_that_apache_kafka_has_for_it(cluster, change, code):
    assert alter(cluster, change, kind=ResourceType.BROKER, name="1").code is code


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (4, "2", "expected 1, but received 2"),
        (4, "one", "must be an integer"),
        (8, "1", "type 8"),
        (0, "x", "type 0"),
        (2, "", "Default topic resources are not allowed."),
    ],
)
def test_resources_that_are_not_here_are_refused(cluster, kind, name, hint):
    refusal = alter(cluster, kind=kind, name=name)

    assert refusal.code is ErrorCode.INVALID_REQUEST
    assert hint in refusal.message


def test_a_name_that_no_topic_can_have_is_told_from_one_that_none_has(cluster):
    assert alter(cluster, ("retention.ms", SET, "1"), name="bad name").code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"remote.storage.enable": "true", "local.retention.ms": "8"}, "must not be more than retention.ms"),
        ({"remote.storage.enable": "true", "local.retention.ms": "-1"}, "must not be -1 as retention.ms"),
        ({"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.ms": "3"}, "identical"),
        ({"remote.storage.enable": "yes"}, "Expected value to be either true or false"),
        ({"remote.storage.enable": "true", "local.retention.ms": "7"}, None),
        ({"remote.storage.enable": "true", "local.retention.ms": "-2"}, None),
        ({"local.retention.ms": "8"}, None),
    ],
)
def test_settings_of_tiered_storage_have_to_go_together(cluster, settings, message):
    refusal = alter(cluster, *((name, SET, value) for name, value in settings.items()))
    if message is None:
        assert refusal is None
    else:
        assert refusal.code is ErrorCode.INVALID_CONFIG
        assert message in refusal.message


def test_tiered_storage_needs_the_brokers_consent_and_cannot_be_taken_back(cluster):
    disabled = replace(BROKER, tiering_is_enabled=False)
    refusal = alter(cluster, ("remote.storage.enable", SET, "true"), broker=disabled)
    assert "Tiered Storage functionality is disabled in the broker" in refusal.message
    assert alter(cluster, ("remote.storage.enable", SET, "true")) is None
    for change in (("remote.storage.enable", SET, "false"), ("remote.storage.enable", DELETE, None)):
        assert "invalid to disable remote storage" in alter(cluster, change).message


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (9e-4, "9.0E-4"),
        (9_999_999.5, "9999999.5"),
        (1.25e7, "1.25E7"),
        (-1e-5, "-1.0E-5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_a_double_is_shown_as_java_writes_it(number, text):
    assert double_as_text(number) == text
