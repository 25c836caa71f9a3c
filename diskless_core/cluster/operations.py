"""The decisions of the cluster shard. Pure."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from diskless_core.cluster.nominations import Electorate, Nomination, plan
from diskless_core.cluster.records import (
    PARTITIONS_IN_ONE_RECORD,
    ClusterNamed,
    ClusterRecord,
    ConfigSet,
    CoordinatorsCounted,
    LeaderNominated,
    PartitionsPlaced,
    ProducerIdsTaken,
    ResourceType,
    TopicCreated,
    TopicRemoved,
    TopicSettled,
)
from diskless_core.cluster.spreading import place
from diskless_core.cluster.tables import (
    CLUSTER,
    CLUSTER_ID,
    NEXT_PRODUCER_ID,
    NOMINATIONS,
    ONLY_ROW,
    REMOVED,
    TOPIC_IDS,
    TOPICS,
    UNSETTLED,
    nomination_key,
)
from diskless_core.coordinator.slices import Slices
from diskless_core.coordinator.state_machine import Command
from diskless_core.protocol.errors import ErrorCode

ClusterCommand = Command[ClusterRecord]

PRODUCER_ID_BLOCK = 1000
MAX_TOPIC_NAME = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create: its id is drawn by the caller. `shard_count` diskless shards share its partitions."""

    topic_id: bytes
    name: str
    partition_count: int
    shard_count: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A topic that is to have more partitions.

    Attributes:
        count: how many it is to have in all.
        assignments: the brokers that the client wants for each new one, None where it leaves that to the cluster.
        node_ids: the brokers that it can ask for.
        shard_count: how many diskless shards there are to place them on.
    """

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None
    node_ids: Collection[int]
    shard_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why something was not done: Kafka's error code, and what a person should know."""

    code: ErrorCode
    message: str


def name_cluster(
    command: ClusterCommand, wanted: str, *, level: int, log_id: uuid.UUID, counts: Mapping[str, int]
) -> str:
    """The cluster's id: the one that it has, or `wanted` from now on.

    A new cluster begins at this feature level, and its shard's log gets this id.

    Args:
        counts: how many shards a new cluster has of the kinds whose number is recorded, by their topics.
    """
    known = command.get(CLUSTER, CLUSTER_ID)
    if known is not None:
        return known
    command.name_log(log_id)
    command.raise_level(level)
    command.emit(ClusterNamed(cluster_id=wanted))
    for topic, count in counts.items():
        command.emit(CoordinatorsCounted(topic=topic, count=count))
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


def create_topic(command: ClusterCommand, topic: NewTopic) -> Slices[Refusal | None]:
    """Create a topic with all its partitions and settings, or nothing."""
    refusal = check_new_topic(command, topic.name)
    if refusal is not None:
        return refusal
    command.emit(TopicCreated(topic_id=topic.topic_id, name=topic.name))
    shards = place(command, topic.topic_id, topic.partition_count, topic.shard_count)
    yield from _emit_placed(command, topic.topic_id, shards)
    for name, value in topic.configs.items():
        command.emit(ConfigSet(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value))
    return None


def _emit_placed(command: ClusterCommand, topic_id: bytes, shards: Sequence[int]) -> Slices[None]:
    for first in range(0, len(shards), PARTITIONS_IN_ONE_RECORD):
        some = shards[first : first + PARTITIONS_IN_ONE_RECORD]
        yield from command.emit_in_slices(PartitionsPlaced(topic_id=topic_id, shards=some))


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


def add_partitions(command: ClusterCommand, growth: Growth, *, validate_only: bool) -> Slices[Refusal | None]:
    """Give a topic more partitions, all of them or none."""
    topic_id = command.get(TOPIC_IDS, (growth.name,))
    topic = command.get(TOPICS, (topic_id,)) if topic_id is not None else None
    if topic_id is None or topic is None:
        return Refusal(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message=f"The topic '{growth.name}' does not exist.")
    refusal = _check_growth(growth, topic.partition_count)
    if refusal is None and not validate_only:
        shards = place(command, topic_id, growth.count - topic.partition_count, growth.shard_count)
        yield from _emit_placed(command, topic_id, shards)
    return refusal


def _check_growth(growth: Growth, present: int) -> Refusal | None:
    if growth.count == present:
        return Refusal(code=ErrorCode.INVALID_PARTITIONS, message=f"Topic already has {present} partition(s).")
    if growth.count < present:
        return Refusal(
            code=ErrorCode.INVALID_PARTITIONS,
            message=f"The topic {growth.name} currently has {present} partition(s); "
            f"{growth.count} would not be an increase.",
        )
    added = growth.count - present
    if growth.assignments is None:
        return None
    if len(growth.assignments) != added:
        return Refusal(
            code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            message=f"Attempted to add {added} additional partition(s), but only "
            f"{len(growth.assignments)} assignment(s) were specified.",
        )
    refusals = (refuse_replicas(brokers, growth.node_ids) for brokers in growth.assignments)
    return next((refusal for refusal in refusals if refusal is not None), None)


def refuse_replicas(replicas: Sequence[int], node_ids: Collection[int]) -> Refusal | None:
    """Why a partition cannot be assigned to brokers; None for any one of those that are registered: it is there too."""
    if not replicas:
        problem = "an empty replica list."
    elif (strange := next((one for one in sorted(replicas) if one not in node_ids), None)) is not None:
        problem = f"broker {strange}, but no such broker is registered."
    elif len(set(replicas)) < len(replicas):
        problem = f"the broker {Counter(sorted(replicas)).most_common(1)[0][0]} more than once."
    elif len(replicas) > 1:
        problem = f"{len(replicas)} brokers. The object store replicates: name one broker, any of them."
    else:
        return None
    message = f"The manual partition assignment includes {problem}"
    return Refusal(code=ErrorCode.INVALID_REPLICA_ASSIGNMENT, message=message)


def remove_topic(command: ClusterCommand, topic_id: bytes) -> str | None:
    """Remove a topic; its name, or None when there is none of this id."""
    topic = command.get(TOPICS, (topic_id,))
    if topic is None:
        return None
    command.emit(TopicRemoved(topic_id=topic_id))
    return topic.name


def settle_topics(command: ClusterCommand, settled: Mapping[bytes, int]) -> None:
    """Note of topics that their Diskless shards have done what was decided. What was decided since then stays open.

    Args:
        settled: how many partitions each topic had when they were done, by its id; 0 when it was removed.
    """
    for topic_id, partition_count in settled.items():
        topic = command.get(TOPICS, (topic_id,))
        if topic is None:
            is_open = partition_count == 0 and command.get(REMOVED, (topic_id,)) is not None
        else:
            is_open = partition_count == topic.partition_count and command.get(UNSETTLED, (topic_id,)) is not None
        if is_open:
            command.emit(TopicSettled(topic_id=topic_id, partition_count=partition_count))


def take_producer_ids(command: ClusterCommand, broker_id: int, broker_epoch: int) -> range:
    """A block of producer ids that no broker has had and none will have.

    Args:
        broker_epoch: number of the registration of the broker that takes it, -1 where it has none.
    """
    first = command.get(NEXT_PRODUCER_ID, ONLY_ROW) or 0
    taken = range(first, first + PRODUCER_ID_BLOCK)
    command.emit(ProducerIdsTaken(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=taken.stop))
    return taken


def nominate(command: ClusterCommand, electorate: Electorate) -> Sequence[Nomination]:
    """Write the next nominations that the planner finds, and return them; none at rest."""
    held = (command.get(NOMINATIONS, nomination_key(shard)) for shard in electorate.shards)
    changes = plan(electorate, {nomination.shard: nomination for nomination in held if nomination is not None})
    for nomination in changes:
        command.emit(LeaderNominated(nomination=nomination))
    return changes
