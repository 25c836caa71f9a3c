"""Which value of a setting is in force, and what else it could be."""

from __future__ import annotations

import pytest

from diskless_core.cluster.broker_configs import ALTERABLE
from diskless_core.cluster.config_layers import (
    BrokerLayers,
    BrokerSettings,
    broker_entries,
    default_broker_entries,
    topic_defaults,
    topic_entries,
)
from diskless_core.cluster.config_model import ConfigSource, ConfigType, Synonym
from diskless_core.cluster.topic_configs import CONFIGS
from diskless_core.config.broker import BrokerConfig
from diskless_core.config.describe import SettingDescription

WEEK_MS = str(7 * 24 * 3_600_000)


def layers(static=None, dynamic=None, dynamic_default=None):
    config = BrokerConfig.model_validate(static or {})
    return BrokerLayers(
        settings=BrokerSettings.of(config), dynamic=dynamic or {}, dynamic_default=dynamic_default or {}
    )


def test_every_setting_that_topics_follow_exists_and_has_a_default():
    broker = layers()

    for config in CONFIGS.values():
        assert all(synonym.name in broker.settings.described for synonym in config.follows)
    for name, value in topic_defaults(broker).items():
        CONFIGS[name].check(value)


def test_every_default_of_a_setting_that_can_be_altered_is_one_that_it_takes():
    for name, config in ALTERABLE.items():
        described = layers().settings.described[name]
        if described.default is not None:
            config.check(described.default)
        assert ConfigType[described.type.upper()] is config.type


@pytest.mark.parametrize(
    ("static", "dynamic", "dynamic_default", "expected"),
    [
        ({}, {}, {}, WEEK_MS),
        ({"log.retention.hours": "2"}, {}, {}, "7200000"),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, {}, {}, "180000"),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, {}, {}, "4"),
        ({"log.retention.hours": "-1"}, {}, {}, "-1"),
        ({"log.retention.ms": ""}, {}, {}, WEEK_MS),
        ({"log.retention.ms": "4"}, {}, {"log.retention.ms": "5"}, "5"),
        ({"log.retention.ms": "4"}, {"log.retention.ms": "6"}, {"log.retention.ms": "5"}, "6"),
    ],
)
def test_the_retention_of_topics_follows_the_finest_and_latest_setting(static, dynamic, dynamic_default, expected):
    broker = layers(static, dynamic, dynamic_default)

    assert topic_defaults(broker)["retention.ms"] == expected
    if not dynamic and not dynamic_default:
        assert int(expected) == BrokerConfig.model_validate(static).retention_ms


def test_a_topics_setting_shows_all_that_it_goes_before():
    broker = layers({"message.max.bytes": "20"}, {"message.max.bytes": "40"}, {"message.max.bytes": "30"})

    entries = {entry.name: entry for entry in topic_entries({"max.message.bytes": "50"}, broker)}

    shown = entries["max.message.bytes"]
    assert (shown.value, shown.source, shown.read_only) == ("50", ConfigSource.DYNAMIC_TOPIC, False)
    assert list(shown.synonyms) == [
        Synonym("max.message.bytes", "50", ConfigSource.DYNAMIC_TOPIC),
        Synonym("message.max.bytes", "40", ConfigSource.DYNAMIC_BROKER),
        Synonym("message.max.bytes", "30", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        Synonym("message.max.bytes", "20", ConfigSource.STATIC_BROKER),
        Synonym("message.max.bytes", "1048588", ConfigSource.DEFAULT),
    ]
    assert entries["cleanup.policy"].source is ConfigSource.DEFAULT
    assert entries["retention.ms"].synonyms == (Synonym("log.retention.hours", "168", ConfigSource.DEFAULT),)


def test_a_brokers_settings_are_all_shown_and_some_can_be_altered():
    entries = {entry.name: entry for entry in broker_entries(layers({"num.partitions": "3"}))}

    assert {field.alias for field in BrokerConfig.model_fields.values()} < set(entries)
    assert {name for name, entry in entries.items() if not entry.read_only} == set(ALTERABLE)
    partitions = entries["num.partitions"]
    assert (partitions.value, partitions.source, partitions.type) == ("3", ConfigSource.STATIC_BROKER, ConfigType.INT)
    assert (entries["broker.rack"].value, entries["broker.rack"].source) == (None, ConfigSource.DEFAULT)
    assert all(entry.help for entry in entries.values())


def test_the_settings_of_all_brokers_are_those_that_were_altered():
    [entry] = default_broker_entries(layers({"num.partitions": "3"}, {}, {"log.retention.ms": "5"}))

    assert (entry.name, entry.value, entry.source) == ("log.retention.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER)


def test_a_secret_is_never_shown():
    described = SettingDescription(
        name="key.password",
        type="password",
        required=False,
        default=None,
        valid_values="",
        secret=True,
        environment="X",
        help="A secret.",
    )
    settings = BrokerSettings(node_id=1, described={"key.password": described}, static={"key.password": "hunter2"})

    [entry] = broker_entries(BrokerLayers(settings=settings, dynamic={}, dynamic_default={}))

    assert (entry.secret, entry.value, entry.type) == (True, None, ConfigType.PASSWORD)
    assert "hunter2" not in repr(entry)
    assert entry.source is ConfigSource.STATIC_BROKER
