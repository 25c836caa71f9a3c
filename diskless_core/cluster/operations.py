"""The decisions of the cluster shard. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diskless_core.cluster.machine import CLUSTER, CLUSTER_ID, NEXT_PRODUCER_ID, ONLY_ROW, TOPIC_IDS, TOPICS
from diskless_core.cluster.records import (
    ClusterNamed,
    ClusterRecord,
    ConfigSet,
    PartitionPlaced,
    ProducerIdsTaken,
    ResourceType,
    TopicCreated,
    TopicRemoved,
)
from diskless_core.coordinator.machine import Command
from diskless_core.protocol.errors import ErrorCode

ClusterCommand = Command[ClusterRecord]

PRODUCER_ID_BLOCK = 1000
MAX_TOPIC_NAME = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create: its id is drawn by the caller, `shards` gives each partition's diskless shard."""

    topic_id: bytes
    name: str
    shards: Sequence[int]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why something was not done: Kafka's error code, and what a person should know."""

    code: ErrorCode
    message: str


def name_cluster(command: ClusterCommand, wanted: str) -> str:
    """The cluster's id: the one that it has, or `wanted` from now on."""
    known = command.get(CLUSTER, CLUSTER_ID)
    if known is not None:
        return known
    command.emit(ClusterNamed(cluster_id=wanted))
    return wanted


def check_topic_name(name: str) -> Refusal | None:
    """Kafka's rules for the names of topics."""
    if not name:
        problem = "the empty string is not allowed"
    elif name in {".", ".."}:
        problem = "'.' and '..' are not allowed"
    elif len(name) > MAX_TOPIC_NAME:
        problem = f"it is longer than {MAX_TOPIC_NAME} characters"
    elif not _LEGAL_NAME.fullmatch(name):
        problem = "only ASCII letters, digits, '.', '_' and '-' are allowed"
    else:
        return None
    return Refusal(code=ErrorCode.INVALID_TOPIC_EXCEPTION, message=f"Topic name {name!r} is invalid: {problem}.")


def create_topic(command: ClusterCommand, topic: NewTopic) -> Refusal | None:
    """Create a topic with all its partitions and settings, or nothing."""
    refusal = check_new_topic(command, topic.name)
    if refusal is not None:
        return refusal
    command.emit(TopicCreated(topic_id=topic.topic_id, name=topic.name))
    for partition, shard in enumerate(topic.shards):
        command.emit(PartitionPlaced(topic_id=topic.topic_id, partition=partition, shard=shard))
    for name, value in topic.configs.items():
        command.emit(ConfigSet(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value))
    return None


def check_new_topic(command: ClusterCommand, name: str) -> Refusal | None:
    """Whether the name is free, also in the sense in which Kafka's metrics mix up '.' and '_'."""
    if command.get(TOPIC_IDS, (name,)) is not None:
        return Refusal(code=ErrorCode.TOPIC_ALREADY_EXISTS, message=f"Topic '{name}' already exists.")
    if "." in name or "_" in name:
        for (other,) in command.tx.keys(TOPIC_IDS, ()):
            if str(other).replace(".", "_") == name.replace(".", "_"):
                return Refusal(
                    code=ErrorCode.INVALID_TOPIC_EXCEPTION,
                    message=f"Topic '{name}' collides with existing topic: {other}",
                )
    return None


def remove_topic(command: ClusterCommand, topic_id: bytes) -> str | None:
    """Remove a topic; its name, or None when there is none of this id."""
    topic = command.get(TOPICS, (topic_id,))
    if topic is None:
        return None
    command.emit(TopicRemoved(topic_id=topic_id))
    return topic.name


def take_producer_ids(command: ClusterCommand, broker_id: int) -> range:
    """A block of producer ids that no broker has had and none will have."""
    first = command.get(NEXT_PRODUCER_ID, ONLY_ROW) or 0
    command.emit(ProducerIdsTaken(broker_id=broker_id, next_producer_id=first + PRODUCER_ID_BLOCK))
    return range(first, first + PRODUCER_ID_BLOCK)
