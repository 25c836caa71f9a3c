"""What file systems say of the objects that they list, in our words and in pages."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from diskless_core.plugin.wal_object_store import ObjectInfo, WalObjectStoreError

PAGE_OBJECTS = 1000
"""Objects in a page: what one request to S3 gives."""

_MODIFIED = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")
"""Where fsspec's file systems put the time of the last change; the first that is there counts."""


def paged(objects: Iterable[ObjectInfo], page_objects: int) -> Generator[list[ObjectInfo], None, None]:
    """Pages of at most so many objects, none of them empty."""
    iterator = iter(objects)
    while page := list(islice(iterator, page_objects)):
        yield page


def object_info(key: str, info: Mapping[str, Any]) -> ObjectInfo:
    """An object from fsspec's description of it.

    Raises:
        WalObjectStoreError: the file system does not tell when its files were changed, so orphans can't be found in it.
    """
    for name in _MODIFIED:
        if (modified := info.get(name)) is not None:
            return ObjectInfo(key, int(info["size"]), _as_ms(modified))
    raise WalObjectStoreError(
        "this file system does not tell when a file was modified; choose another", retriable=False
    )


def _as_ms(modified: datetime | str | float) -> int:
    if isinstance(modified, str):
        modified = datetime.fromisoformat(modified)
    return int((modified.timestamp() if isinstance(modified, datetime) else modified) * 1000)
