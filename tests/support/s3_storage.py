"""A remote storage in S3 that is quick to start."""

from __future__ import annotations

from dataclasses import replace

from aiobotocore.session import AioSession

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_fsspec.bucket_segments import BucketSegmentStore
from diskless_fsspec.config import FsspecRemoteStorageSettings
from diskless_fsspec.factory import make_segment_store
from diskless_fsspec.remote_storage import FsspecRemoteStorage
from diskless_fsspec.s3_store import S3ObjectStore


def make_s3_storage(context: PluginContext, endpoint_url: str, bucket: str, session: AioSession) -> RemoteStorage:
    """One below `s3://<bucket>/some/place`. The session has what botocore has read of S3's description, for long."""
    settings = FsspecRemoteStorageSettings(
        url=f"s3://{bucket}/some/place/",
        endpoint_url=endpoint_url,
        region="us-east-1",
        key="test-key",
        secret="hush-hush",
    )
    made = make_segment_store(context, settings)
    assert isinstance(made, BucketSegmentStore)
    options = made.objects.options
    arguments = {**options.arguments, "session": session}
    return FsspecRemoteStorage(BucketSegmentStore(S3ObjectStore(replace(options, arguments=arguments))))
