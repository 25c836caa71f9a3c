"""What Google Cloud Storage does on condition, and with versions of objects that were replaced or deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diskless_core.plugin.wal_object_store import VersionedObject
from diskless_fsspec.bucket_store import BucketStore
from diskless_fsspec.gcs_upload import upload

_ABSENT = "0"
"""The generation of an object that is not there."""

_BY_AGE = {"daysSinceNoncurrentTime", "numNewerVersions", "age"}
"""Conditions that every old version comes to meet."""


async def write_if(store: BucketStore, name: str, data: bytes, version: str | None, boundary: str) -> str:
    """Upload an object if this generation of it is there, or with None if none is, and return the new one."""
    return await upload(store, name, data, boundary, ifGenerationMatch=_ABSENT if version is None else version)


async def read_versioned(store: BucketStore, name: str) -> VersionedObject:
    """An object with its generation."""
    headers, data = await store.call("call", "GET", "b/{}/o/{}", store.bucket, name, alt="media")
    return VersionedObject(data, headers["x-goog-generation"])


async def find_unbounded_versions(store: BucketStore, name_prefix: str) -> str | None:
    """Whether the bucket keeps old versions of objects below the prefix with no rule that ever removes them."""
    bucket = await store.call("call", "GET", "b/{}", store.bucket, fields="versioning,lifecycle", json_out=True)
    if not bucket.get("versioning", {}).get("enabled"):
        return None
    if any(removes_old_versions(rule, name_prefix) for rule in bucket.get("lifecycle", {}).get("rule", ())):
        return None
    return (
        f"the bucket {store.bucket} keeps every old version of an object for ever: give it a lifecycle rule that "
        f"deletes below the prefix {name_prefix!r} by daysSinceNoncurrentTime (one day is enough), or switch "
        f"versioning off"
    )


def removes_old_versions(rule: Mapping[str, Any], name_prefix: str) -> bool:
    """Whether a lifecycle rule removes the old versions of all objects below the prefix. Pure."""
    condition = rule.get("condition", {})
    by, chosen = set(condition) - {"isLive", "matchesPrefix"}, condition.get("matchesPrefix", [""])
    return (
        rule.get("action", {}).get("type") == "Delete"
        and condition.get("isLive") is not True
        and bool(by)
        and by <= _BY_AGE
        and any(name_prefix.startswith(one) for one in chosen)
    )
