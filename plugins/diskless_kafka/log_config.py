"""Settings of the coordinator log in an Apache Kafka: `coordinator_log.kafka.<setting>`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from diskless_kafka.config import UNLIMITED, KafkaClientSettings

SAFE_REPLICATION_FACTOR = 3

ENTRY_OVERHEAD_BYTES = 1024
"""What Kafka's record batch, the key and the message's frame may take beside the entry: less than 150 in truth."""


EXACT_TOPIC_CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.bytes": str(UNLIMITED),
    "retention.ms": str(UNLIMITED),
    "unclean.leader.election.enable": "false",
}
"""What every topic of the log has to be like, whoever created it."""


class KafkaLogSettings(KafkaClientSettings):
    """How the log connects, what its topics have to be like, and how long it waits."""

    topic_prefix: str = Field(
        default="__diskless_",
        pattern=r"^[a-zA-Z0-9._-]{1,200}$",
        description="What the names of the log's topics begin with, and the names of the consumer groups that nominate "
        "leaders. Each Diskless cluster on one Apache Kafka needs its own.",
    )
    topic_replication_factor: int = Field(
        default=SAFE_REPLICATION_FACTOR,
        ge=1,
        le=32767,
        description="Replication factor of the topics, where they have to be created. Below 3 the broker starts only "
        "with allow.unsafe=true.",
    )
    topic_max_message_bytes: int = Field(
        default=16 << 20,
        ge=(1 << 20) + ENTRY_OVERHEAD_BYTES,
        le=512 << 20,
        description="Size in bytes of the largest message: max.message.bytes of the topics, which must have at least "
        "as much. A larger entry is refused.",
    )
    allow_unsafe: bool = Field(
        default=False,
        description="Whether topics may have fewer than 3 replicas. Acknowledged commits are then lost with the disk "
        "of a single Kafka broker: for tests only.",
    )
    append_timeout_ms: int = Field(
        default=20_000,
        ge=100,
        le=29_000,
        description="How many milliseconds an append may take until it is read back from the topic.",
    )
    session_timeout_ms: int = Field(
        default=6_000,
        ge=100,
        description="After how many milliseconds without a sign of life from the nominated leader another one is "
        "nominated. The Apache Kafka must allow it: see its group.min.session.timeout.ms.",
    )
    initialization_timeout_ms: int = Field(
        default=30_000,
        gt=0,
        description="How many milliseconds a broker that starts waits for an answer of the Apache Kafka.",
    )
    tail_bytes: int = Field(
        default=8 << 20,
        ge=0,
        description="Bytes of the newest entries that each coordinator keeps in memory, at the least, for readers at "
        "the end of the log; at most twice as much is held. They are freed ten seconds after the last reader has left.",
    )

    @model_validator(mode="after")
    def _safe(self) -> KafkaLogSettings:
        if self.topic_replication_factor < SAFE_REPLICATION_FACTOR and not self.allow_unsafe:
            raise ValueError(
                f"topic.replication.factor={self.topic_replication_factor} loses acknowledged commits with a disk: set "
                f"{SAFE_REPLICATION_FACTOR} or more, or, for tests only, allow.unsafe=true"
            )
        return self

    @property
    def max_entry_bytes(self) -> int:
        """The largest entry that fits into a message."""
        return self.topic_max_message_bytes - ENTRY_OVERHEAD_BYTES

    def topic_configs(self) -> Mapping[str, str]:
        """What topics are created with."""
        return {
            **EXACT_TOPIC_CONFIGS,
            "max.message.bytes": str(self.topic_max_message_bytes),
            "min.insync.replicas": str(min_insync_replicas(self.topic_replication_factor)),
        }

    def options(self, node_id: int, *kinds: Any, **further: Any) -> dict[str, Any]:
        """Settings of a client of this node, by librdkafka's names with underscores; the operator's take precedence."""
        own = {"client_id": f"diskless-{node_id}", "reconnect_backoff_max_ms": 1_000, **further}
        return {name.replace("_", "."): value for name, value in own.items()} | self.client_options(*kinds)


def min_insync_replicas(replication_factor: int) -> int:
    """How many replicas an acknowledged entry has to have: with two, one disk may be lost."""
    return min(2, replication_factor)
