"""Makes a node's compactor from its configuration and plugins."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from diskless_core.broker.tiering import TieringServices
from diskless_core.clock import Clock
from diskless_core.cluster import tiering_configs
from diskless_core.cluster.topics import Topics
from diskless_core.config.load import LoadedConfig
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.metrics import Metrics
from diskless_core.plugin.context import ContextFactory
from diskless_core.plugin.errors import PluginError
from diskless_core.plugin.hookspecs import REMOTE_STORAGE, SEGMENT_COMPACTION, WAL_OBJECT_STORE
from diskless_core.plugin.manager import PluginManager, SelectedPlugin
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.segment_compaction import BackendSources, SegmentCompaction
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.tiering.compaction import CompactionServices, Compactor, TopicTiering
from diskless_core.tiering.copies import CopyServices
from diskless_core.tiering.retrying import Retries

EngineSource = Callable[[str | None], tuple[str, SegmentCompaction]]
"""The engine of a name, or the chosen one, with its name. Raises PluginError where there is none, or must not be."""

PermissionCheck = Callable[[], None]
"""Raises PluginError where nothing may be compacted."""


def compaction_obstacle(objects: WalObjectStore, remote_storage: RemoteStorage) -> str | None:
    """Why nothing may be compacted: records would be less safe than they are. None if they would not."""
    if remote_storage.is_process_local and not objects.is_process_local:
        place = "the memory of this process, where they are lost when it ends"
    elif remote_storage.is_node_local and not objects.is_node_local:
        place = "the disk of this broker, where they are lost with it"
    else:
        return None
    return (
        f"a compaction would move records out of the WAL object store to {place} and other brokers cannot read them: "
        "set remote_storage to a place that all brokers share, such as remote_storage.fsspec.url=s3://bucket/prefix"
    )


def compaction_engines(
    loaded: LoadedConfig, plugins: PluginManager, context: ContextFactory, require_allowed: PermissionCheck
) -> EngineSource:
    """Makes engines when they are asked for, each once; the chosen one with its settings, others with defaults."""
    made: dict[str, SegmentCompaction] = {}

    def engine_of(name: str | None) -> tuple[str, SegmentCompaction]:
        require_allowed()
        chosen = loaded.plugins[SEGMENT_COMPACTION.name]
        wanted = name or chosen.descriptor.name
        if wanted not in made:
            if wanted != chosen.descriptor.name:
                descriptor = plugins.get(SEGMENT_COMPACTION.name, wanted).descriptor
                chosen = SelectedPlugin(descriptor, descriptor.settings())
            made[wanted] = plugins.create(SEGMENT_COMPACTION, {SEGMENT_COMPACTION.name: chosen}, context)
        return wanted, made[wanted]

    return engine_of


def backend_sources(
    loaded: LoadedConfig, plugins: PluginManager, context: ContextFactory, retries: Retries
) -> BackendSources:
    """What makes the backends of a compaction in other processes."""
    return BackendSources(
        objects=plugins.source(WAL_OBJECT_STORE, loaded.plugins, context),
        remote_storage=plugins.source(REMOTE_STORAGE, loaded.plugins, context),
        backoff=retries.backoff,
    )


def build_compactor(
    loaded: LoadedConfig,
    tiering: TieringServices,
    *,
    obstacle: str | None,
    plugins: PluginManager,
    context: ContextFactory,
    shards: Mapping[int, DisklessShard],
    topics: Topics,
    objects: WalObjectStore,
    clock: Clock,
    metrics: Metrics,
) -> Compactor:
    """The compactor of a node; whoever makes it stops it. With an `obstacle` it compacts nothing."""
    config, retries = loaded.broker, Retries(tiering.settings, clock)

    def require_allowed() -> None:
        if obstacle is not None:
            raise PluginError(obstacle)

    copies = CopyServices(
        node_id=config.node_id,
        clock=clock,
        shards=shards,
        metadata=tiering.metadata,
        remote_storage=tiering.remote_storage,
        retries=retries,
        metrics=metrics,
    )
    return Compactor(
        CompactionServices(
            copies=copies,
            objects=objects,
            backends=backend_sources(loaded, plugins, context, retries),
            topic_of=topic_of(topics),
            require_allowed=require_allowed,
            engine_of=compaction_engines(loaded, plugins, context, require_allowed),
            parallel_partitions=tiering.settings.remote_log_manager_copier_thread_pool_size,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            driver_session_timeout_ms=tiering.settings.diskless_compaction_driver_session_timeout_ms,
        )
    )


def topic_of(topics: Topics) -> Callable[[PartitionKey], TopicTiering | None]:
    """What a partition's topic says of its segments; None when there is no such topic."""

    def tiering_of(partition: PartitionKey) -> TopicTiering | None:
        info = topics.by_id(uuid.UUID(bytes=partition.topic_id))
        if info is None:
            return None
        configs = info.effective_configs
        return TopicTiering(
            topic=info.name,
            rules=tiering_configs.segment_rules(configs),
            is_tiered=tiering_configs.is_tiered(configs),
        )

    return tiering_of
