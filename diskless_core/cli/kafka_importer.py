"""The steps of an import from Apache Kafka: what `kafka_import` decides is done here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from diskless_core.cli import kafka_cluster
from diskless_core.cli.kafka_cluster import KafkaCluster, Topic
from diskless_core.cli.remote_storages import RemoteStorages
from diskless_core.log import leader_epochs
from diskless_core.log.leader_epochs import CorruptCheckpointError
from diskless_core.plugin.remote_storage import IndexType, RemoteStorage
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, TopicIdPartition
from diskless_core.tiering.migration import coverage, kafka_import
from diskless_core.tiering.migration.kafka_import import TopicImportError
from diskless_core.tiering.migration.segment_copy import SegmentCopy, copy_segment


class ImportTarget(Protocol):
    """A running Diskless, as far as an import asks it; errors as `TieringClient`."""

    def ensure_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> Topic:
        """The topic, created if it is not there."""
        ...

    def segments(self, topic: Topic) -> Mapping[int, Sequence[RemoteLogSegmentMetadata]]:
        """The complete segments that it has, by partition."""
        ...

    def adopt(
        self, partition: TopicIdPartition, log_start_offset: int, segments: Sequence[RemoteLogSegmentMetadata]
    ) -> None:
        """Let an empty partition have segments that lie in its remote storage; again, it changes nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """What was imported of a partition.

    Attributes:
        next_offset: where it ends in Diskless.
        log_end_offset: where it ends in Kafka; records between the two are not imported.
    """

    topic: str
    partition: int
    segments: int
    size_bytes: int
    next_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    partition: int
    log_start_offset: int
    log_end_offset: int
    segments: Sequence[RemoteLogSegmentMetadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """Imports topics into one Diskless cluster.

    Attributes:
        place: where the Kafka has its segments, with settings of its storage in `place_options`.
        echo: is told of progress, a line at a time.
    """

    target: ImportTarget
    storages: RemoteStorages
    place: str
    place_options: Sequence[str]
    echo: Callable[[str], None]

    async def import_topics(self, topics: Sequence[str], bootstrap: str) -> list[PartitionReport]:
        """Copy what the Kafka has in segments, and have Diskless adopt it. Done again, it does what is left.

        Raises:
            TopicImportError: a topic cannot be imported like this.
            SegmentDamagedError: a segment of the Kafka is damaged.
            AdminClientError, KafkaClusterError, RemoteStorageError: one of the parts did not do its own.
        """
        reports = []
        with closing(KafkaCluster(bootstrap)) as cluster:
            async with self.storages.own() as own, self.storages.at(self.place, self.place_options) as storage:
                for name in topics:
                    source = cluster.topic(name)
                    if source is None:
                        raise TopicImportError(f"there is no topic {name} in Kafka")
                    plans = await self._plans(source, cluster, storage)
                    target = self._target_topic(source, cluster)
                    known = self.target.segments(target)
                    for plan in plans:
                        await self._adopt(target.partition(plan.partition), plan, known, storage, own)
                        reports.append(_report(name, plan))
        return reports

    def _target_topic(self, source: Topic, cluster: KafkaCluster) -> Topic:
        """The topic in Diskless, which is created if it is not there."""
        config = kafka_import.topic_config(cluster.own_config(source.name))
        target = self.target.ensure_topic(source.name, len(source.leaders), config)
        if len(target.leaders) != len(source.leaders):
            raise TopicImportError(
                f"{source.name} has {len(source.leaders)} partitions in Kafka and {len(target.leaders)} in Diskless"
            )
        return target

    async def _plans(self, topic: Topic, cluster: KafkaCluster, storage: RemoteStorage) -> list[_Plan]:
        starts = cluster.offsets(topic, kafka_cluster.EARLIEST)
        ends = cluster.offsets(topic, kafka_cluster.LATEST)
        events = cluster.remote_log_events([topic.partition(partition) for partition in topic.leaders])
        return [
            _Plan(
                partition=partition.partition,
                log_start_offset=starts[partition.partition],
                log_end_offset=ends[partition.partition],
                segments=await _importable(partition, noted, starts[partition.partition], storage),
            )
            for partition, noted in sorted(
                (partition, kafka_import.finished_segments(partition, noted)) for partition, noted in events.items()
            )
        ]

    async def _adopt(
        self,
        partition: TopicIdPartition,
        plan: _Plan,
        known: Mapping[int, Sequence[RemoteLogSegmentMetadata]],
        source: RemoteStorage,
        own: RemoteStorage,
    ) -> None:
        there = {segment.segment_id.id: segment for segment in known.get(plan.partition, ())}
        if not plan.segments and not there:
            return
        segments = [
            there.get(segment.segment_id.id) or await self._copied(segment, partition, source, own)
            for segment in plan.segments
        ]
        # also where all are there: it is the coordinator that says whether the partition has them
        self.target.adopt(partition, plan.log_start_offset, segments)
        self.echo(f"{partition.name}: imported {len(segments)} segments")

    async def _copied(
        self, segment: RemoteLogSegmentMetadata, partition: TopicIdPartition, source: RemoteStorage, own: RemoteStorage
    ) -> RemoteLogSegmentMetadata:
        imported = kafka_import.imported_metadata(segment, partition)
        copy = SegmentCopy(source=segment, target=imported)
        custom_metadata = await self.storages.retries.do(partial(copy_segment, copy, source, own))
        return replace(imported, custom_metadata=custom_metadata)


async def _importable(
    partition: TopicIdPartition,
    segments: Sequence[RemoteLogSegmentMetadata],
    log_start_offset: int,
    storage: RemoteStorage,
) -> list[RemoteLogSegmentMetadata]:
    if not segments:
        return []
    checkpoint = await storage.fetch_index(coverage.latest(segments), IndexType.LEADER_EPOCH)
    try:
        lineage = leader_epochs.decode(bytes(checkpoint))
    except CorruptCheckpointError as error:
        raise TopicImportError(f"a segment of {partition.name} is damaged: {error}") from error
    return kafka_import.importable(partition, segments, log_start_offset, lineage)


def _report(topic: str, plan: _Plan) -> PartitionReport:
    return PartitionReport(
        topic=topic,
        partition=plan.partition,
        segments=len(plan.segments),
        size_bytes=sum(segment.segment_size_bytes for segment in plan.segments),
        next_offset=plan.segments[-1].end_offset + 1 if plan.segments else 0,
        log_end_offset=plan.log_end_offset,
    )
