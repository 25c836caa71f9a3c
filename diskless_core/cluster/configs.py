"""The settings of topics, groups and brokers as they are now, and their alteration through the cluster shard."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import structlog

from diskless_core.cluster import (
    broker_configs,
    config_changes,
    config_layers,
    group_configs,
    tiering_configs,
    topic_configs,
)
from diskless_core.cluster.broker_configs import MAX_CONNECTIONS
from diskless_core.cluster.config_changes import ALL_BROKERS, Alteration, AlterOperation, BrokerSide
from diskless_core.cluster.config_layers import BrokerLayers, BrokerSettings
from diskless_core.cluster.config_model import ConfigEntry
from diskless_core.cluster.group_configs import BrokerValue
from diskless_core.cluster.membership.tables import BROKERS
from diskless_core.cluster.operations import Refusal
from diskless_core.cluster.records import ResourceType
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.tables import CONFIGS

_log = structlog.get_logger(__name__)


class Configs:
    """What each setting's value is and why, from what this node knows now."""

    def __init__(self, cluster: ClusterShard, settings: BrokerSettings) -> None:
        self._cluster = cluster
        self._settings = settings

    def topic_defaults(self) -> dict[str, str]:
        """The value that each setting has in a topic without one of its own."""
        return config_layers.topic_defaults(self._layers())

    def of_topic(self, name: str) -> Sequence[ConfigEntry]:
        """All settings of a topic."""
        return self.with_own(self._cluster.state.committed(CONFIGS, (int(ResourceType.TOPIC), name)) or {})

    def with_own(self, own: Mapping[str, str]) -> Sequence[ConfigEntry]:
        """All settings of a topic that has these of its own."""
        return list(config_layers.topic_entries(own, self._layers()))

    def of_group(self, group_id: str) -> Sequence[ConfigEntry]:
        """All settings of a group, whether there is one or not."""
        return list(group_configs.entries(self._of_group(group_id), self._layers()))

    def groups(self) -> Sequence[str]:
        """The ids of the groups that have settings of their own."""
        return [str(name) for (kind, name), _ in self._cluster.state.rows(CONFIGS) if kind == ResourceType.GROUP]

    def number_of_group(self, group_id: str, name: str) -> int:
        """The value of a group's setting that is a limited number."""
        return group_configs.in_force(name, self._of_group(group_id), self._group_value())

    def _of_group(self, group_id: str) -> Mapping[str, str]:
        return self._cluster.state.committed(CONFIGS, (int(ResourceType.GROUP), group_id)) or {}

    def _group_value(self) -> BrokerValue:
        return partial(group_configs.broker_value, layers=self._layers())

    def of_broker(self) -> Sequence[ConfigEntry]:
        """All settings of this broker."""
        return list(config_layers.broker_entries(self._layers()))

    def max_connections(self) -> int:
        """How many client connections this broker accepts now."""
        in_force = self._layers().synonyms(MAX_CONNECTIONS)[0].value
        return int(in_force or 0)

    def of_all_brokers(self) -> Sequence[ConfigEntry]:
        """The settings that were altered for every broker."""
        return list(config_layers.default_broker_entries(self._layers()))

    async def alter(self, alteration: Alteration, *, validate_only: bool) -> Refusal | None:
        """Change the settings of a resource, all as asked or none; in force when this returns.

        Raises:
            CoordinatorError: no definite answer.
        """
        refusal = config_changes.check_alteration(alteration, self._brokers())
        if refusal is not None:
            return refusal
        refusal = await self._cluster.submit(
            lambda command: config_changes.alter(command, alteration, self._broker_side(), validate_only=validate_only)
        )
        if refusal is None and not validate_only:
            kind = ResourceType(alteration.resource_type)
            _log.info(
                "settings altered",
                resource_type=kind.name,
                resource=alteration.resource_name,
                settings=[change.name for change in alteration.changes],
            )
            warn_of_no_effect(
                kind,
                alteration.resource_name,
                [change.name for change in alteration.changes if change.operation != AlterOperation.DELETE],
            )
        return refusal

    def check_new_topic(self, own: Mapping[str, str]) -> None:
        """Check that a topic can have these settings of its own, each of which has passed its check, together.

        Raises:
            InvalidTopicConfigError: it cannot.
        """
        broker = self._broker_side()
        topic_configs.check_together({**broker.topic_defaults, **own})
        tiering_configs.check_tiering(
            {**broker.topic_defaults, **own}, was_tiered=False, is_enabled=broker.tiering_is_enabled
        )

    def _brokers(self) -> Collection[int]:
        """The brokers that can have settings of their own."""
        return {self._settings.node_id} | {key[0] for key, _ in self._cluster.state.rows(BROKERS)}

    def _broker_side(self) -> BrokerSide:
        return BrokerSide(
            properties=self._settings.described,
            defaults=self._settings.values(),
            topic_defaults=self.topic_defaults(),
            tiering_is_enabled=self._settings.tiering_is_enabled,
            group_value=self._group_value(),
        )

    def _layers(self) -> BrokerLayers:
        state = self._cluster.state
        return BrokerLayers(
            settings=self._settings,
            dynamic=state.committed(CONFIGS, (int(ResourceType.BROKER), str(self._settings.node_id))) or {},
            dynamic_default=state.committed(CONFIGS, (int(ResourceType.BROKER), ALL_BROKERS)) or {},
        )


_WITHOUT_EFFECT: Mapping[ResourceType, Callable[[Iterable[str]], Sequence[str]]] = {
    ResourceType.TOPIC: topic_configs.without_effect,
    ResourceType.BROKER: broker_configs.without_effect,
    ResourceType.GROUP: group_configs.without_effect,
}


def warn_of_no_effect(resource_type: ResourceType, name: str, settings: Iterable[str]) -> None:
    """Say in the log which of the settings that were set change nothing here, if any."""
    idle = _WITHOUT_EFFECT[resource_type](settings)
    if idle:
        _log.warning(
            "settings were set that have no effect here; they are kept and shown",
            resource_type=resource_type.name,
            resource=name,
            settings=idle,
        )
