"""What commands ask of a Kafka cluster, or of Diskless, by Kafka's protocol. All calls block."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import KafkaError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from diskless_core.cli.remote_log_topic import RemoteLogTopicError, read_records
from diskless_core.remote_log import records
from diskless_core.remote_log.metadata import RemoteLogMetadataEvent, TopicIdPartition, partition_of
from diskless_core.remote_log.records import CorruptRecordError

LATEST = -1
EARLIEST = -2
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
"""Kafka's names for positions in a log, for `offsets`."""

TIMEOUT_S = 60
CONNECT_TIMEOUT_MS = 10_000
_RETRY_S = 0.5
_CLIENT_ID = "diskless"


class KafkaClusterError(Exception):
    """The cluster could not be asked, or did not do what was asked; the message says what to do."""


class Leader(NamedTuple):
    """Who leads a partition."""

    broker_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic; `leaders` are broker id and leader epoch by partition."""

    name: str
    topic_id: uuid.UUID
    leaders: Mapping[int, Leader]

    def partition(self, partition: int) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.name, partition)


class KafkaCluster:
    """A connection to a cluster, to be closed. Every method raises `KafkaClusterError`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        with self._errors("be reached"):
            self._admin = KafkaAdminClient(
                bootstrap_servers=bootstrap, client_id=_CLIENT_ID, bootstrap_timeout_ms=CONNECT_TIMEOUT_MS
            )

    def close(self) -> None:
        """Release the connection."""
        self._admin.close()

    def topic(self, name: str) -> Topic | None:
        """The topic, or None where there is none."""
        with self._errors(f"describe {name}"):
            (found,) = self._admin.describe_topics([name])
        if not found["topic_id"]:
            return None
        leaders = {
            partition["partition_index"]: Leader(partition["leader_id"], partition["leader_epoch"])
            for partition in found["partitions"]
        }
        return Topic(name=name, topic_id=uuid.UUID(str(found["topic_id"])), leaders=leaders)

    def create_topic(self, name: str, partitions: int, replication_factor: int, config: Mapping[str, str]) -> Topic:
        """Create a topic and wait until it is known. A replication factor of -1 is the cluster's default."""
        with self._errors(f"create {name}"):
            self._admin.create_topics(
                [NewTopic(name, partitions, replication_factor, topic_configs=dict(config))], wait_for_metadata=True
            )
        created = self.topic(name)
        if created is None:
            raise KafkaClusterError(f"{self.bootstrap} has created {name} but does not know it yet: try again")
        return created

    def config(self, topic: str) -> dict[str, str]:
        """All of a topic's configuration, defaults included."""
        return self._config(topic, "all")

    def own_config(self, topic: str) -> dict[str, str]:
        """What is set for a topic itself."""
        return self._config(topic, "modified")

    def offsets(self, topic: Topic, position: int) -> dict[int, int]:
        """The offset of a position in each partition."""
        partitions = {TopicPartition(topic.name, partition): position for partition in topic.leaders}
        with self._errors(f"say offsets of {topic.name}"):
            found = self._admin.list_partition_offsets(partitions)
        return {partition.partition: answer.offset for partition, answer in found.items()}

    def has_records(self, topic: Topic, offsets: Collection[tuple[int, int]]) -> bool:
        """Whether a consumer that begins at any of these (partition, offset) gets the record there, or a later one.

        It tries for a while, for a broker knows its segments some time after it has started or was told of them.
        """
        retrying = Retrying(
            retry=retry_if_exception_type(KafkaError),
            stop=stop_after_delay(TIMEOUT_S),
            wait=wait_fixed(_RETRY_S),
            reraise=True,
        )
        with self._errors(f"read {topic.name}"):
            consumer = KafkaConsumer(
                bootstrap_servers=self.bootstrap,
                client_id=_CLIENT_ID,
                auto_offset_reset="none",
                enable_auto_commit=False,
            )
            with closing(consumer):
                return all(retrying(_has_record, consumer, topic.name, *place) for place in offsets)

    def remote_log_events(
        self, partitions: Collection[TopicIdPartition]
    ) -> dict[TopicIdPartition, list[RemoteLogMetadataEvent]]:
        """All that `__remote_log_metadata` has of some partitions, in order."""
        found: dict[TopicIdPartition, list[RemoteLogMetadataEvent]] = {partition: [] for partition in partitions}
        with self._errors(f"read {records.TOPIC}"):
            for record in read_records(self.bootstrap):
                event = records.decode(record.value)
                if partition_of(event) in found:
                    found[partition_of(event)].append(event)
        return found

    def publish(self, events: Sequence[RemoteLogMetadataEvent]) -> None:
        """Write events to `__remote_log_metadata`, in order; at return all are replicated."""
        count = self._metadata_partitions()
        by_partition = defaultdict(list)
        for event in events:
            topic_id, _, index = partition_of(event)
            by_partition[records.metadata_partition(topic_id, index, count)].append(records.encode(event))
        with self._errors(f"write to {records.TOPIC}"):
            producer = KafkaProducer(bootstrap_servers=self.bootstrap, client_id=_CLIENT_ID, acks="all")
            try:
                sent = [
                    producer.send(records.TOPIC, value, partition=partition)
                    for partition, values in by_partition.items()
                    for value in values
                ]
                for future in sent:
                    future.get(TIMEOUT_S)
            finally:
                producer.close()

    def _metadata_partitions(self) -> int:
        topic = self.topic(records.TOPIC)
        if topic is None:
            raise KafkaClusterError(
                f"{self.bootstrap} has no topic {records.TOPIC}: its brokers need TopicBasedRemoteLogMetadataManager "
                "and remote.log.storage.system.enable=true, and make the topic some time after their start"
            )
        return len(topic.leaders)

    def _config(self, topic: str, which: str) -> dict[str, str]:
        with self._errors(f"describe {topic}"):
            answer = self._admin.describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter=which
            )
        return {name: entry["value"] for name, entry in answer["topic"][topic].items()}

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            raise KafkaClusterError(f"{self.bootstrap} could not {what}: {error}") from error
        except (CorruptRecordError, RemoteLogTopicError) as error:
            raise KafkaClusterError(f"{self.bootstrap}: {error}") from error


def _has_record(consumer: Any, topic: str, partition: int, offset: int) -> bool:
    assigned = TopicPartition(topic, partition)
    consumer.assign([assigned])
    consumer.seek(assigned, offset)
    polled = consumer.poll(timeout_ms=TIMEOUT_S * 1000, max_records=1)
    return any(record.offset >= offset for found in polled.values() for record in found)
