"""Makes the parts of tiered storage (KIP-405) from a broker's configuration, starts and stops them in order."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass

from diskless_core.config.load import LoadedConfig
from diskless_core.config.tiering import TieringConfig
from diskless_core.plugin.hookspecs import REMOTE_LOG_METADATA, REMOTE_STORAGE
from diskless_core.plugin.manager import ContextFactory, PluginManager
from diskless_core.plugin.remote_log_metadata import RemoteLogLedger, RemoteLogMetadata, RemoteLogMetadataServices
from diskless_core.plugin.remote_storage import RemoteStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringServices:
    """What the parts of tiered storage share. Both backends are started."""

    remote_storage: RemoteStorage
    metadata: RemoteLogMetadata
    settings: TieringConfig


async def start_backends(
    loaded: LoadedConfig,
    plugins: PluginManager,
    context: ContextFactory,
    *,
    cluster_id: str,
    ledger: RemoteLogLedger,
    stack: AsyncExitStack,
) -> TieringServices:
    """Make and start the chosen backends; `stack` stops them.

    Raises:
        RemoteStorageError, RemoteLogMetadataError, PluginFactoryError: one of them cannot start.
    """
    remote_storage = plugins.create(REMOTE_STORAGE, loaded.plugins, context)
    await remote_storage.start()
    stack.push_async_callback(remote_storage.stop)
    metadata = plugins.create(REMOTE_LOG_METADATA, loaded.plugins, context)
    await metadata.start(RemoteLogMetadataServices(cluster_id=cluster_id, ledger=ledger))
    stack.push_async_callback(metadata.stop)
    return TieringServices(remote_storage=remote_storage, metadata=metadata, settings=loaded.broker)
