"""What a coordinator log that brokers share asks of a broker's configuration."""

from __future__ import annotations

from diskless_core.config.broker import BrokerConfig
from diskless_core.plugin.coordinator_log import CoordinatorLog

LISTENER_PROPERTY = "inter.broker.listener.name"


def missing_listener(log: CoordinatorLog, config: BrokerConfig) -> str | None:
    """Why this broker could not be one of several: they have no listener to reach it by. None where all is well."""
    if not log.is_shared or config.inter_broker_listener_name is not None:
        return None
    return (
        "the coordinator log is one that brokers share, and other brokers cannot reach this one: set "
        f"{LISTENER_PROPERTY} to the name of a listener for them"
    )
