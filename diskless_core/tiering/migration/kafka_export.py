"""How segments of Diskless become those of a topic of Apache Kafka, and what to do next for that. Pure.

Kafka gives the topic its id. Segments are copied under it, and Kafka is told of them; with the broker stopped, its
empty local log is replaced by one that begins behind the segments. In this order: a broker that starts with such a
local log and knows of no segments takes it for the whole log. One that starts with segments and the empty log deletes
the segments.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from diskless_core.log import leader_epochs, offset_index, producer_snapshot, time_index
from diskless_core.log.segment import LOG_SUFFIX, base_offset_of, file_name
from diskless_core.protocol.names import partition_name
from diskless_core.remote_log.metadata import (
    RemoteLogMetadataEvent,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)

PARTITION_METADATA = "partition.metadata"
REQUIRED_CONFIG = {"remote.storage.enable": "true", "retention.ms": "-1", "retention.bytes": "-1"}
"""What the topic has in Kafka while it is exported: segments, and none that is too old or too much."""

LEADER_EPOCH = 0
"""The leader epoch of all exported records: a new topic's first one."""

_LOCAL_FILES = (LOG_SUFFIX, offset_index.SUFFIX, time_index.SUFFIX, producer_snapshot.SUFFIX)
_KEPT_CONFIG = ("max.message.bytes", "message.timestamp.type")
_DELETED = (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)


class ExportError(Exception):
    """The topic cannot be exported like this; the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """A partition of Diskless whose `segments` hold all records from log start to `next_offset`, in order."""

    partition: int
    log_start_offset: int
    next_offset: int
    segments: Sequence[RemoteLogSegmentMetadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPartition:
    """The partition in Kafka.

    Attributes:
        log_start_offset, local_log_start_offset, log_end_offset: as its leader says.
        broker_id, leader_epoch: its leader.
        states: of the segments that `__remote_log_metadata` has of it, deleted ones included, by id.
    """

    topic_id_partition: TopicIdPartition
    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int
    broker_id: int
    leader_epoch: int
    states: Mapping[uuid.UUID, RemoteLogSegmentState]


class Step(Enum):
    """What a partition needs next."""

    PREPARE = "its local log has to be prepared"
    NOTHING = "it is exported"


def next_step(source: SourcePartition, target: TargetPartition) -> Step:
    """What is to be done for a partition once its segments are copied and Kafka has been told of them.

    Raises:
        ExportError: the partition in Kafka is not, or not any more, what the export made of it.
    """
    name = partition_name(target.topic_id_partition.topic, source.partition)
    states = [target.states.get(segment.segment_id.id) for segment in source.segments]
    if any(state in _DELETED for state in states):
        raise ExportError(f"Kafka has deleted segments of {name}: delete the topic in Kafka and begin again")
    local_start, end = target.local_log_start_offset, target.log_end_offset
    if source.next_offset == 0 or (target.log_start_offset, local_start) == (
        source.log_start_offset,
        source.next_offset,
    ):
        return Step.NOTHING
    if local_start == end <= source.next_offset:
        if end == 0 and target.leader_epoch != LEADER_EPOCH:
            raise ExportError(
                f"{name} has had {target.leader_epoch} leader epochs in Kafka, which would delete its segments: delete "
                "the topic in Kafka and begin again, without a restart of the brokers between"
            )
        return Step.PREPARE
    if local_start >= source.next_offset and all(
        state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED for state in states
    ):
        return Step.NOTHING
    raise ExportError(
        f"{name} has offsets {local_start} to {end - 1} of its own in Kafka, and ends at {source.next_offset - 1} in "
        "Diskless: export into a topic that nobody has written to"
    )


def unpublished(
    source: SourcePartition, target: TargetPartition, now_ms: int
) -> list[RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate]:
    """The events that Kafka has yet to be told, in order."""
    events: list[RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate] = []
    for segment in source.segments:
        exported = exported_metadata(segment, target.topic_id_partition, target.broker_id, now_ms)
        state = target.states.get(segment.segment_id.id)
        if state is None:
            events.append(exported)
        if state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            events.append(
                RemoteLogSegmentMetadataUpdate(
                    segment_id=exported.segment_id,
                    event_timestamp_ms=now_ms,
                    state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                    broker_id=target.broker_id,
                )
            )
    return events


def exported_metadata(
    segment: RemoteLogSegmentMetadata, partition: TopicIdPartition, broker_id: int, now_ms: int
) -> RemoteLogSegmentMetadata:
    """What Kafka is told when the copy of a segment begins. It keeps its id, and is of the leader epoch 0."""
    return replace(
        segment,
        segment_id=RemoteLogSegmentId(partition, segment.segment_id.id),
        broker_id=broker_id,
        event_timestamp_ms=now_ms,
        segment_leader_epochs={LEADER_EPOCH: segment.start_offset},
        state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
        custom_metadata=None,
    )


def states_of(
    events: Iterable[RemoteLogMetadataEvent], partition: TopicIdPartition
) -> dict[uuid.UUID, RemoteLogSegmentState]:
    """The state of each segment of a partition, by its id, after the events of a whole metadata partition."""
    return {
        event.segment_id.id: event.state
        for event in events
        if not isinstance(event, RemotePartitionDeleteMetadata) and event.segment_id.topic_id_partition == partition
    }


def topic_config(configured: Mapping[str, str]) -> dict[str, str]:
    """The configuration of the topic in Kafka, given what is set for it in Diskless."""
    return {name: configured[name] for name in _KEPT_CONFIG if name in configured} | REQUIRED_CONFIG


def check_topic(topic: str, partitions: int, expected_partitions: int, config: Mapping[str, str]) -> None:
    """Refuse a topic of Kafka that cannot take an export.

    Args:
        config: all of its configuration, defaults included.

    Raises:
        ExportError: it says what is wrong.
    """
    if partitions != expected_partitions:
        raise ExportError(f"{topic} has {partitions} partitions in Kafka and {expected_partitions} in Diskless")
    wrong = [f"{name}={value}" for name, value in REQUIRED_CONFIG.items() if config.get(name) != value]
    if config.get("cleanup.policy") != "delete":
        wrong.append("cleanup.policy=delete")
    if config.get("remote.log.copy.disable") == "true":
        wrong.append("remote.log.copy.disable=false")
    if wrong:
        raise ExportError(f"{topic} needs in Kafka, until it is exported: {', '.join(wrong)}")


def topic_id_of(partition_metadata: bytes) -> uuid.UUID:
    """The topic id that a `partition.metadata` file states.

    Raises:
        ExportError: the file is damaged, or of another version.
    """
    try:
        fields = dict(line.split(": ", 1) for line in partition_metadata.decode().splitlines())
        if fields["version"] != "0":
            raise ValueError(f"version {fields['version']}")
        return uuid.UUID(bytes=base64.urlsafe_b64decode(fields["topic_id"] + "=="))
    except (KeyError, ValueError) as error:
        raise ExportError(f"{PARTITION_METADATA} is not as Kafka writes it: {error}") from error


def local_log_problem(files: Mapping[str, int], next_offset: int) -> str | None:
    """Why a partition's folder cannot be made to begin at `next_offset`, if it can't.

    Args:
        files: the sizes of its files in bytes, by name.
    """
    if PARTITION_METADATA not in files:
        return f"it has no {PARTITION_METADATA}"
    logs = {base_offset_of(name): size for name, size in files.items() if name.endswith(LOG_SUFFIX)}
    if any(logs.values()):
        return "it has records"
    begins = max((offset for offset in logs if offset is not None), default=0)
    return f"its log begins at {begins}, behind {next_offset}" if begins > next_offset else None


def local_log_files(next_offset: int, snapshot: bytes) -> dict[str, bytes]:
    """Contents of the files of an empty local log whose records are all in segments; `partition.metadata` stays.

    Args:
        snapshot: the producer snapshot of the last segment.
    """
    return {
        file_name(next_offset): b"",
        file_name(next_offset, offset_index.SUFFIX): b"",
        file_name(next_offset, time_index.SUFFIX): b"",
        file_name(next_offset, producer_snapshot.SUFFIX): snapshot,
        leader_epochs.FILE_NAME: leader_epochs.encode({LEADER_EPOCH: 0}),
    }


def superfluous_files(names: Iterable[str], next_offset: int) -> list[str]:
    """The files of the log that was there before."""
    return [name for name in names if name.endswith(_LOCAL_FILES) and not name.startswith(file_name(next_offset, ""))]
