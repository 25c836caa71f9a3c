"""The topics of the coordinator log in an Apache Kafka: their names, and that they are there and as they have to be.

Everything but the names and `objections` blocks.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec
from tenacity import Retrying, retry_if_result, stop_after_delay, stop_any, stop_when_event_set, wait_fixed
from tenacity.nap import sleep_using_event

from diskless_core.plugin import kafka_client
from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogBounds
from diskless_core.plugin.kafka_client import KafkaClientError
from diskless_core.plugin.shard import ShardId
from diskless_kafka.log_config import (
    EXACT_TOPIC_CONFIGS,
    SAFE_REPLICATION_FACTOR,
    KafkaLogSettings,
    min_insync_replicas,
)
from diskless_kafka.topic_ids import TopicIds

_CREATED_WITHIN_S = 30
_POLL_S = 0.05
_LIST_S = 10.0
_INTERNAL = "__"
_OWN = "diskless_"


def topic_name(shard: ShardId, prefix: str) -> str:
    """The topic that has a shard's log: `__diskless_metadata` keeps its name under the default prefix.

    Its siblings get names of their own, such as `__diskless_cluster_metadata`: those of Apache Kafka are taken there.
    """
    return prefix + shard.topic.removeprefix(_INTERNAL).removeprefix(_OWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopic:
    """A topic as it is. `replication_factor` is that of the partition with the fewest replicas."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def objections(found: FoundTopic, settings: KafkaLogSettings) -> list[str]:
    """What is wrong with a topic: each names the topic, the setting, what it is and what it has to be. Pure."""
    wrong = list[str]()

    def demand(setting: str, value: object, wanted: object, *, holds: bool) -> None:
        if not holds:
            wrong.append(f"topic {found.name} has {setting}={value} and must have {wanted}")

    replicas, configs = found.replication_factor, found.configs
    demand(
        "replication factor",
        replicas,
        f"{SAFE_REPLICATION_FACTOR} or more (coordinator_log.kafka.allow.unsafe=true lifts this for tests)",
        holds=replicas >= SAFE_REPLICATION_FACTOR or settings.allow_unsafe,
    )
    in_sync, largest = min_insync_replicas(replicas), settings.topic_max_message_bytes
    found_in_sync, found_largest = int(configs["min.insync.replicas"]), int(configs["max.message.bytes"])
    demand("min.insync.replicas", found_in_sync, f"{in_sync} or more", holds=found_in_sync >= in_sync)
    demand("max.message.bytes", found_largest, f"{largest} or more", holds=found_largest >= largest)
    for setting, wanted in EXACT_TOPIC_CONFIGS.items():
        demand(setting, configs[setting], wanted, holds=configs[setting] == wanted)
    return wrong


class LogTopics:
    """Creates, checks and asks about the topics, with an admin client. Its methods may be called on any thread.

    All raise CoordinatorLogError.

    Args:
        closing: once it is set, nothing is waited for any more.
        creates: whether what is missing is made, and the ids of topics are remembered.
    """

    def __init__(
        self,
        admin: AdminClient,
        settings: KafkaLogSettings,
        ids: TopicIds,
        closing: threading.Event,
        *,
        creates: bool = True,
    ) -> None:
        self._admin = admin
        self._settings = settings
        self._ids = ids
        self._closing = closing
        self._creates = creates
        self._checking = threading.Lock()
        self._partitions: dict[str, int] = {}

    def check_all(self) -> None:
        """Check every topic that begins with the prefix."""
        with _told("topics cannot be listed"):
            listed = self._admin.list_topics(timeout=_LIST_S)
        for name in sorted(listed.topics):
            if name.startswith(self._settings.topic_prefix):
                self._check(name, self._wait_for(name, 1))

    def ensure(self, shard: ShardId) -> None:
        """See that the shard's partition is there, and its topic the one that it was and as it has to be.

        Raises:
            CoordinatorLogError: it is missing and not to be created, another topic has its name, or its settings are
                unsafe.
        """
        name = topic_name(shard, self._settings.topic_prefix)
        with self._checking:
            if self._partitions.get(name, 0) > shard.index:
                return
            found = self._found(name)
            if found is None:
                self._require_creating(name)
                self._ids.require_unknown(name)
                found = self._create(name, shard.index + 1)
            elif found.partitions <= shard.index:
                self._require_creating(f"{name}-{shard.index}")
                found = self._add_partitions(name, shard.index + 1)
            self._check(name, found)

    def is_there(self, shard: ShardId) -> bool:
        """Whether the shard's partition is there. Nothing is created, whoever asks for whatever shard.

        It is the controller that says that it is not: the broker that was asked may only not know it yet. A tool, which
        creates nothing, takes the word of that broker.

        Raises:
            CoordinatorLogError: as `ensure`.
        """
        name = topic_name(shard, self._settings.topic_prefix)
        with self._checking:
            if self._partitions.get(name, 0) > shard.index:
                return True
            found = self._found(name)
            if not self._creates and (found is None or found.partitions <= shard.index):
                return False  # a tool may not be allowed to ask the controller as if to create it
            if found is None:
                self._ids.require_unknown(name)
                if self._may_be_created(name):
                    return False
                found = self._wait_for(name, 1)
            if found.partitions <= shard.index:
                self._check(name, found)
                if self._may_be_added(name, shard.index + 1):
                    return False
                found = self._wait_for(name, shard.index + 1)
            self._check(name, found)
            return True

    def verify(self, shard: ShardId) -> None:
        """See that the topic is still the one that it was."""
        self._found_again(shard)

    def max_message_bytes(self, shard: ShardId) -> int:
        """Size in bytes of the largest message that the topic takes now; errors as `verify`."""
        return int(self._found_again(shard).configs["max.message.bytes"])

    def bounds(self, shard: ShardId) -> LogBounds:
        """Where the partition begins, and its high watermark."""
        name = topic_name(shard, self._settings.topic_prefix)
        with _told(f"the bounds of {name}-{shard.index} are not known"):
            # in this order, lest the start be beyond the end
            start, end = (
                kafka_client.list_offsets(self._admin, name, [shard.index], position)[shard.index].offset
                for position in (OffsetSpec.earliest(), OffsetSpec.latest())
            )
        return LogBounds(start, max(start, end))

    def prune(self, shard: ShardId, before: int) -> int:
        """Delete what lies below an offset, at most up to the high watermark. Where the partition begins now.

        Raises:
            CoordinatorLogError: it was not done; or the topic is gone, or another one of the same name.
        """
        name = topic_name(shard, self._settings.topic_prefix)
        bounds = self.bounds(shard)
        before = min(before, bounds.end)
        if before <= bounds.start:
            return bounds.start
        self.verify(shard)  # a topic that was deleted and created anew has the same offsets, and other entries
        with _told(f"{name}-{shard.index} cannot be pruned"):
            asked = self._admin.delete_records([TopicPartition(name, shard.index, before)])
            deleted: int = kafka_client.answer(asked).low_watermark
        return deleted

    def _check(self, name: str, found: FoundTopic) -> None:
        self._ids.require(name, found.topic_id)
        wrong = objections(found, self._settings)
        if wrong:
            raise CoordinatorLogError("; ".join(wrong))
        if self._creates:
            self._ids.remember(name, found.topic_id)
        self._partitions[name] = found.partitions

    def _found_again(self, shard: ShardId) -> FoundTopic:
        name = topic_name(shard, self._settings.topic_prefix)
        found = self._found(name)
        if found is None:
            self._partitions.pop(name, None)
            raise CoordinatorLogError(f"the topic {name} is gone: somebody deleted it")
        self._ids.require(name, found.topic_id)
        return found

    def _found(self, name: str) -> FoundTopic | None:
        with _told(f"the topic {name} cannot be described"):
            described = kafka_client.describe_topic(self._admin, name)
            if described is None:
                return None
            asked = self._admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name)])
            try:
                configs: Mapping[str, Any] = kafka_client.answer(asked)
            except KafkaClientError as error:
                if error.is_unknown_partition:  # the broker that was asked now does not know a new topic yet
                    return None
                raise
        return FoundTopic(
            name=name,
            topic_id=kafka_client.topic_uuid(described),
            partitions=len(described.partitions),
            replication_factor=min(len(partition.replicas) for partition in described.partitions),
            configs={setting: str(entry.value) for setting, entry in configs.items()},
        )

    def _create(self, name: str, partitions: int) -> FoundTopic:
        self._may_be_created(name, partitions, validate_only=False)  # if not, another broker was quicker
        return self._wait_for(name, partitions)

    def _add_partitions(self, name: str, partitions: int) -> FoundTopic:
        self._may_be_added(name, partitions, validate_only=False)  # if not, another broker was quicker
        return self._wait_for(name, partitions)

    def _may_be_created(self, name: str, partitions: int = 1, *, validate_only: bool = True) -> bool:
        """Whether there is no such topic, by the controller. There is one then, unless this is only to be validated."""
        replicas = self._settings.topic_replication_factor
        topic = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=replicas,
            config=dict(self._settings.topic_configs()),
        )
        with _told(f"the topic {name} cannot be created with a replication factor of {replicas}"):
            asked = self._admin.create_topics([topic], validate_only=validate_only)
            return self._is_done(asked, unless=KafkaError.TOPIC_ALREADY_EXISTS)

    def _may_be_added(self, name: str, partitions: int, *, validate_only: bool = True) -> bool:
        """Whether the topic has fewer partitions, by the controller; see `_may_be_created`."""
        with _told(f"partitions cannot be added to the topic {name}"):
            asked = self._admin.create_partitions([NewPartitions(name, partitions)], validate_only=validate_only)
            return self._is_done(asked, unless=KafkaError.INVALID_PARTITIONS)

    @staticmethod
    def _is_done(asked: Mapping[Any, Any], unless: int) -> bool:
        try:
            kafka_client.answer(asked)
        except KafkaClientError as error:
            if error.code != unless:
                raise
            return False
        return True

    def _wait_for(self, name: str, partitions: int) -> FoundTopic:
        """The topic, once it is there: brokers of an Apache Kafka learn of a new one at different times."""

        def look() -> FoundTopic | None:
            found = self._found(name)
            return found if found is not None and found.partitions >= partitions else None

        waiting = Retrying(
            retry=retry_if_result(lambda found: found is None),
            stop=stop_any(stop_after_delay(_CREATED_WITHIN_S), stop_when_event_set(self._closing)),
            wait=wait_fixed(_POLL_S),
            sleep=sleep_using_event(self._closing),
            retry_error_callback=lambda _: None,
        )
        found: FoundTopic | None = waiting(look)
        if found is None:
            raise CoordinatorLogError(f"the topic {name} is not there with {partitions} partition(s): was it deleted?")
        return found

    def _require_creating(self, what: str) -> None:
        if not self._creates:
            raise CoordinatorLogError(f"there is no {what}: has a broker run with this coordinator log?")


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Within it, an error of Kafka's is a CoordinatorLogError that begins with what could not be done."""
    try:
        with kafka_client.errors():
            yield
    except KafkaClientError as error:
        raise CoordinatorLogError(f"{what}: {error}") from error
