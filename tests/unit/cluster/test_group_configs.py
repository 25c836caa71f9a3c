"""The settings of groups: what may be set, and what is in force."""

from __future__ import annotations

from functools import partial

import pytest

from diskless_core.cluster import group_configs
from diskless_core.cluster.config_changes import AlterOperation
from diskless_core.cluster.config_layers import BrokerLayers, BrokerSettings
from diskless_core.cluster.config_model import ConfigSource
from diskless_core.cluster.config_values import InvalidTopicConfigError
from diskless_core.cluster.group_configs import BROKER_DEFAULTS, CONFIGS, HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from diskless_core.cluster.records import ResourceType
from diskless_core.cluster.tables import CONFIGS as CONFIGS_TABLE
from diskless_core.config.broker import BrokerConfig
from diskless_core.protocol.errors import ErrorCode
from tests.unit.cluster.cluster_state import ClusterState
from tests.unit.cluster.test_config_changes import alter

SET, DELETE, _, _ = AlterOperation


def layers(**static):
    settings = BrokerSettings.of(BrokerConfig.model_validate(static))
    return BrokerLayers(settings=settings, dynamic={}, dynamic_default={})


def values_of(**static):
    return partial(group_configs.broker_value, layers=layers(**static))


@pytest.fixture
def cluster():
    return ClusterState()


def alter_group(cluster, *changes, **options):
    return alter(cluster, *changes, kind=ResourceType.GROUP, name="g", **options)


def test_what_a_broker_has_itself_has_the_defaults_that_are_assumed_of_others():
    described = layers().settings.described

    assert {name: described[name].default for name in BROKER_DEFAULTS if name in described} == {
        name: str(value) for name, value in BROKER_DEFAULTS.items() if name in described
    }
    for name, config in CONFIGS.items():
        config.check(config.default)
        assert all(synonym.name == f"group.{name}" for synonym in config.follows)
    group_configs.check_together({name: config.default for name, config in CONFIGS.items()}, values_of())


def test_settings_of_a_group_are_kept_until_they_are_deleted(cluster):
    isolated = ("share.isolation.level", SET, "read_committed")
    assert alter_group(cluster, (SESSION_TIMEOUT, SET, "50000"), isolated) is None
    assert cluster.configs(ResourceType.GROUP, "g") == {
        SESSION_TIMEOUT: "50000",
        "share.isolation.level": "read_committed",
    }

    assert alter_group(cluster, (HEARTBEAT_INTERVAL, SET, "6000"), replace=True) is None
    assert cluster.configs(ResourceType.GROUP, "g") == {HEARTBEAT_INTERVAL: "6000"}
    assert alter_group(cluster, (HEARTBEAT_INTERVAL, DELETE, None)) is None
    assert not list(cluster.state.rows(CONFIGS_TABLE))


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        (SESSION_TIMEOUT, "soon", "Not a number of type INT"),
        (SESSION_TIMEOUT, "44999", "greater than or equal to group.consumer.min.session.timeout.ms, which is 45000"),
        (SESSION_TIMEOUT, "60001", "less than or equal to group.consumer.max.session.timeout.ms, which is 60000"),
        ("streams.num.standby.replicas", "3", "group.streams.max.standby.replicas"),
        ("share.auto.offset.reset", "by_duration:-PT1S", "by_duration:<PnDTnHnMn.nS>"),
        ("consumer.session.timeout", "1", "Unknown group config name: consumer.session.timeout"),
    ],
)
def test_what_a_group_does_not_take_is_an_invalid_config(cluster, name, value, hint):
    refusal = alter_group(cluster, ("consumer.assignment.interval.ms", SET, "5"), (name, SET, value))

    assert refusal.code is ErrorCode.INVALID_CONFIG
    assert hint in refusal.message
    assert cluster.configs(ResourceType.GROUP, "g") == {}


def test_a_session_has_to_be_longer_than_the_heartbeat_interval_also_where_one_is_the_brokers():
    broker = values_of(group_consumer_min_session_timeout_ms=100)

    for own in ({SESSION_TIMEOUT: "5000"}, {SESSION_TIMEOUT: "6000", HEARTBEAT_INTERVAL: "6000"}):
        with pytest.raises(InvalidTopicConfigError, match="must be greater than"):
            group_configs.check_together(own, broker)
    group_configs.check_together({SESSION_TIMEOUT: "5001"}, broker)


@pytest.mark.parametrize(
    ("own", "static", "expected"),
    [
        ({}, {"group_consumer_session_timeout_ms": 46_000}, 46_000),
        ({SESSION_TIMEOUT: " 50000"}, {}, 50_000),
        ({SESSION_TIMEOUT: "50000"}, {"group_consumer_max_session_timeout_ms": 47_000}, 47_000),
        (
            {SESSION_TIMEOUT: "46000"},
            {"group_consumer_min_session_timeout_ms": 50_000, "group_consumer_session_timeout_ms": 50_000},
            50_000,
        ),
    ],
)
def test_a_groups_value_is_in_force_within_what_the_broker_allows_now(own, static, expected):
    assert group_configs.in_force(SESSION_TIMEOUT, own, values_of(**static)) == expected


def test_a_setting_is_shown_as_it_is_understood_with_what_it_would_be_otherwise():
    shown = {entry.name: entry for entry in group_configs.entries({SESSION_TIMEOUT: " +50000"}, layers())}

    assert shown.keys() == CONFIGS.keys()
    assert [(one.name, one.value, one.source) for one in shown[SESSION_TIMEOUT].synonyms] == [
        (SESSION_TIMEOUT, "50000", ConfigSource.DYNAMIC_GROUP),
        ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT),
    ]
    assert (shown["share.isolation.level"].value, shown["share.isolation.level"].source) == (
        "read_uncommitted",
        ConfigSource.DEFAULT,
    )
