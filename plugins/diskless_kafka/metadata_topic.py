"""The topic of remote segments in an Apache Kafka: there, and as it has to be. All of it blocks."""

from __future__ import annotations

import threading
import uuid
from typing import NamedTuple

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, TopicDescription
from tenacity import Retrying, retry_if_result, stop_after_delay, stop_any, stop_when_event_set, wait_fixed
from tenacity.nap import sleep_using_event

from diskless_core.plugin import kafka_client
from diskless_core.plugin.kafka_client import KafkaClientError
from diskless_kafka.config import RemoteLogMetadataSettings

_CREATED_WITHIN_S = 30
_POLL_S = 0.05


class TopicMismatchError(Exception):
    """The topic is there, but not as configured; the message says what to do."""


class Bounds(NamedTuple):
    """The first offset of a partition, and the one behind its last record."""

    start: int
    end: int


def ensure_topic(admin: AdminClient, settings: RemoteLogMetadataSettings, closing: threading.Event) -> uuid.UUID:
    """Create the topic if it is missing, else check it. Returns its id.

    Args:
        closing: once it is set, nothing is waited for any more.

    Raises:
        TopicMismatchError: it has other partitions or another cleanup policy than it has to have.
        KafkaClientError: no answer, or a refusal.
    """
    found = kafka_client.describe_topic(admin, settings.topic_name)
    if found is None:
        _create(admin, settings)
        found = _wait_for(admin, settings.topic_name, closing)
    count = len(found.partitions)
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
    return kafka_client.topic_uuid(found)


def _create(admin: AdminClient, settings: RemoteLogMetadataSettings) -> None:
    topic = NewTopic(
        settings.topic_name,
        num_partitions=settings.topic_num_partitions,
        replication_factor=settings.topic_replication_factor,
        config=dict(settings.topic_configs()),
    )
    try:
        kafka_client.answer(admin.create_topics([topic]))
    except KafkaClientError as error:
        if error.code != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _wait_for(admin: AdminClient, name: str, closing: threading.Event) -> TopicDescription:
    waiting = Retrying(
        retry=retry_if_result(lambda found: found is None),
        stop=stop_any(stop_after_delay(_CREATED_WITHIN_S), stop_when_event_set(closing)),
        wait=wait_fixed(_POLL_S),
        sleep=sleep_using_event(closing),
        retry_error_callback=lambda _: None,
    )
    found: TopicDescription | None = waiting(kafka_client.describe_topic, admin, name)
    if found is None:
        raise KafkaClientError(
            f"it has created the topic {name} and does not know it yet",
            code=KafkaError.UNKNOWN_TOPIC_OR_PART,
            retriable=True,
        )
    return found


def _cleanup_policy(admin: AdminClient, name: str) -> str:
    configs = kafka_client.answer(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name)]))
    policy: str = configs["cleanup.policy"].value
    return policy
