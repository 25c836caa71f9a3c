"""Topics and groups of a trial's own, in the configured Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.plugin.place_apart import PlaceApart
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_kafka.config import KafkaClientSettings, RemoteLogMetadataSettings
from diskless_kafka.log_config import KafkaLogSettings

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

PARTITIONS = 3
"""What is enough for the metadata of a trial."""

_REACH_S = 20.0
_LEAVE_S = 40.0
"""A member that left without a word is in its group until its session has ended."""


def log_apart(settings: KafkaLogSettings, name: str) -> PlaceApart:
    """Topics with a prefix of their own. The groups that nominate leaders have it too."""
    prefix = f"{name}-"
    return PlaceApart(
        settings=settings.model_copy(update={"topic_prefix": prefix}),
        where=f"topics and groups of {', '.join(settings.bootstrap_servers)} whose names begin with {prefix}",
        remove=_removal(settings, prefix, CoordinatorLogError),
    )


def metadata_apart(settings: RemoteLogMetadataSettings, name: str) -> PlaceApart:
    """A topic of its own."""
    partitions = min(PARTITIONS, settings.topic_num_partitions)
    return PlaceApart(
        settings=settings.model_copy(update={"topic_name": name, "topic_num_partitions": partitions}),
        where=f"the topic {name} of {', '.join(settings.bootstrap_servers)}",
        remove=_removal(settings, name, RemoteLogMetadataError),
    )


def _removal(settings: KafkaClientSettings, prefix: str, error: type[Exception]) -> Callable[[], Awaitable[None]]:
    return partial(asyncio.to_thread, _remove, settings, prefix, error)


def _remove(settings: KafkaClientSettings, prefix: str, error: type[Exception]) -> None:
    from diskless_core.plugin import kafka_client

    options = settings.client_options(settings.admin_options)
    try:
        with kafka_client.open_admin(options, _REACH_S) as admin, kafka_client.errors():
            topics = [name for name in admin.list_topics(timeout=_REACH_S).topics if name.startswith(prefix)]
            found = admin.list_consumer_groups(request_timeout=_REACH_S).result().valid
            groups = [group.group_id for group in found if group.group_id.startswith(prefix)]
            for answer in (admin.delete_topics(topics) if topics else {}).values():
                answer.result()
            for group in groups:
                _delete_group(admin, group)
    except (kafka_client.KafkaClientError, OSError) as failure:
        raise error(f"what begins with {prefix} cannot be deleted: {failure}") from failure


def _delete_group(admin: AdminClient, group: str) -> None:
    from diskless_core.plugin import kafka_client

    def delete() -> None:
        kafka_client.answer(admin.delete_consumer_groups([group]))

    refused = retry_if_exception_type(kafka_client.KafkaClientError)
    Retrying(retry=refused, stop=stop_after_delay(_LEAVE_S), wait=wait_fixed(0.5), reraise=True)(delete)
