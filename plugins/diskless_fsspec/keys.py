"""What a key may look like, and the names below the root that are not objects."""

from __future__ import annotations

from diskless_core.plugin.wal_object_store import WalObjectStoreError

INCOMING = ".incoming"
"""Folder below the root in which files grow until they are renamed. Each node has its own in it, to clean at start."""


def require_key(key: str) -> str:
    """Return `key`, unless it could name something outside the root or among the unfinished files."""
    parts = key.split("/")
    if not all(parts) or not key.isascii():
        raise WalObjectStoreError(f"{key!r} is no object key: a relative ASCII path is needed", retriable=False)
    return require_prefix(key)


def require_prefix(prefix: str) -> str:
    """Return `prefix`, unless it leads out of the root. It may end anywhere, within a name or with a '/'."""
    parts = prefix.split("/")
    if ".." in parts or "." in parts or prefix.startswith("/") or parts[0] == INCOMING:
        raise WalObjectStoreError(f"{prefix!r} is not below the root of the store", retriable=False)
    return prefix
