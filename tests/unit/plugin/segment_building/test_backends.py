"""Backends that stand before others: they can do the same, and leave nothing of them open."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from diskless_core.clock import SystemClock
from diskless_core.config.tiering import TieringConfig
from diskless_core.metrics import Metrics
from diskless_core.plugin.remote_storage import RemoteStorage, RemoteStorageError
from diskless_core.plugin.retrying import Backoff
from diskless_core.plugin.segment_building.backends import ObjectsToRead, RetryingRemoteStorage, started_backends
from diskless_core.plugin.segment_compaction import BackendSources
from diskless_core.plugin.wal_object_store import WalObjectStore, WalObjectStoreError
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage
from diskless_core.tiering.awaited_storage import AwaitedRemoteStorage
from diskless_core.tiering.retrying import MeteredObjects, MeteredRemoteStorage, Retries

CLOCK = SystemClock()
RETRIES = Retries(TieringConfig(), CLOCK)
ONCE = Backoff(attempts=1, first_ms=0, max_ms=0, jitter=0)

STORAGES = [
    lambda inner: RetryingRemoteStorage(inner, RETRIES),
    lambda inner: AwaitedRemoteStorage(inner, RETRIES),
    lambda inner: MeteredRemoteStorage(inner, RETRIES, Metrics()),
]
STORES = [
    lambda inner: ObjectsToRead(inner, RETRIES),
    lambda inner: MeteredObjects(inner, RETRIES, Metrics()),
]


@pytest.mark.parametrize(
    ("interface", "inner", "wrap"),
    [
        *((RemoteStorage, MemoryRemoteStorage, wrap) for wrap in STORAGES),
        *((WalObjectStore, lambda: MemoryWalObjectStore(CLOCK), wrap) for wrap in STORES),
    ],
)
def test_whoever_stands_before_a_backend_can_do_all_that_it_can(interface: type, inner: Any, wrap: Any) -> None:
    annotations = inspect.get_annotations(interface)
    assert set(annotations.values()) == {"bool"}
    abilities = list(annotations)
    assert "is_node_local" in abilities
    for value in (True, False):
        backend = inner()
        for name in abilities:
            setattr(backend, name, value)
        before = wrap(backend)
        assert {name: getattr(before, name) for name in abilities} == dict.fromkeys(abilities, value)


class Objects(MemoryWalObjectStore):
    is_stopped = False

    async def stop(self) -> None:
        self.is_stopped = True


class Segments(MemoryRemoteStorage):
    """Cannot be stopped, or takes for ever to."""

    def __init__(self, *, takes_for_ever: bool = False) -> None:
        super().__init__()
        self.takes_for_ever = takes_for_ever
        self.stops = asyncio.Event()

    async def stop(self) -> None:
        self.stops.set()
        if self.takes_for_ever:
            await asyncio.Event().wait()
        raise RemoteStorageError("the connection is gone")


def sources_of(objects: WalObjectStore, segments: RemoteStorage) -> BackendSources:
    return BackendSources(objects=lambda: objects, remote_storage=lambda: segments, backoff=ONCE)


async def test_objects_are_stopped_although_the_storage_cannot_be() -> None:
    objects = Objects(CLOCK)
    with pytest.raises(RemoteStorageError, match="the connection is gone"):
        async with started_backends(sources_of(objects, Segments()), CLOCK):
            assert not objects.is_stopped
    assert objects.is_stopped


async def test_objects_are_stopped_although_the_stop_of_the_storage_is_cancelled() -> None:
    objects, segments = Objects(CLOCK), Segments(takes_for_ever=True)

    async def use() -> None:
        async with started_backends(sources_of(objects, segments), CLOCK):
            pass

    using = asyncio.create_task(use())
    await segments.stops.wait()
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert objects.is_stopped


async def test_objects_are_stopped_although_no_storage_can_be_made() -> None:
    objects = Objects(CLOCK)

    def no_storage() -> RemoteStorage:
        raise ValueError("there is none")

    sources = BackendSources(objects=lambda: objects, remote_storage=no_storage, backoff=ONCE)
    with pytest.raises(ValueError, match="there is none"):
        async with started_backends(sources, CLOCK):
            pass
    assert objects.is_stopped


async def test_a_store_that_cannot_be_reached_is_stopped_again() -> None:
    class Away(Objects):
        async def start(self) -> None:
            raise WalObjectStoreError("no route to host")

    objects, segments = Away(CLOCK), MemoryRemoteStorage()
    with pytest.raises(WalObjectStoreError, match="no route"):
        async with started_backends(sources_of(objects, segments), CLOCK):
            pass
    assert objects.is_stopped
