"""The settings of topics and brokers as they are now, and their alteration through the cluster shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from diskless_core.cluster import config_changes, config_layers, tiering_configs
from diskless_core.cluster.broker_configs import MAX_CONNECTIONS
from diskless_core.cluster.config_changes import ALL_BROKERS, Alteration, BrokerSide
from diskless_core.cluster.config_layers import BrokerLayers, BrokerSettings
from diskless_core.cluster.config_model import ConfigEntry
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
        refusal = config_changes.check_alteration(alteration, self._settings.node_id)
        if refusal is not None:
            return refusal
        refusal = await self._cluster.submit(
            lambda command: config_changes.alter(command, alteration, self._broker_side(), validate_only=validate_only)
        )
        if refusal is None and not validate_only:
            _log.info(
                "settings altered",
                resource_type=ResourceType(alteration.resource_type).name,
                resource=alteration.resource_name,
                settings=[change.name for change in alteration.changes],
            )
        return refusal

    def check_new_topic(self, own: Mapping[str, str]) -> None:
        """Check that a topic can have these settings of its own, each of which has passed its check, together.

        Raises:
            InvalidTopicConfigError: it cannot.
        """
        broker = self._broker_side()
        tiering_configs.check_tiering(
            {**broker.topic_defaults, **own}, was_tiered=False, is_enabled=broker.tiering_is_enabled
        )

    def _broker_side(self) -> BrokerSide:
        return BrokerSide(
            properties=self._settings.described,
            topic_defaults=self.topic_defaults(),
            tiering_is_enabled=self._settings.tiering_is_enabled,
        )

    def _layers(self) -> BrokerLayers:
        state = self._cluster.state
        return BrokerLayers(
            settings=self._settings,
            dynamic=state.committed(CONFIGS, (int(ResourceType.BROKER), str(self._settings.node_id))) or {},
            dynamic_default=state.committed(CONFIGS, (int(ResourceType.BROKER), ALL_BROKERS)) or {},
        )
