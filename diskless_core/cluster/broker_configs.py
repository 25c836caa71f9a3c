"""The settings of a broker that can be altered while it runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from diskless_core.cluster import topic_configs
from diskless_core.cluster.config_model import ConfigType
from diskless_core.cluster.topic_configs import TopicConfig

MAX_CONNECTIONS = "max.connections"

ALTERABLE: Mapping[str, TopicConfig] = {
    **topic_configs.FOLLOWED,
    MAX_CONNECTIONS: TopicConfig(
        type=ConfigType.INT,
        help="How many client connections the broker accepts at the same time.",
        check=topic_configs.number(1, topic_configs.MAX_INT),
    ),
}
"""Those that topics follow, and those that the broker itself asks for whenever it needs them."""
