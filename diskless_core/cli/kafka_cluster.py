"""What commands ask of a Kafka cluster, or of Diskless, by Kafka's protocol. All calls block."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import cast

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
)
from tenacity import Retrying, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed

from diskless_core.cli import log_positions
from diskless_core.cli.log_positions import EARLIEST_LOCAL, LATEST_TIERED, PositionError
from diskless_core.cli.raw_request import Address
from diskless_core.cli.remote_log_topic import RemoteLogTopicError, read_records
from diskless_core.plugin import kafka_client
from diskless_core.plugin.kafka_client import KafkaClientError
from diskless_core.remote_log import records
from diskless_core.remote_log.metadata import RemoteLogMetadataEvent, TopicIdPartition, partition_of
from diskless_core.remote_log.records import CorruptRecordError

LATEST = -1
EARLIEST = -2
"""Kafka's numbers for positions in a log, for `offsets`, which knows those of `log_positions` too."""

TIMEOUT_S = 60
CONNECT_TIMEOUT_MS = 10_000
_SPECS: Mapping[int, OffsetSpec] = {EARLIEST: OffsetSpec.earliest(), LATEST: OffsetSpec.latest()}
_BULK = {"message.timeout.ms": TIMEOUT_S * 1000, "linger.ms": 20}
_RETRY_S = 0.5
_KNOWN_S = 0.05
_CLIENT_ID = "diskless"

Delivered = Callable[[KafkaError | None, Message], None]


class KafkaClusterError(Exception):
    """The cluster could not be asked, or did not do what was asked; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Who leads a partition, and where that is."""

    broker_id: int
    address: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic, with the leaders of its partitions."""

    name: str
    topic_id: uuid.UUID
    leaders: Mapping[int, Leader]

    def partition(self, partition: int) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.name, partition)


class KafkaCluster:
    """A connection to a cluster, to be closed. Every method raises `KafkaClusterError`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._options = {"bootstrap.servers": bootstrap, "client.id": _CLIENT_ID}
        with self._errors("be reached"):
            self._admin = kafka_client.open_admin(self._options, CONNECT_TIMEOUT_MS / 1000)

    def close(self) -> None:
        """Release the connection."""
        kafka_client.close_admin(self._admin)

    def topic(self, name: str) -> Topic | None:
        """The topic, or None where there is none."""
        with self._errors(f"describe {name}"):
            found = kafka_client.describe_topic(self._admin, name)
        if found is None:
            return None
        leaders = {
            partition.id: Leader(
                broker_id=partition.leader.id, address=Address(partition.leader.host, partition.leader.port)
            )
            for partition in found.partitions
            if partition.leader is not None
        }
        if len(leaders) < len(found.partitions):
            raise KafkaClusterError(f"{self.bootstrap} has partitions of {name} without a leader: see its brokers")
        return Topic(name=name, topic_id=kafka_client.topic_uuid(found), leaders=leaders)

    def create_topic(self, name: str, partitions: int, replication_factor: int, config: Mapping[str, str]) -> Topic:
        """Create a topic and wait until it is known. A replication factor of -1 is the cluster's default."""
        with self._errors(f"create {name}"):
            kafka_client.answer(
                self._admin.create_topics([NewTopic(name, partitions, replication_factor, config=dict(config))])
            )
        created = _waiting()(self._topic_with_leaders, name)
        if created is None:
            raise KafkaClusterError(f"{self.bootstrap} has created {name} but does not know it yet: try again")
        return created

    def config(self, topic: str) -> dict[str, str]:
        """All of a topic's configuration, defaults included."""
        return _values(self._config(topic))

    def own_config(self, topic: str) -> dict[str, str]:
        """What is set for a topic itself."""
        return _values(
            {
                name: entry
                for name, entry in self._config(topic).items()
                if ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
            }
        )

    def offsets(self, topic: Topic, position: int) -> dict[int, int]:
        """The offset of a position in each partition."""
        with self._errors(f"say offsets of {topic.name}"):
            if position in (EARLIEST_LOCAL, LATEST_TIERED):
                leaders = {number: leader.address for number, leader in topic.leaders.items()}
                return log_positions.offsets(topic.name, leaders, position, TIMEOUT_S)
            listed = kafka_client.list_offsets(self._admin, topic.name, topic.leaders, _SPECS[position])
        return {number: found.offset for number, found in listed.items()}

    def leader_epochs(self, topic: Topic) -> dict[int, int]:
        """The present leader epoch of each partition."""
        with self._errors(f"say leader epochs of {topic.name}"):
            listed = kafka_client.list_offsets(self._admin, topic.name, topic.leaders, OffsetSpec.latest())
        return {number: -1 if found.leader_epoch is None else found.leader_epoch for number, found in listed.items()}

    def has_records(self, topic: Topic, offsets: Collection[tuple[int, int]]) -> bool:
        """Whether a consumer that begins at any of these (partition, offset) gets the record there, or a later one.

        It tries for a while, for a broker knows its segments some time after it has started or was told of them.
        """
        retrying = Retrying(
            retry=retry_if_exception_type(KafkaClientError),
            stop=stop_after_delay(TIMEOUT_S),
            wait=wait_fixed(_RETRY_S),
            reraise=True,
        )
        with (
            self._errors(f"read {topic.name}"),
            closing(kafka_client.open_consumer(self._options)) as consumer,
        ):
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
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        with self._errors(f"write to {records.TOPIC}"):
            producer = kafka_client.open_producer({**self._options, **_BULK})
            try:
                for partition, values in by_partition.items():
                    for value in values:
                        _send(producer, value, partition, delivered)
                producer.flush()
            finally:
                kafka_client.close_producer(producer, 0)
            if failed:
                raise kafka_client.failure(failed[0])

    def _metadata_partitions(self) -> int:
        topic = self.topic(records.TOPIC)
        if topic is None:
            raise KafkaClusterError(
                f"{self.bootstrap} has no topic {records.TOPIC}: its brokers need TopicBasedRemoteLogMetadataManager "
                "and remote.log.storage.system.enable=true, and make the topic some time after their start"
            )
        return len(topic.leaders)

    def _topic_with_leaders(self, name: str) -> Topic | None:
        try:
            return self.topic(name)
        except KafkaClusterError:
            return None

    def _config(self, topic: str) -> dict[str, ConfigEntry]:
        with self._errors(f"describe {topic}"):
            described: dict[str, ConfigEntry] = kafka_client.answer(
                self._admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)])
            )
        return described

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (KafkaClientError, PositionError) as error:
            raise KafkaClusterError(f"{self.bootstrap} could not {what}: {error}") from error
        except (CorruptRecordError, RemoteLogTopicError) as error:
            raise KafkaClusterError(f"{self.bootstrap}: {error}") from error


def _values(described: Mapping[str, ConfigEntry]) -> dict[str, str]:
    return {name: entry.value for name, entry in described.items() if entry.value is not None}


def _waiting() -> Retrying:
    """Calls until there is something, and gives None when that takes too long."""
    return Retrying(
        retry=retry_if_result(lambda found: found is None),
        stop=stop_after_delay(TIMEOUT_S),
        wait=wait_fixed(_KNOWN_S),
        retry_error_callback=lambda _: None,
    )


def _send(
    producer: Producer, value: bytes, partition: int, delivered: Callable[[KafkaError | None, Message], None]
) -> None:
    while True:
        try:
            producer.produce(records.TOPIC, value, partition=partition, on_delivery=delivered)
        except BufferError:
            producer.poll(_RETRY_S)
        else:
            producer.poll(0)
            return


def _has_record(consumer: Consumer, topic: str, partition: int, offset: int) -> bool:
    consumer.assign([TopicPartition(topic, partition, offset)])
    found = consumer.poll(TIMEOUT_S)
    if found is None:
        return False
    error = found.error()
    if error is not None:
        raise kafka_client.failure(error)
    return cast("int", found.offset()) >= offset
