"""Which implementation serves which URL, and how settings become its arguments. Makes stores, opens nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_fsspec.config import FsspecSettings

DEFAULT_FOLDER = "wal-objects"


def make_store(context: PluginContext, settings: FsspecSettings) -> WalObjectStore:
    """The store for the settings' URL."""
    match urlsplit(settings.url).scheme:
        case "" | "file":
            return _local(context, settings)
        case "s3" | "s3a":
            return _s3(settings)
        case "gs" | "gcs":
            return _gcs(settings)
        case scheme:
            return _other(context, settings, scheme)


def _local(context: PluginContext, settings: FsspecSettings) -> WalObjectStore:
    from diskless_fsspec.local_store import LocalObjectStore

    folder = Path(unquote(urlsplit(settings.url).path)) if settings.url else context.log_dir / DEFAULT_FOLDER
    return LocalObjectStore(folder, node_id=context.node_id, clock=context.clock, threads=settings.threads)


def _s3(settings: FsspecSettings) -> WalObjectStore:
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


def _gcs(settings: FsspecSettings) -> WalObjectStore:
    from diskless_fsspec.bucket_store import BucketOptions
    from diskless_fsspec.gcs_store import GcsObjectStore

    arguments = {"endpoint_url": settings.endpoint_url or None} | settings.parsed_options()
    return GcsObjectStore(
        BucketOptions(url=settings.url, arguments=arguments, timeout_s=settings.request_timeout_ms / 1000)
    )


def _other(context: PluginContext, settings: FsspecSettings, scheme: str) -> WalObjectStore:
    from diskless_fsspec.sync_store import SyncFilesystemStore

    return SyncFilesystemStore(
        settings.url,
        settings.parsed_options(),
        node_id=context.node_id,
        clock=context.clock,
        threads=settings.threads,
        billed=scheme != "memory",
    )


def _merged(defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """`given` over `defaults`, and where both are dictionaries, key by key."""
    both = {key: defaults[key] | given[key] for key in defaults.keys() & given.keys() if isinstance(given[key], dict)}
    return defaults | given | both
