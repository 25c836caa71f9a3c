"""`remote_log_metadata=kafka` for tests: nodes that share a metadata topic of the session's Apache Kafka."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_kafka.config import RemoteLogMetadataSettings
from diskless_kafka.plugin import diskless_remote_log_metadatas
from diskless_kafka.remote_log_metadata import KafkaRemoteLogMetadata

PARTITIONS = 3

_numbers = itertools.count(1)


def topic_settings(bootstrap: str, topic: str, **further: Any) -> RemoteLogMetadataSettings:
    """Settings for a topic of few partitions on a Kafka of one broker, as patient as a busy machine needs it."""
    options = {
        "socket.timeout.ms": 20_000,
        "retry.backoff.ms": 10,
        "reconnect.backoff.max.ms": 200,
    }
    settings = {
        "bootstrap_servers": bootstrap,
        "topic_name": topic,
        "topic_num_partitions": PARTITIONS,
        "topic_replication_factor": 1,
        "topic_min_isr": 1,
        "consume_wait_ms": 60_000,
        "initialization_attempt_timeout_ms": 60_000,
        "common_client_options": json.dumps(options),
        "producer_options": json.dumps({"delivery.timeout.ms": 30_000}),
    }
    return RemoteLogMetadataSettings(**{**settings, **further})


def node(settings: RemoteLogMetadataSettings, data_dir: Path, node_id: int | None = None) -> KafkaRemoteLogMetadata:
    """The metadata as one node has it, not started."""
    context = PluginContext(
        node_id=next(_numbers) if node_id is None else node_id,
        data_dir=data_dir,
        log_dir=data_dir.parent,
        clock=SystemClock(),
    )
    (plugin,) = diskless_remote_log_metadatas()
    made = plugin.factory(context, settings)
    assert isinstance(made, KafkaRemoteLogMetadata)
    return made
