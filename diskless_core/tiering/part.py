"""Tiered storage of one node (KIP-405), as a part: made from its settings, its backends and its neighbours.

The broker gives it the backends that its plugins make; the simulation, tests and benchmarks give it others. What a
Fetch request does with segments is in `fetch`, on top of `Tiering.reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from diskless_core.background import Background, end_backend
from diskless_core.clock import Clock
from diskless_core.clock_watch import ClockWatch
from diskless_core.config.tiering import TieringConfig
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.ledger import CoordinatorLedger
from diskless_core.diskless.shard import DisklessShard
from diskless_core.metrics import Metrics
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.errors import PluginError
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata, RemoteLogMetadataServices
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.segment_compaction import BackendSources, SegmentCompaction
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.tiering.awaited_storage import AwaitedRemoteStorage
from diskless_core.tiering.compaction import CompactionServices, Compactor, compaction_obstacle
from diskless_core.tiering.copies import Copies, SegmentServices
from diskless_core.tiering.index_cache import IndexCache
from diskless_core.tiering.layouts import Layouts, LayoutServices
from diskless_core.tiering.leadership import LeadershipNews
from diskless_core.tiering.remote_reads import RemoteReads
from diskless_core.tiering.removal import DeletionMarks, SegmentRemover
from diskless_core.tiering.retrying import Retries
from diskless_core.tiering.segment_admin import RemoteLog
from diskless_core.tiering.segment_reader import SegmentReader
from diskless_core.tiering.segment_times import SegmentTimes
from diskless_core.tiering.topics import TieredTopics

EngineSource = Callable[[str | None], tuple[str, SegmentCompaction]]
"""The engine of a name, or the chosen one, with its name. Raises PluginError where there is none."""


class CompactionForbiddenError(Exception):
    """Topics are to be compacted periodically, and must not be; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringBackends:
    """The backends of tiered storage, not started.

    Attributes:
        objects: the node's own, which others start and stop.
        sources: what makes `objects` and `remote_storage` in other processes.
    """

    objects: WalObjectStore
    remote_storage: RemoteStorage
    metadata: RemoteLogMetadata
    sources: BackendSources
    engine_of: EngineSource


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringNeighbours:
    """What tiered storage stands on.

    Attributes:
        cluster: the shard that has the topics.
        shards: the diskless shards with a replica on this node.
        log: of these shards.
        having_all: has copies of all these shards that have caught up, as long as it lasts.
        producer_id_expiration_ms: after so long a segment's producer snapshot forgets a producer.
    """

    node_id: int
    cluster_id: str
    cluster: CoordinatorShard[Any]
    shards: Mapping[int, DisklessShard]
    log: CoordinatorLog
    topics: TieredTopics
    producer_id_expiration_ms: int
    clock: Clock
    clock_watch: ClockWatch
    metrics: Metrics
    having_all: Callable[[], AbstractAsyncContextManager[None]] = nullcontext


class Tiering:
    """Reads segments, makes them and removes them.

    Attributes:
        reader: reads segments; `times` looks up their records by time.
        compactor: makes segments on demand, and periodically where `remote.log.storage.system.enable` says so.
        remote_log: the segments that are known.
        layouts: where the records of partitions are.
        remote_storage: where segments are.

    Raises:
        CompactionForbiddenError: topics are to be compacted periodically, and must not be.
    """

    def __init__(self, settings: TieringConfig, backends: TieringBackends, neighbours: TieringNeighbours) -> None:
        obstacle = compaction_obstacle(
            backends.objects, backends.remote_storage, log_is_shared=neighbours.log.is_shared
        )
        if obstacle is not None and settings.remote_log_storage_system_enable:
            raise CompactionForbiddenError(f"remote.log.storage.system.enable=true: {obstacle}")
        clock, metrics, topics = neighbours.clock, neighbours.metrics, neighbours.topics
        retries = Retries(settings, clock)
        segments = self._segments = SegmentServices(
            node_id=neighbours.node_id,
            clock=clock,
            clock_watch=neighbours.clock_watch,
            shards=neighbours.shards,
            metadata=backends.metadata,
            remote_storage=AwaitedRemoteStorage(backends.remote_storage, retries),
            retries=retries,
            metrics=metrics,
        )
        self._settings = settings
        self._neighbours = neighbours
        self._copies = Copies(segments)
        self.remote_storage: RemoteStorage = segments.remote_storage
        self._stack = AsyncExitStack()
        self.reader = segment_reader(settings, segments.remote_storage, backends.metadata, metrics)
        self.times = SegmentTimes(self.reader)
        self.compactor = _compactor(settings, backends, neighbours, segments, self._copies, obstacle)
        self.remote_log = RemoteLog(backends.metadata, topics, clock, neighbours.having_all)
        self.layouts = Layouts(
            LayoutServices(
                cluster=neighbours.cluster,
                shards=neighbours.shards,
                topics=topics,
                metadata=backends.metadata,
                having_all=neighbours.having_all,
            )
        )

    async def start(self) -> None:
        """Start the backends and the loops. A remote storage that cannot be reached is started when it can be.

        Raises:
            RemoteStorageError, RemoteLogMetadataError: a backend cannot start; `stop` stops what has been started.
        """
        settings, neighbours, segments, stack = self._settings, self._neighbours, self._segments, self._stack
        ledger = CoordinatorLedger(neighbours.shards, neighbours.topics.shard_of)
        stack.push_async_callback(end_backend, "remote_storage", segments.remote_storage)
        await segments.remote_storage.start()
        await segments.metadata.start(RemoteLogMetadataServices(cluster_id=neighbours.cluster_id, ledger=ledger))
        stack.push_async_callback(segments.metadata.stop)
        marks = DeletionMarks(segments.metadata, segments.node_id, segments.clock)
        for shard in neighbours.shards.values():
            shard.before_deletion(partial(marks.mark, shard))
        stack.push_async_callback(self.compactor.stop)
        stack.push_async_callback(self.reader.stop)
        loops = Background()
        stack.push_async_callback(loops.stop)
        remover = SegmentRemover(segments, self._copies, ledger.leads, settings, neighbours.having_all)
        loops.run(remover.run, "segment removal")
        news = LeadershipNews(neighbours.shards.values(), segments.metadata, segments.retries)
        loops.run(news.run, "leadership of segments")
        if settings.remote_log_storage_system_enable:
            loops.run(partial(self.compactor.run, settings.remote_log_manager_task_interval_ms), "compaction")

    async def stop(self) -> None:
        """Stop all that `start` has started."""
        await self._stack.aclose()

    def is_tiered(self, partition: PartitionKey) -> bool:
        """Whether a partition's topic is compacted periodically."""
        tiering = self._neighbours.topics.tiering_of(partition)
        return tiering is not None and tiering.is_tiered


def segment_reader(
    settings: TieringConfig, remote_storage: RemoteStorage, metadata: RemoteLogMetadata, metrics: Metrics
) -> SegmentReader:
    """Reads segments within the limits that are set on requests and memory. The caller stops it."""
    reads = RemoteReads(
        remote_storage,
        at_once=settings.remote_log_reader_threads,
        max_waiting=settings.remote_log_reader_max_pending_tasks,
        metrics=metrics,
    )
    indexes = IndexCache(reads, settings.remote_log_index_file_cache_total_size_bytes)
    return SegmentReader(metadata, reads, indexes, settings.diskless_segment_cache_max_bytes)


def _compactor(
    settings: TieringConfig,
    backends: TieringBackends,
    neighbours: TieringNeighbours,
    segments: SegmentServices,
    copies: Copies,
    obstacle: str | None,
) -> Compactor:
    """With an `obstacle` it compacts nothing."""

    def require_allowed() -> None:
        if obstacle is not None:
            raise PluginError(obstacle)

    def engine_of(name: str | None) -> tuple[str, SegmentCompaction]:
        require_allowed()
        return backends.engine_of(name)

    return Compactor(
        CompactionServices(
            cluster=neighbours.cluster,
            segments=segments,
            copies=copies,
            objects=backends.objects,
            backends=backends.sources,
            topic_of=neighbours.topics.tiering_of,
            is_topic=lambda name: neighbours.topics.id_of(name) is not None,
            require_allowed=require_allowed,
            engine_of=engine_of,
            parallel_partitions=settings.remote_log_manager_copier_thread_pool_size,
            producer_id_expiration_ms=neighbours.producer_id_expiration_ms,
            driver_session_timeout_ms=settings.diskless_compaction_driver_session_timeout_ms,
        )
    )
