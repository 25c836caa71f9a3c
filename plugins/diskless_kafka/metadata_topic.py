"""The topic of remote segments in an Apache Kafka: there, and as it has to be. All of it blocks."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code

from diskless_kafka.config import RemoteLogMetadataSettings


class TopicMismatchError(Exception):
    """The topic is there, but not as configured; the message says what to do."""


class Bounds(NamedTuple):
    """The first offset of a partition, and the one behind its last record."""

    start: int
    end: int


def ensure_topic(admin: Any, settings: RemoteLogMetadataSettings) -> uuid.UUID:
    """Create the topic if it is missing, else check it. Returns its id.

    Raises:
        TopicMismatchError: it has other partitions or another cleanup policy than it has to have.
        KafkaError: no answer, or a refusal.
    """
    found = _described(admin, settings.topic_name)
    if found is None:
        _create(admin, settings)
        admin.wait_for_topics([settings.topic_name])
        found = _described(admin, settings.topic_name)
    if found is None:
        raise UnknownTopicOrPartitionError(settings.topic_name)
    count = len(found["partitions"])
    if count != settings.topic_num_partitions:
        raise TopicMismatchError(
            f"the topic {settings.topic_name} has {count} partitions and not {settings.topic_num_partitions}: set "
            f"remote_log_metadata.kafka.topic.num.partitions={count}, as all brokers that use it must have it"
        )
    policy = _cleanup_policy(admin, settings.topic_name)
    if policy != "delete":
        raise TopicMismatchError(
            f"the topic {settings.topic_name} has cleanup.policy={policy}, by which events would be lost: set it to "
            "delete"
        )
    return uuid.UUID(str(found["topic_id"]))


def bounds(admin: Any, settings: RemoteLogMetadataSettings) -> dict[int, Bounds]:
    """Where the topic's partitions begin and end now.

    Raises:
        KafkaError: no answer.
    """
    partitions = [TopicPartition(settings.topic_name, number) for number in range(settings.topic_num_partitions)]
    starts, ends = (
        admin.list_partition_offsets(dict.fromkeys(partitions, spec))
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    )
    return {found.partition: Bounds(starts[found].offset, ends[found].offset) for found in partitions}


def end(admin: Any, settings: RemoteLogMetadataSettings, partition: int) -> int:
    """The offset behind the last record of a partition.

    Raises:
        KafkaError: no answer.
    """
    asked = TopicPartition(settings.topic_name, partition)
    found: int = admin.list_partition_offsets({asked: OffsetSpec.LATEST})[asked].offset
    return found


def _described(admin: Any, name: str) -> dict[str, Any] | None:
    found: dict[str, Any] = admin.describe_topics([name])[0]
    error = for_code(found["error_code"])
    if error is UnknownTopicOrPartitionError:
        return None
    if found["error_code"]:
        raise error(name)
    return found


def _create(admin: Any, settings: RemoteLogMetadataSettings) -> None:
    topic = {
        "num_partitions": settings.topic_num_partitions,
        "replication_factor": settings.topic_replication_factor,
        "configs": settings.topic_configs(),
    }
    try:
        admin.create_topics({settings.topic_name: topic})
    except TopicAlreadyExistsError:
        return


def _cleanup_policy(admin: Any, name: str) -> str:
    resource = ConfigResource(ConfigResourceType.TOPIC, name, ["cleanup.policy"])
    configs = admin.describe_configs([resource], config_filter="all")
    policy: str = configs["topic"][name]["cleanup.policy"]["value"]
    return policy
