"""What S3 does on condition, and what it does with versions of objects that were replaced or deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diskless_core.plugin.wal_object_store import VersionedObject, WalObjectStoreError
from diskless_fsspec.bucket_store import BucketStore
from diskless_fsspec.errors import http_status, response_code

_CONDITIONS = {"IfMatch", "IfNoneMatch"}

_NOT_SUPPORTED = (405, 501)
"""What directory buckets, and services that know of no versions, answer to questions about them."""


async def write_if(store: BucketStore, name: str, data: bytes, version: str | None) -> str:
    """Put an object in one request if this version of it is there, or with None if none is, and return its ETag."""
    _require_conditions(store.filesystem.s3)
    condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
    answer = await store.call("call_s3", "put_object", Bucket=store.bucket, Key=name, Body=data, **condition)
    etag: str = answer["ETag"]
    return etag


async def read_versioned(store: BucketStore, name: str) -> VersionedObject:
    """An object with its ETag."""
    answer = await store.call("call_s3", "get_object", Bucket=store.bucket, Key=name)
    async with answer["Body"] as body:
        return VersionedObject(await body.read(), answer["ETag"])


async def find_unbounded_versions(store: BucketStore, name_prefix: str) -> str | None:
    """Whether the bucket keeps old versions of objects below the prefix with no rule that ever removes them."""
    try:
        versioning = await store.call("call_s3", "get_bucket_versioning", Bucket=store.bucket)
    except Exception as error:
        if http_status(error) in _NOT_SUPPORTED:
            return None
        raise
    if versioning.get("Status") != "Enabled":
        return None
    try:
        rules = (await store.call("call_s3", "get_bucket_lifecycle_configuration", Bucket=store.bucket))["Rules"]
    except Exception as error:
        if response_code(error) != "NoSuchLifecycleConfiguration":
            raise
        rules = []
    if any(removes_old_versions(rule, name_prefix) for rule in rules):
        return None
    return (
        f"the bucket {store.bucket} keeps every old version of an object for ever: give it a lifecycle rule for the "
        f"prefix {name_prefix!r} with NoncurrentVersionExpiration (one day is enough) and ExpiredObjectDeleteMarker, "
        f"or use a bucket without versioning"
    )


def removes_old_versions(rule: Mapping[str, Any], name_prefix: str) -> bool:
    """Whether a lifecycle rule removes the old versions of all objects below the prefix. Pure."""
    if rule.get("Status") != "Enabled" or "NoncurrentDays" not in rule.get("NoncurrentVersionExpiration", {}):
        return False
    chosen = rule.get("Filter", {})
    if set(chosen) - {"Prefix"}:
        return False  # by tags or sizes: some objects are not in it
    return name_prefix.startswith(chosen.get("Prefix") or rule.get("Prefix") or "")


def _require_conditions(client: Any) -> None:
    """Refuse a client library that does not know conditions: it would drop them, and write without."""
    known = client.meta.service_model.operation_model("PutObject").input_shape.members
    if not known.keys() >= _CONDITIONS:
        raise WalObjectStoreError(
            "the installed botocore cannot write on condition: pip install --upgrade s3fs aiobotocore", retriable=False
        )
