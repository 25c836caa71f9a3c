"""`coordinator_log=kafka` for tests: nodes whose log is in an Apache Kafka of one broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_kafka.kafka_log import KafkaCoordinatorLog
from diskless_kafka.log_config import KafkaLogSettings


def log_properties(bootstrap: str, prefix: str, **further: Any) -> dict[str, Any]:
    """Properties of a log on a Kafka of one broker, as patient as a busy machine needs it."""
    return {
        "bootstrap.servers": bootstrap,
        "topic.prefix": prefix,
        "topic.replication.factor": 1,
        "topic.max.message.bytes": 2 << 20,
        "allow.unsafe": True,
        "append.timeout.ms": 25_000,
        "initialization.timeout.ms": 60_000,
        "common.client.options": json.dumps({"retry.backoff.ms": 10, "reconnect.backoff.max.ms": 200}),
        **{name.replace("_", "."): value for name, value in further.items()},
    }


def kafka_log(properties: dict[str, Any], folder: Path, node_id: int = 1) -> KafkaCoordinatorLog:
    """The log as one node has it, not started. What a node remembers is below `folder`."""
    data_dir = folder / f"node-{node_id}"
    context = PluginContext(node_id=node_id, data_dir=data_dir, log_dir=folder, clock=SystemClock())
    return KafkaCoordinatorLog(context, KafkaLogSettings.model_validate(properties))
