"""A remote storage in S3."""

from __future__ import annotations

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_fsspec.config import FsspecRemoteStorageSettings
from diskless_fsspec.factory import make_segment_store
from diskless_fsspec.remote_storage import FsspecRemoteStorage


def make_s3_storage(context: PluginContext, endpoint_url: str, bucket: str) -> RemoteStorage:
    """One below `s3://<bucket>/some/place`."""
    settings = FsspecRemoteStorageSettings(
        url=f"s3://{bucket}/some/place/",
        endpoint_url=endpoint_url,
        region="us-east-1",
        key="test-key",
        secret="hush-hush",
    )
    return FsspecRemoteStorage(make_segment_store(context, settings))
