"""What Spark's tasks need of the backends: that they reach them, and that what failed and can succeed is done again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.retrying import Retrying
from diskless_core.plugin.segment_building.backends import ObjectsToRead
from diskless_core.plugin.wal_object_store import ObjectInfo, WalObjectStore


def why_unreachable(*backends: WalObjectStore | RemoteStorage, elsewhere: str | None) -> str | None:
    """Why tasks do not reach what only this process or this machine has; None if they do.

    Args:
        elsewhere: where tasks are if not on this machine, such as a Spark master.
    """
    if any(backend.is_process_local for backend in backends):
        return (
            "WAL objects or segments are in the memory of one process, where Spark's tasks do not see them: set "
            "wal_object_store to a folder or a bucket, and remote_storage too"
        )
    if elsewhere is not None and any(backend.is_node_local for backend in backends):
        return elsewhere_only(elsewhere)
    return None


def elsewhere_only(place: str) -> str:
    """Words for backends that only the machine has that asks for a job, whose tasks are at `place`."""
    return (
        f"WAL objects or segments are on one machine alone, and Spark's executors are elsewhere ({place}): "
        "set wal_object_store and remote_storage to a bucket, or Spark's master to local[*]"
    )


@asynccontextmanager
async def started_objects(source: Callable[[], WalObjectStore], retrying: Retrying) -> AsyncIterator[WalObjectStore]:
    """A store of this process' own to read from, which does nothing again by itself; stopped at the end.

    Raises:
        WalObjectStoreError: it cannot be reached.
    """
    store = source()
    try:
        await retrying.do(store.start_reading)
        yield store
    finally:
        await store.stop()


class SteadyObjects(ObjectsToRead):
    """Does listings again too, each as a whole: to be used for short ones, such as those of snapshots."""

    async def list(self, prefix: str = "") -> AsyncIterator[Sequence[ObjectInfo]]:
        async def whole() -> list[Sequence[ObjectInfo]]:
            return [page async for page in self._objects.list(prefix)]

        for page in await self._retrying.do(whole):
            yield page
