"""What a key may look like. Pure."""

from __future__ import annotations

from diskless_core.plugin.wal_object_store import WalObjectStoreError


def is_key(key: str) -> bool:
    """Whether this could be a key: a relative ASCII path whose parts are names."""
    return key.isascii() and not any(part in ("", ".", "..") for part in key.split("/"))


def require_key(key: str) -> str:
    """Return `key`, unless it could name something outside the prefix."""
    if not is_key(key):
        raise WalObjectStoreError(f"{key!r} is no object key: a relative ASCII path is needed", retriable=False)
    return key


def require_prefix(prefix: str) -> str:
    """Return `prefix`, unless it leads out. It may end anywhere, within a name or with a '/'."""
    if prefix and not is_key(prefix.removesuffix("/")):
        raise WalObjectStoreError(f"{prefix!r} is not below the prefix of the store", retriable=False)
    return prefix
