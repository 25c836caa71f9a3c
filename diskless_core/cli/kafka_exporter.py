"""The steps of an export to Apache Kafka: what `kafka_export` decides is done here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from diskless_core.cli import kafka_cluster, kafka_log_dir, log_positions, text
from diskless_core.cli.kafka_cluster import KafkaCluster, Topic
from diskless_core.cli.kafka_log_dir import LocalLog, LogDirError
from diskless_core.cli.remote_storages import RemoteStorages
from diskless_core.log import producer_snapshot
from diskless_core.plugin.remote_storage import IndexType, RemoteResourceNotFoundError, RemoteStorage
from diskless_core.protocol.names import partition_name, uuid_text
from diskless_core.remote_log.metadata import RemoteLogMetadataEvent, RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.tiering.migration import kafka_export
from diskless_core.tiering.migration.kafka_export import ExportError, SourcePartition, Step, TargetPartition
from diskless_core.tiering.migration.segment_copy import SegmentCopy, ensure_copied

_NO_BROKER = -1


class ExportSource(Protocol):
    """A running Diskless, as far as an export asks it; errors as `TieringClient`."""

    def partition_count(self, topic: str) -> int: ...

    def config(self, topic: str) -> Mapping[str, str]: ...

    def compact(self, topics: Sequence[str]) -> None: ...

    def partitions(self, topic: str) -> Sequence[SourcePartition]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What is in the tiered storage of the Kafka, and what has to be done next."""

    segments: int
    size_bytes: int
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """Exports topics of one Diskless cluster to one place.

    Attributes:
        place: where the Kafka has its segments, with settings of its storage in `place_options`.
        echo: is told of progress, a line at a time.
    """

    source: ExportSource
    storages: RemoteStorages
    place: str
    place_options: Sequence[str]
    echo: Callable[[str], None]

    async def export(self, topics: Sequence[str], bootstrap: str, replication_factor: int) -> ExportReport:
        """Do what can be done while the Kafka runs: make the topics, copy segments, tell it of them.

        Raises:
            ExportError: a topic cannot be exported like this.
            SegmentDamagedError: a segment of Diskless is damaged.
            AdminClientError, KafkaClusterError, RemoteStorageError: one of the parts did not do its own.
        """
        with closing(KafkaCluster(bootstrap)) as cluster:
            targets = [self._target_topic(cluster, topic, replication_factor) for topic in topics]
            self.source.compact(topics)
            sources = [self.source.partitions(topic) for topic in topics]
            pairs = [
                pair
                for partitions, target in zip(sources, targets, strict=True)
                for pair in _pairs(partitions, target, cluster)
            ]
            steps = [kafka_export.next_step(source, target) for source, target in pairs]
            await self._copy_all(pairs)
            self._publish(pairs, cluster)
            if Step.PREPARE not in steps:
                for partitions, target in zip(sources, targets, strict=True):
                    _verify(partitions, target, cluster)
            segments = [segment for source, _ in pairs for segment in source.segments]
            return ExportReport(
                segments=len(segments),
                size_bytes=sum(segment.segment_size_bytes for segment in segments),
                step=Step.PREPARE if Step.PREPARE in steps else Step.NOTHING,
            )

    async def prepare(self, topics: Sequence[str], log_dir: Path) -> None:
        """Prepare the local logs of the topics' partitions that are in a stopped broker's log folder.

        Raises:
            LogDirError: the folder cannot be prepared, or has none of the partitions.
            ExportError: the segments have not been copied.
            AdminClientError, KafkaClusterError, RemoteStorageError: one of the parts did not do its own.
        """
        logs = []
        async with self.storages.at(self.place, self.place_options) as storage:
            for topic in topics:
                for source in self.source.partitions(topic):
                    topic_id = kafka_log_dir.topic_id_in(log_dir, topic, source.partition)
                    if topic_id is None:
                        self.echo(f"{partition_name(topic, source.partition)} is not in {log_dir}")
                    elif source.next_offset:
                        partition = TopicIdPartition(topic_id, topic, source.partition)
                        logs.append(await _local_log(source, partition, storage))
        if not logs:
            raise LogDirError(f"{log_dir} has no partition of {', '.join(topics)} that has to be prepared")
        kafka_log_dir.prepare(log_dir, logs)
        for log in logs:
            self.echo(f"{log.folder_name} begins at offset {log.next_offset}")

    def _target_topic(self, cluster: KafkaCluster, name: str, replication_factor: int) -> Topic:
        """The topic in Kafka, which is created if it is not there."""
        partitions = self.source.partition_count(name)
        topic = cluster.topic(name)
        if topic is None:
            config = kafka_export.topic_config(self.source.config(name))
            topic = cluster.create_topic(name, partitions, replication_factor, config)
            self.echo(f"created {name} in Kafka, with the id {uuid_text(topic.topic_id)}")
        kafka_export.check_topic(name, len(topic.leaders), partitions, cluster.config(name))
        return topic

    async def _copy_all(self, pairs: Sequence[tuple[SourcePartition, TargetPartition]]) -> None:
        async with self.storages.own() as own, self.storages.at(self.place, self.place_options) as storage:
            for source, target in pairs:
                for segment in source.segments:
                    exported = _exported(segment, target.topic_id_partition)
                    copy = SegmentCopy(source=segment, target=exported)
                    await self.storages.retries.do(partial(ensure_copied, copy, own, storage))
                if source.segments:
                    self.echo(
                        f"{partition_name(target.topic_id_partition.topic, source.partition)}: copied "
                        f"{text.counted(len(source.segments), 'segment')}, up to offset {source.next_offset - 1}"
                    )

    def _publish(self, pairs: Sequence[tuple[SourcePartition, TargetPartition]], cluster: KafkaCluster) -> None:
        now_ms = self.storages.clock.now_ms()
        events: list[RemoteLogMetadataEvent] = []
        for source, target in pairs:
            events += kafka_export.unpublished(source, target, now_ms)
        cluster.publish(events)


def _pairs(
    partitions: Sequence[SourcePartition], topic: Topic, cluster: KafkaCluster
) -> list[tuple[SourcePartition, TargetPartition]]:
    starts = cluster.offsets(topic, kafka_cluster.EARLIEST)
    local_starts = cluster.offsets(topic, log_positions.EARLIEST_LOCAL)
    ends = cluster.offsets(topic, kafka_cluster.LATEST)
    leader_epochs = cluster.leader_epochs(topic)
    ids = {source.partition: topic.partition(source.partition) for source in partitions}
    events = cluster.remote_log_events(list(ids.values()))
    return [
        (
            source,
            TargetPartition(
                topic_id_partition=ids[source.partition],
                log_start_offset=starts[source.partition],
                local_log_start_offset=local_starts[source.partition],
                log_end_offset=ends[source.partition],
                broker_id=topic.leaders[source.partition].broker_id,
                leader_epoch=leader_epochs[source.partition],
                states=kafka_export.states_of(events[ids[source.partition]], ids[source.partition]),
            ),
        )
        for source in partitions
    ]


def _verify(partitions: Sequence[SourcePartition], topic: Topic, cluster: KafkaCluster) -> None:
    """Read the first and the last exported record of each partition from Kafka."""
    ends = [
        (source.partition, offset)
        for source in partitions
        if source.segments
        for offset in (source.log_start_offset, source.next_offset - 1)
    ]
    if not cluster.has_records(topic, ends):
        raise ExportError(f"Kafka does not serve all records of {topic.name}: see the logs of its brokers")


async def _local_log(source: SourcePartition, partition: TopicIdPartition, storage: RemoteStorage) -> LocalLog:
    snapshot = producer_snapshot.encode(())
    try:
        for segment in source.segments:
            exported = _exported(segment, partition)
            await storage.fetch(exported, 0, 1)
            snapshot = bytes(await storage.fetch_index(exported, IndexType.PRODUCER_SNAPSHOT))
    except RemoteResourceNotFoundError as error:
        raise ExportError(
            f"not all segments of {partition.name} have been copied yet: run the command with "
            f"--bootstrap first, while the Kafka runs ({error})"
        ) from error
    return LocalLog(
        partition=partition,
        log_start_offset=source.log_start_offset,
        next_offset=source.next_offset,
        producer_snapshot=snapshot,
    )


def _exported(segment: RemoteLogSegmentMetadata, partition: TopicIdPartition) -> RemoteLogSegmentMetadata:
    return kafka_export.exported_metadata(segment, partition, _NO_BROKER, segment.event_timestamp_ms)
