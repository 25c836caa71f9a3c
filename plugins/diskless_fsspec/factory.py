"""Which implementation serves which URL, and how settings become its arguments. Makes backends, opens nothing."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.wal_object_store import WalObjectStore, WalObjectStoreError
from diskless_fsspec.config import FsspecConnection, FsspecRemoteStorageSettings, FsspecSettings

if TYPE_CHECKING:
    from diskless_fsspec.bucket_store import BucketStore
    from diskless_fsspec.segments import SegmentStore
    from diskless_fsspec.sync_store import SyncFilesystemStore

WAL_OBJECTS = "wal-objects"
SEGMENTS = "remote-storage"
"""Folders in the first of `log.dirs`, where no URL is configured."""

_NODE_LOCAL = ("", "file", "local", "memory")
"""Schemes of what no other machine sees; a mount of a network file system is not told apart."""


def make_store(context: PluginContext, settings: FsspecSettings) -> WalObjectStore:
    """The object store for the settings' URL."""
    match urlsplit(settings.url).scheme:
        case "" | "file":
            from diskless_fsspec.local_store import LocalObjectStore

            root = _folder(context, settings, WAL_OBJECTS)
            return LocalObjectStore(root, node_id=context.node_id, clock=context.clock, threads=settings.threads)
        case "s3" | "s3a" | "gs" | "gcs":
            return _bucket(context, settings)
        case scheme:
            return _sync_store(scheme)(
                settings.url,
                settings.parsed_options(),
                node_id=context.node_id,
                clock=context.clock,
                threads=settings.threads,
                billed=scheme != "memory",
                node_local=scheme in _NODE_LOCAL,
                process_local=scheme == "memory",
            )


def make_remote_storage(context: PluginContext, settings: FsspecRemoteStorageSettings) -> RemoteStorage:
    """The remote storage for the settings' URL."""
    from diskless_fsspec.remote_storage import FsspecRemoteStorage

    scheme = urlsplit(settings.url).scheme
    return FsspecRemoteStorage(
        make_segment_store(context, settings),
        node_local=scheme in _NODE_LOCAL,
        process_local=scheme == "memory",
        broker_local=not settings.url,
    )


def make_segment_store(context: PluginContext, settings: FsspecRemoteStorageSettings) -> SegmentStore:
    """The place for segments at the settings' URL."""
    match urlsplit(settings.url).scheme:
        case "" | "file":
            from diskless_fsspec.local_segments import LocalSegmentStore

            root = _folder(context, settings, SEGMENTS)
            return LocalSegmentStore(root, clock=context.clock, threads=settings.threads)
        case "s3" | "s3a" | "gs" | "gcs":
            from diskless_fsspec.bucket_segments import BucketSegmentStore

            return BucketSegmentStore(_bucket(context, settings))
        case _:
            from diskless_fsspec.sync_segments import SyncSegmentStore

            options = settings.parsed_options()
            return SyncSegmentStore(settings.url, options, clock=context.clock, threads=settings.threads)


def _sync_store(scheme: str) -> type[SyncFilesystemStore]:
    if scheme == "memory":
        from diskless_fsspec.memory_store import MemoryObjectStore

        return MemoryObjectStore
    from diskless_fsspec.sync_store import SyncFilesystemStore

    return SyncFilesystemStore


def _folder(context: PluginContext, settings: FsspecConnection, default: str) -> Path:
    return Path(unquote(urlsplit(settings.url).path)) if settings.url else context.log_dir / default


def _bucket(context: PluginContext, settings: FsspecConnection) -> BucketStore:
    is_google = urlsplit(settings.url).scheme in ("gs", "gcs")
    client, extra, make = ("gcsfs", "gcs", _gcs) if is_google else ("s3fs", "s3", _s3)
    if find_spec(client) is None:  # to import it takes long, so that is left to `start`
        raise WalObjectStoreError(
            f"{client} is not installed; this url needs an extra: pip install 'diskless[{extra}]'", retriable=False
        )
    return make(context, settings)


def _s3(_context: PluginContext, settings: FsspecConnection) -> BucketStore:
    from diskless_fsspec.bucket_store import BucketOptions
    from diskless_fsspec.s3_store import S3ObjectStore

    timeout_s = settings.request_timeout_ms / 1000
    arguments: dict[str, Any] = {
        "endpoint_url": settings.endpoint_url or None,
        "key": settings.key.get_secret_value() if settings.key else None,
        "secret": settings.secret.get_secret_value() if settings.secret else None,
        "client_kwargs": {"region_name": settings.region} if settings.region else {},
        "config_kwargs": {
            "max_pool_connections": settings.max_connections,
            "read_timeout": timeout_s,
            # The core tries again, with back-off.
            "retries": {"total_max_attempts": 1},
        },
    }
    return S3ObjectStore(
        BucketOptions(url=settings.url, arguments=_merged(arguments, settings.parsed_options()), timeout_s=timeout_s)
    )


def _gcs(context: PluginContext, settings: FsspecConnection) -> BucketStore:
    from diskless_fsspec.bucket_store import BucketOptions
    from diskless_fsspec.gcs_store import GcsObjectStore

    arguments = {"endpoint_url": settings.endpoint_url or None} | settings.parsed_options()
    return GcsObjectStore(
        BucketOptions(url=settings.url, arguments=arguments, timeout_s=settings.request_timeout_ms / 1000),
        context.clock,
    )


def _merged(defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """`given` over `defaults`, and where both are dictionaries, key by key."""
    both = {key: defaults[key] | given[key] for key in defaults.keys() & given.keys() if isinstance(given[key], dict)}
    return defaults | given | both
