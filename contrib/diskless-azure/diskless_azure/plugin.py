"""Hook implementations. Azure's client library is imported when a backend starts."""

from __future__ import annotations

from diskless_azure.config import AzureRemoteStorageSettings, AzureSettings
from diskless_azure.factory import make_remote_storage, make_store
from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.remote_storage import RemoteStoragePlugin
from diskless_core.plugin.wal_object_store import WalObjectStorePlugin


@hookimpl
def diskless_wal_object_stores() -> list[WalObjectStorePlugin]:
    """WAL objects as block blobs, written on condition too."""
    return [
        WalObjectStorePlugin(
            name="azure",
            factory=make_store,
            settings=AzureSettings,
            api_version="1.0",
            help="WAL objects in a container of Azure Blob Storage.",
        )
    ]


@hookimpl
def diskless_remote_storages() -> list[RemoteStoragePlugin]:
    """Segments as block blobs."""
    return [
        RemoteStoragePlugin(
            name="azure",
            factory=make_remote_storage,
            settings=AzureRemoteStorageSettings,
            api_version="1.0",
            help="Segments in a container of Azure Blob Storage.",
        )
    ]
