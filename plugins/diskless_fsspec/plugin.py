"""Hook implementations of the fsspec plugin. Clients of object stores are imported when one is used."""

from __future__ import annotations

from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.remote_storage import RemoteStoragePlugin
from diskless_core.plugin.wal_object_store import WalObjectStorePlugin
from diskless_fsspec.config import FsspecRemoteStorageSettings, FsspecSettings
from diskless_fsspec.factory import make_remote_storage, make_store
from diskless_fsspec.place_apart import below_url


@hookimpl
def diskless_wal_object_stores() -> list[WalObjectStorePlugin]:
    """The default object store: any URL that fsspec knows."""
    return [
        WalObjectStorePlugin(
            name="fsspec",
            factory=make_store,
            settings=FsspecSettings,
            api_version="1.0",
            help="WAL objects in a folder, in S3, in Google Cloud Storage, or wherever else fsspec reaches.",
            place_apart=below_url,
        )
    ]


@hookimpl
def diskless_remote_storages() -> list[RemoteStoragePlugin]:
    """The default remote storage: any URL that fsspec knows."""
    return [
        RemoteStoragePlugin(
            name="fsspec",
            factory=make_remote_storage,
            settings=FsspecRemoteStorageSettings,
            api_version="1.0",
            help="Segments in a folder, in S3, in Google Cloud Storage, or wherever else fsspec reaches.",
            place_apart=below_url,
        )
    ]
