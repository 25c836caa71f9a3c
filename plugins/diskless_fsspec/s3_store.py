"""WAL objects in S3 and what speaks its protocol, through s3fs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from itertools import islice
from typing import Any

from diskless_core.plugin.wal_object_store import ObjectInfo, VersionedObject
from diskless_fsspec import s3_conditions
from diskless_fsspec.bucket_store import BucketStore, ListedPage, filesystem_class
from diskless_fsspec.object_upload import ObjectUpload
from diskless_fsspec.s3_upload import S3Upload, forget_uploads

logger = logging.getLogger(__name__)

DELETED_AT_ONCE = 1000
"""Keys that one DeleteObjects request may name."""


class S3ObjectStore(BucketStore):
    """An S3 bucket, or a part of one."""

    async def connect(self) -> Any:
        make = await filesystem_class("s3fs", "S3FileSystem", "s3")
        filesystem = make(asynchronous=True, skip_instance_cache=True, **self.options.arguments)
        filesystem.retries = 1
        if filesystem.session is None:
            filesystem.session = _session(**filesystem.kwargs)
        await filesystem.set_session()
        return filesystem

    async def disconnect(self, filesystem: Any) -> None:
        await filesystem.s3.close()

    async def list_page(self, prefix: str, token: str | None, limit: int) -> ListedPage:
        resume = {} if token is None else {"ContinuationToken": token}
        answer = await self.call(
            "call_s3", "list_objects_v2", Bucket=self.bucket, Prefix=prefix, MaxKeys=limit, **resume
        )
        objects = [
            ObjectInfo(found["Key"], found["Size"], int(found["LastModified"].timestamp() * 1000))
            for found in answer.get("Contents", ())
        ]
        return ListedPage(objects, answer.get("NextContinuationToken"))

    async def delete_names(self, names: Sequence[str]) -> set[str]:
        rest = iter(names)
        gone: set[str] = set()
        while some := list(islice(rest, DELETED_AT_ONCE)):
            objects = [{"Key": name} for name in some]
            answer = await self.call(
                "call_s3", "delete_objects", Bucket=self.bucket, Delete={"Objects": objects, "Quiet": False}
            )
            gone.update(deleted["Key"] for deleted in answer.get("Deleted", ()))
            for error in answer.get("Errors", ()):
                logger.warning("S3 did not delete %s: %s %s", error.get("Key"), error.get("Code"), error.get("Message"))
        return gone

    async def write_if(self, name: str, data: bytes, version: str | None) -> str:
        return await s3_conditions.write_if(self, name, data, version)

    async def read_versioned(self, name: str) -> VersionedObject:
        return await s3_conditions.read_versioned(self, name)

    async def find_unbounded_versions(self, name_prefix: str) -> str | None:
        return await s3_conditions.find_unbounded_versions(self, name_prefix)

    def new_upload(self, key: str, size_bytes: int) -> ObjectUpload:  # noqa: ARG002 - the parts say it
        return S3Upload(self, key)

    async def forget_uploads(self, key: str) -> None:
        await forget_uploads(self, key)


def _session(**arguments: Any) -> Any:
    """As s3fs makes it, but it does not load the service's models again, which takes longer than all else."""
    session = import_module("aiobotocore.session").AioSession(**arguments)
    session.register_component("data_loader", _models(session.get_config_variable("data_path")))
    return session


@cache
def _models(data_path: str | None) -> Any:
    return import_module("botocore.loaders").create_loader(data_path)
