"""Which of the values that were given for a setting is in force: of a broker, and of a topic that follows it. Pure.

A broker's own dynamic value goes before the cluster's, both before what it was started with, and that before the
default. A topic's own value goes before all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from diskless_core.cluster import broker_configs, topic_configs
from diskless_core.cluster.broker_configs import ALTERABLE
from diskless_core.cluster.config_model import ConfigEntry, ConfigSource, ConfigType, Synonym
from diskless_core.cluster.topic_configs import TopicConfig
from diskless_core.config.broker import BrokerConfig
from diskless_core.config.describe import SettingDescription, configured, describe_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What a broker was started with.

    Attributes:
        described: all its settings by property, with their defaults, and those of Kafka that mean nothing here.
        static: those that were configured; None where the value is secret.
        tiering_is_enabled: `remote.log.storage.system.enable`.
    """

    node_id: int
    described: Mapping[str, SettingDescription]
    static: Mapping[str, str | None]
    tiering_is_enabled: bool = False

    @classmethod
    def of(cls, config: BrokerConfig) -> BrokerSettings:
        own = {setting.name: setting for setting in describe_settings(BrokerConfig)}
        return cls(
            node_id=config.node_id,
            described=own | {setting.name: setting for setting in broker_configs.only_in_kafka(own)},
            static=configured(config),
            tiering_is_enabled=config.remote_log_storage_system_enable,
        )

    def values(self) -> Mapping[str, str]:
        """What each setting was started with, or its default, where it is anything and no secret."""
        given = {name: self.static.get(name, setting.default) for name, setting in self.described.items()}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLayers:
    """What was started with, and what has been altered since: for this broker alone, and for all."""

    settings: BrokerSettings
    dynamic: Mapping[str, str]
    dynamic_default: Mapping[str, str]

    def synonyms(self, *names: str) -> tuple[Synonym, ...]:
        """All values of a setting that goes by several names, the one in force first; None of the last is a value."""
        defaults = {name: self.settings.described[name].default for name in names}
        layers: tuple[tuple[ConfigSource, Mapping[str, str | None]], ...] = (
            (ConfigSource.DYNAMIC_BROKER, {**self.dynamic}),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, {**self.dynamic_default}),
            (ConfigSource.STATIC_BROKER, self.settings.static),
            (ConfigSource.DEFAULT, {name: value for name, value in defaults.items() if value is not None}),
        )
        return tuple(Synonym(name, layer[name], source) for source, layer in layers for name in names if name in layer)


def topic_defaults(layers: BrokerLayers) -> dict[str, str]:
    """The value that each setting has in a topic without one of its own."""
    return {name: _inherited(config, layers)[0] for name, config in topic_configs.CONFIGS.items()}


def _inherited(config: TopicConfig, layers: BrokerLayers) -> tuple[str, tuple[Synonym, ...]]:
    units = {synonym.name: synonym for synonym in config.follows}
    synonyms = layers.synonyms(*units)
    for synonym in synonyms:
        if synonym.value is not None:
            return units[synonym.name].in_topic_unit(synonym.value), synonyms
    return config.default, synonyms


def topic_entries(own: Mapping[str, str], layers: BrokerLayers) -> Iterator[ConfigEntry]:
    """All settings of a topic that has these of its own, by name."""
    for name, config in topic_configs.CONFIGS.items():
        value, synonyms = _inherited(config, layers)
        if not config.follows:
            synonyms = (Synonym(name, config.default, ConfigSource.DEFAULT),)
        if name in own:
            value = own[name]
            synonyms = (Synonym(name, value, ConfigSource.DYNAMIC_TOPIC), *synonyms)
        yield ConfigEntry(
            name=name,
            value=value,
            type=config.type,
            source=synonyms[0].source,
            read_only=False,
            secret=False,
            synonyms=synonyms,
            help=config.help,
        )


def broker_entries(layers: BrokerLayers) -> Iterator[ConfigEntry]:
    """All settings of this broker."""
    for name in layers.settings.described:
        yield _broker_entry(name, layers.settings, layers.synonyms(name))


def default_broker_entries(layers: BrokerLayers) -> Iterator[ConfigEntry]:
    """The settings that were altered for all brokers."""
    for name, value in sorted(layers.dynamic_default.items()):
        synonym = Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)
        yield _broker_entry(name, layers.settings, (synonym,))


def _broker_entry(name: str, settings: BrokerSettings, synonyms: Iterable[Synonym]) -> ConfigEntry:
    described = settings.described[name]
    shown = tuple(synonym._replace(value=None) if described.secret else synonym for synonym in synonyms)
    return ConfigEntry(
        name=name,
        value=shown[0].value if shown else None,
        type=ConfigType[described.type.upper()],
        source=shown[0].source if shown else ConfigSource.DEFAULT,
        read_only=name not in ALTERABLE,
        secret=described.secret,
        synonyms=shown,
        help=described.help,
    )
