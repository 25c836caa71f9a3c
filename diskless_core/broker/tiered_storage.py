"""All of tiered storage on one node (KIP-405): its backends, what reads segments, makes them and removes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from diskless_core.broker.compaction import build_compactor, compaction_obstacle, topic_of
from diskless_core.broker.coordinators import Coordinators
from diskless_core.broker.errors import StartError
from diskless_core.broker.remote_log import RemoteLog
from diskless_core.broker.segments import SegmentReads, segment_reads, segment_removal
from diskless_core.broker.tiering import start_backends
from diskless_core.clock import Clock
from diskless_core.cluster.topics import Topics
from diskless_core.config.load import LoadedConfig
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.ledger import CoordinatorLedger
from diskless_core.fetch.object_reader import ObjectReader
from diskless_core.fetch.offset_range_check import OffsetRangeCheck
from diskless_core.metrics import Metrics
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.plugin_host.contexts import ContextFactory
from diskless_core.plugin_host.manager import PluginManager
from diskless_core.tiering.compaction import Compactor
from diskless_core.tiering.compaction_worker import CompactionWorker
from diskless_core.tiering.deletion_marks import DeletionMarks
from diskless_core.tiering.layouts import Layouts, LayoutServices

Loop = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """What tiered storage stands on."""

    loaded: LoadedConfig
    plugins: PluginManager
    context: ContextFactory
    cluster_id: str
    coordinators: Coordinators
    topics: Topics
    objects: WalObjectStore
    reader: ObjectReader
    positions: OffsetRangeCheck
    clock: Clock
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredStorage:
    """What the rest of the node uses of it.

    Attributes:
        is_tiered: whether a partition's topic is compacted by and by.
        loops: to be run, by these names, until the node stops.
    """

    reads: SegmentReads
    is_tiered: Callable[[PartitionKey], bool]
    compactor: Compactor
    remote_log: RemoteLog
    layouts: Layouts
    loops: Mapping[str, Loop]


async def start_tiered_storage(parts: NodeParts, stack: AsyncExitStack) -> TieredStorage:
    """Start the backends and make everything on top of them; `stack` stops it.

    Raises:
        StartError: topics are to be compacted by and by, and must not be.
        RemoteStorageError, RemoteLogMetadataError, PluginFactoryError: a backend cannot start.
    """
    config = parts.loaded.broker
    ledger = CoordinatorLedger(parts.coordinators.diskless, parts.topics.shard_of)
    services = await start_backends(
        parts.loaded,
        parts.plugins,
        parts.context,
        cluster_id=parts.cluster_id,
        ledger=ledger,
        clock=parts.clock,
        stack=stack,
    )
    obstacle = compaction_obstacle(parts.objects, services.remote_storage)
    if obstacle is not None and config.remote_log_storage_system_enable:
        raise StartError(f"remote.log.storage.system.enable=true: {obstacle}")
    marks = DeletionMarks(services.metadata, config.node_id, parts.clock)
    for shard in parts.coordinators.diskless.values():
        shard.before_deletion(partial(marks.mark, shard))
    compactor = build_compactor(
        parts.loaded,
        services,
        obstacle=obstacle,
        plugins=parts.plugins,
        context=parts.context,
        shards=parts.coordinators.diskless,
        topics=parts.topics,
        objects=parts.objects,
        clock=parts.clock,
        metrics=parts.metrics,
    )
    stack.push_async_callback(compactor.stop)
    remover, news = segment_removal(
        services,
        parts.coordinators.diskless,
        ledger.leads,
        node_id=config.node_id,
        clock=parts.clock,
        metrics=parts.metrics,
    )
    loops: dict[str, Loop] = {"segment removal": remover, "leadership of segments": news}
    if config.remote_log_storage_system_enable:
        loops["compaction"] = CompactionWorker(compactor, config.remote_log_manager_task_interval_ms).run
    return TieredStorage(
        reads=segment_reads(services, parts.reader, parts.positions, parts.metrics, stack),
        is_tiered=_is_tiered(parts.topics),
        compactor=compactor,
        remote_log=RemoteLog(services.metadata, parts.topics, parts.clock),
        layouts=Layouts(
            LayoutServices(
                cluster=parts.coordinators.cluster,
                shards=parts.coordinators.diskless,
                log=parts.coordinators.log,
                topics=parts.topics,
                metadata=services.metadata,
            )
        ),
        loops=loops,
    )


def _is_tiered(topics: Topics) -> Callable[[PartitionKey], bool]:
    tiering_of = topic_of(topics)

    def is_tiered(partition: PartitionKey) -> bool:
        tiering = tiering_of(partition)
        return tiering is not None and tiering.is_tiered

    return is_tiered
