"""What the client commands ask of a Kafka cluster, by librdkafka's client of administrators. All calls block."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from diskless_core.cli import text
from diskless_core.cli.client.positions import Position, Time, at_offsets
from diskless_core.cli.raw_request import Address
from diskless_core.plugin.kafka_client import ALL_BROKERS_DOWN, KafkaClientError, error_text, make_client

CONNECT_TIMEOUT_S = 5.0
REFUSED_TIMEOUT_S = 2.0
"""How long a cluster may take to answer first; and how long one may refuse, as while it starts."""

LOADING_TIMEOUT_S = 10.0
"""How long group coordinators may take to load."""

_POLL_S = 0.005
_RETRY_S = 0.1
_LOADING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
_PLACE_OF_ERROR = re.compile(r"^\S+/bootstrap: | \(after \d+ms in state \w+[^)]*\)")
_STATE_NAMES = {"PREPARING_REBALANCING": "PreparingRebalance", "COMPLETING_REBALANCING": "CompletingRebalance"}


class ClusterError(Exception):
    """The cluster could not be asked, or refused; the message says what to do."""


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """Who has a partition; brokers by their ids. `leader` is None where there is none."""

    number: int
    leader: int | None
    replicas: Sequence[int]
    isr: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic; `topic_id` is in Kafka's text form."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: Sequence[PartitionDescription]

    def all_partitions(self) -> list[Partition]:
        return [Partition(self.name, partition.number) for partition in self.partitions]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group; state and type in Kafka's words."""

    name: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member of a group, and the partitions that it has."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: Sequence[Partition]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group; one that does not exist is `Dead`."""

    name: str
    state: str
    group_type: str
    coordinator: int | None
    assignor: str
    members: Sequence[MemberDescription]

    @property
    def exists(self) -> bool:
        return self.state != "Dead"


class Cluster:
    """A connection to a cluster, which ends with its last reference. Every method raises `ClusterError`.

    Args:
        properties: librdkafka's, `bootstrap.servers` among them.
        timeout_s: how long the cluster may take to answer first.
    """

    def __init__(self, properties: Mapping[str, str], timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        self.bootstrap = properties["bootstrap.servers"]
        self._errors = ConnectionErrors(self.bootstrap)
        self._admin = made(AdminClient, properties, error_cb=self._errors.add)
        self._reach(timeout_s)

    def topic_names(self) -> list[str]:
        """All topics, sorted."""
        try:
            return sorted(self._admin.list_topics(timeout=CONNECT_TIMEOUT_S).topics)
        except KafkaException as error:
            raise ClusterError(error_text(error.args[0])) from error

    def topics(self, names: Collection[str]) -> list[TopicDescription]:
        """Topics in the order of their names; one that does not exist is an error."""
        if not names:
            return []
        found = self._admin.describe_topics(TopicCollection(list(dict.fromkeys(names))))
        return [self._topic(name, future) for name, future in sorted(found.items())]

    def topic(self, name: str) -> TopicDescription:
        """One topic."""
        return self.topics([name])[0]

    def leaders(self, topic: str) -> dict[int, Address]:
        """Where the leaders of a topic's partitions are, of those that have one."""
        (future,) = self._admin.describe_topics(TopicCollection([topic])).values()
        led = {one.id: one.leader for one in self._result(future).partitions}
        return {number: Address(node.host, node.port) for number, node in led.items() if node and node.id >= 0}

    def own_config(self, topic: str) -> dict[str, str | None]:
        """What is set for a topic itself; None for a secret."""
        (future,) = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        entries = self._result(future).values()
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {
            entry.name: entry.value for entry in sorted(entries, key=lambda entry: entry.name) if entry.source == own
        }

    def create_topic(self, name: str, partitions: int, replication_factor: int, config: Mapping[str, str]) -> bool:
        """Create a topic; False if it exists. -1 is the cluster's default for both numbers."""
        new = NewTopic(name, partitions, replication_factor, config=dict(config))
        (future,) = self._admin.create_topics([new]).values()
        return self._done(future, unless=KafkaError.TOPIC_ALREADY_EXISTS)

    def delete_topic(self, name: str) -> bool:
        """Delete a topic and all its records; False if there is none."""
        (future,) = self._admin.delete_topics([name]).values()
        return self._done(future, unless=KafkaError.UNKNOWN_TOPIC_OR_PART)

    def add_partitions(self, topic: str, count: int) -> None:
        """Raise a topic's number of partitions to `count`."""
        (future,) = self._admin.create_partitions([NewPartitions(topic, count)]).values()
        self._result(future)

    def alter_config(self, topic: str, to_set: Mapping[str, str], to_delete: Collection[str]) -> None:
        """Set settings of a topic, and take others back to their defaults, all or none."""
        resource = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                *(
                    ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                    for key, value in to_set.items()
                ),
                *(ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in to_delete),
            ],
        )
        (future,) = self._admin.incremental_alter_configs([resource]).values()
        self._result(future)

    def earliest_offsets(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """The log start offset of each partition that can be asked."""
        return self._offsets(partitions, OffsetSpec.earliest())

    def latest_offsets(self, partitions: Collection[Partition], *, committed: bool = False) -> dict[Partition, int]:
        """The high watermark of each partition that can be asked, or the last stable offset for `committed`."""
        return self._offsets(partitions, OffsetSpec.latest(), committed=committed)

    def offsets_at(
        self, partitions: Collection[Partition], position: Position, *, committed: bool = False
    ) -> dict[Partition, int]:
        """The offset of a position in each partition, within what the partition has."""
        latest = self.latest_offsets(partitions, committed=committed)
        if isinstance(position, Time):
            found = self._offsets(partitions, OffsetSpec.for_timestamp(position.time_ms))
            at = {
                partition: found[partition] if found[partition] >= 0 else latest[partition]
                for partition in found.keys() & latest.keys()
            }
        else:
            earliest = self.earliest_offsets(partitions)
            at = {
                partition: at_offsets(position, earliest[partition], latest[partition])
                for partition in earliest.keys() & latest.keys()
            }
        for topic, number in partitions:
            if (topic, number) not in at:
                raise ClusterError(
                    f"partition {number} of {topic} has no leader that tells its offsets: try again later"
                )
        return at

    def groups(self) -> list[GroupListing]:
        """All groups, sorted by name."""
        listed = [
            GroupListing(name=group.group_id, state=_state(group.state), group_type=group.type.name.title())
            for group in _of_coordinators(self._listed_groups)
        ]
        return sorted(listed, key=lambda group: group.name)

    def group_names(self) -> list[str]:
        """All groups, sorted."""
        return [group.name for group in self.groups()]

    def group(self, name: str) -> GroupDescription:
        """A group, `Dead` if there is none."""
        found = _of_coordinators(lambda: _only(self._admin.describe_consumer_groups([name])))
        return GroupDescription(
            name=name,
            state=_state(found.state),
            group_type=found.type.name.title(),
            coordinator=found.coordinator.id if found.coordinator else None,
            assignor=found.partition_assignor,
            members=[
                MemberDescription(
                    member_id=member.member_id,
                    instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    host=member.host.removeprefix("/"),
                    assignment=_partitions(member.assignment.topic_partitions),
                )
                for member in found.members
            ],
        )

    def committed_offsets(self, group: str) -> dict[Partition, int]:
        """What a group has committed."""
        asked = [ConsumerGroupTopicPartitions(group)]
        found = _of_coordinators(lambda: _only(self._admin.list_consumer_group_offsets(asked)))
        return {Partition(one.topic, one.partition): one.offset for one in found.topic_partitions if one.offset >= 0}

    def commit_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Commit for a group without members."""
        wanted = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        asked = [ConsumerGroupTopicPartitions(group, wanted)]
        found = _of_coordinators(lambda: _only(self._admin.alter_consumer_group_offsets(asked)))
        refused = [one for one in found.topic_partitions if one.error is not None]
        if refused:
            told = ", ".join(f"{one.topic}-{one.partition}: {error_text(one.error)}" for one in refused)
            raise ClusterError(f"the group {group} is not reset for {told}")

    def delete_group(self, name: str) -> bool:
        """Delete a group without members and its offsets; False if there is none."""
        future = self._admin.delete_consumer_groups([name])[name]
        return self._done(future, unless=KafkaError.GROUP_ID_NOT_FOUND)

    def _listed_groups(self) -> Any:
        found = self._admin.list_consumer_groups().result()
        if found.errors:
            raise found.errors[0]
        return found.valid

    def _reach(self, timeout_s: float) -> None:
        # the first try is short, for the client cannot take it back when all brokers refuse
        for patience_s in (min(REFUSED_TIMEOUT_S, timeout_s), timeout_s - REFUSED_TIMEOUT_S):
            if patience_s <= 0 or self._errors.all_are_down:
                break
            future = self._admin.describe_cluster(request_timeout=patience_s)
            while not future.done():
                self._admin.poll(_POLL_S)
            if future.exception() is None:
                return
        raise self._errors.as_unreachable()

    def _topic(self, name: str, future: Future[Any]) -> TopicDescription:
        try:
            found = future.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise no_topic(name) from None
            raise ClusterError(error_text(error.args[0])) from error
        return TopicDescription(
            name=name,
            topic_id=str(found.topic_id),
            is_internal=found.is_internal or is_internal(name),
            partitions=[
                PartitionDescription(
                    number=partition.id,
                    leader=partition.leader.id if partition.leader and partition.leader.id >= 0 else None,
                    replicas=[node.id for node in partition.replicas],
                    isr=[node.id for node in partition.isr],
                )
                for partition in sorted(found.partitions, key=lambda partition: partition.id)
            ],
        )

    def _offsets(
        self, partitions: Collection[Partition], spec: OffsetSpec, *, committed: bool = False
    ) -> dict[Partition, int]:
        if not partitions:
            return {}
        asked = {TopicPartition(topic, number): spec for topic, number in partitions}
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        found = self._admin.list_offsets(asked, isolation_level=isolation)
        return {
            Partition(place.topic, place.partition): future.result().offset
            for place, future in found.items()
            if future.exception() is None
        }

    def _done(self, future: Future[Any], unless: int) -> bool:
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() == unless:
                return False
            raise ClusterError(error_text(error.args[0])) from error
        return True

    def _result(self, future: Future[Any]) -> Any:
        try:
            return future.result()
        except KafkaException as error:
            raise ClusterError(error_text(error.args[0])) from error


class ConnectionErrors:
    """What a client tells of its connections.

    Args:
        bootstrap: the address that it was given.
        tell: gets a line when no broker can be reached any more.
    """

    def __init__(self, bootstrap: str, tell: Callable[[str], None] | None = None) -> None:
        self.all_are_down = False
        self._bootstrap = bootstrap
        self._tell = tell
        self._reason = ""

    def add(self, error: KafkaError) -> None:
        """Take an error that the client tells."""
        if error.code() != ALL_BROKERS_DOWN:
            self._reason = _PLACE_OF_ERROR.sub("", error.str())
            return
        if self._tell is not None and not self.all_are_down:
            self._tell(f"no broker can be reached, waiting for one{self._told_reason()}")
        self.all_are_down = True

    def as_unreachable(self) -> ClusterError:
        """The error for a cluster that has never been reached."""
        return ClusterError(
            f"no Kafka broker answers at {self._bootstrap}{self._told_reason()}: start one with `diskless serve`, "
            "or correct --bootstrap-server, or what --command-config says of TLS and SASL"
        )

    def _told_reason(self) -> str:
        return f" ({self._reason})" if self._reason else ""


def _of_coordinators(ask: Callable[[], Any]) -> Any:
    """What group coordinators answer. They are asked again while they load, as when they have just started."""
    try:
        return Retrying(
            retry=retry_if_exception(_is_of_a_loading_coordinator),
            stop=stop_after_delay(LOADING_TIMEOUT_S),
            wait=wait_fixed(_RETRY_S),
            reraise=True,
        )(ask)
    except KafkaException as error:
        raise ClusterError(error_text(error.args[0])) from error


def _is_of_a_loading_coordinator(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _LOADING


def _only(futures: Mapping[str, Future[Any]]) -> Any:
    (future,) = futures.values()
    return future.result()


def made(client: Callable[[dict[str, Any]], Any], properties: Mapping[str, str], **more: Any) -> Any:
    """A client with these properties, which logs nothing unless `debug` is among them."""
    quiet = {} if "debug" in properties else {"log_level": 0}
    try:
        return make_client(client, {"client.id": "diskless", **quiet, **properties, **more})
    except (KafkaClientError, OSError) as error:
        raise ClusterError(f"{error}: correct --command-config or --command-property") from error


def no_topic(name: str) -> ClusterError:
    """The error for a topic that does not exist."""
    return ClusterError(
        f"there is no topic {name}: `diskless topics list` shows all, `diskless topics create` makes one"
    )


def no_partition(topic: str, number: int, count: int) -> ClusterError:
    """The error for a partition that a topic of `count` partitions does not have."""
    return ClusterError(f"{topic} has no partition {number}: it has {text.counted(count, 'partition')}, from 0 on")


def is_internal(topic: str) -> bool:
    """Whether a topic is the brokers' own by its name, as `__consumer_offsets`."""
    return topic.startswith("__")


def _state(state: ConsumerGroupState) -> str:
    return _STATE_NAMES.get(state.name, state.name.title())


def _partitions(found: Iterable[TopicPartition]) -> list[Partition]:
    return sorted(Partition(one.topic, one.partition) for one in found)
