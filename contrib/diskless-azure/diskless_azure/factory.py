"""Makes backends from settings. Opens nothing, imports nothing of Azure's."""

from __future__ import annotations

from diskless_azure.config import AzureRemoteStorageSettings, AzureSettings
from diskless_azure.container import AzureContainer
from diskless_azure.object_store import AzureObjectStore
from diskless_azure.remote_storage import AzureRemoteStorage
from diskless_core.plugin.context import PluginContext


def make_store(context: PluginContext, settings: AzureSettings) -> AzureObjectStore:
    """The object store of `wal_object_store=azure`."""
    return AzureObjectStore(AzureContainer(settings, context.clock))


def make_remote_storage(context: PluginContext, settings: AzureRemoteStorageSettings) -> AzureRemoteStorage:
    """The remote storage of `remote_storage=azure`."""
    return AzureRemoteStorage(AzureObjectStore(AzureContainer(settings, context.clock)))
