"""Makes the backends of tiered storage from the plugins that a configuration chooses."""

from __future__ import annotations

from diskless_core.clock import Clock
from diskless_core.config.load import LoadedConfig
from diskless_core.plugin.segment_compaction import BackendSources, SegmentCompaction
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.plugin_host.contexts import ContextFactory
from diskless_core.plugin_host.manager import PluginManager, SelectedPlugin
from diskless_core.plugin_host.nouns import REMOTE_LOG_METADATA, REMOTE_STORAGE, SEGMENT_COMPACTION, WAL_OBJECT_STORE
from diskless_core.tiering.part import EngineSource, TieringBackends
from diskless_core.tiering.retrying import Retries


def tiering_backends(
    loaded: LoadedConfig, plugins: PluginManager, context: ContextFactory, objects: WalObjectStore, clock: Clock
) -> TieringBackends:
    """The backends of a broker; the engines are made when they are asked for.

    Raises:
        PluginFactoryError: one of them cannot be made.
    """
    return TieringBackends(
        objects=objects,
        remote_storage=plugins.create(REMOTE_STORAGE, loaded.plugins, context),
        metadata=plugins.create(REMOTE_LOG_METADATA, loaded.plugins, context),
        sources=backend_sources(loaded, plugins, context, Retries(loaded.broker, clock)),
        engine_of=compaction_engines(loaded, plugins, context),
    )


def backend_sources(
    loaded: LoadedConfig, plugins: PluginManager, context: ContextFactory, retries: Retries
) -> BackendSources:
    """What makes the backends of a compaction in other processes."""
    return BackendSources(
        objects=plugins.source(WAL_OBJECT_STORE, loaded.plugins, context),
        remote_storage=plugins.source(REMOTE_STORAGE, loaded.plugins, context),
        backoff=retries.backoff,
    )


def compaction_engines(loaded: LoadedConfig, plugins: PluginManager, context: ContextFactory) -> EngineSource:
    """Makes engines when they are asked for, each once; the chosen one with its settings, others with defaults."""
    made: dict[str, SegmentCompaction] = {}

    def engine_of(name: str | None) -> tuple[str, SegmentCompaction]:
        chosen = loaded.plugins[SEGMENT_COMPACTION.name]
        wanted = name or chosen.descriptor.name
        if wanted not in made:
            if wanted != chosen.descriptor.name:
                descriptor = plugins.get(SEGMENT_COMPACTION.name, wanted).descriptor
                chosen = SelectedPlugin(descriptor, descriptor.settings())
            made[wanted] = plugins.create(SEGMENT_COMPACTION, {SEGMENT_COMPACTION.name: chosen}, context)
        return wanted, made[wanted]

    return engine_of
