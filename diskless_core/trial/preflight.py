"""What has to be known of a backend before it is tried: that it starts, and what it claims."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from diskless_core.plugin.coordinator_store import Column, ColumnType, TableSpec
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataServices
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import ConditionalObjectStore, ObjectNotFoundError
from diskless_core.plugin_host.nouns import (
    COORDINATOR_LOG,
    COORDINATOR_STORE,
    NOUNS,
    REMOTE_LOG_METADATA,
    REMOTE_STORAGE,
    WAL_OBJECT_STORE,
)
from diskless_core.protocol.record_batch import RecordData, build
from diskless_core.testing.fakes.remote_log_metadata import MemoryLedger
from diskless_core.trial.grounds import Place

QUICK_START_S = 0.25

_KEY = "beforehand"
_SHARD = ShardId("__diskless_metadata", 0)
_TABLE = TableSpec(name="t", key=(Column("k", ColumnType.INTEGER),), values=())
_BATCHES = 64
_BATCH_BYTES = 1024
_VERSIONS = 6


@dataclass(slots=True)
class Found:
    """What is known of a backend.

    Attributes:
        claims: attributes of the suite.
        start_s: how long a start took, in seconds.
        only_here: the backend cannot be tried through two instances, and why not; empty else.
    """

    claims: dict[str, Any] = field(default_factory=dict)
    start_s: float = 0.0
    only_here: str = ""


async def look_at(noun: str, place: Place, seconds: Callable[[], float]) -> Found:
    """Start the backend, use it a little, and stop it.

    Raises:
        PluginError: its factory failed.
        Exception: the noun's own error: it cannot be used, and the message says what to do.
    """
    look = _LOOKS.get(noun)
    if look is not None:
        return await look(place, seconds)
    place.create(NOUNS[noun])
    return Found()


async def _look_at_objects(place: Place, seconds: Callable[[], float]) -> Found:
    found = Found()
    store, other = place.create(WAL_OBJECT_STORE), place.create(WAL_OBJECT_STORE)
    try:
        began = seconds()
        await store.start()
        found.start_s = seconds() - began
        await other.start()
        await store.put(_KEY, b"x")
        try:
            await other.get(_KEY, 0, 1)
        except ObjectNotFoundError:
            if not store.is_process_local:
                raise
            found.only_here = "each instance of it has objects of its own, and a trial needs two that share a place"
        found.claims["writes_on_condition"] = isinstance(store, ConditionalObjectStore)
        if isinstance(store, ConditionalObjectStore):
            found.claims["never_a_version"] = await _a_version_of_another_object(store)
    finally:
        await store.stop()
        await other.stop()
    return found


async def _a_version_of_another_object(store: ConditionalObjectStore) -> str:
    """A version of the right form that no object of a test has: of another content, and after several changes."""
    version = await store.create("versions", b"0")
    for number in range(1, _VERSIONS):
        version = await store.replace("versions", b"%d" % number, version)
    return version


async def _look_at_log(place: Place, seconds: Callable[[], float]) -> Found:
    found = Found()
    log = place.create(COORDINATOR_LOG)
    began = seconds()
    await log.start()
    found.start_s = seconds() - began
    try:
        for _ in range(_BATCHES):
            await log.append(_SHARD, [build([RecordData(None, bytes(_BATCH_BYTES))], timestamp_ms=0)])
        await log.prune(_SHARD, (await log.bounds(_SHARD)).end // 2)
        found.claims["prunes"] = (await log.bounds(_SHARD)).start > 0
    finally:
        await log.stop()
    return found


async def _look_at_store(place: Place, _seconds: Callable[[], float]) -> Found:
    def use() -> None:
        with closing(place.create(COORDINATOR_STORE).open(_SHARD, [_TABLE])) as store:
            store.write({}, 1)

    await asyncio.to_thread(use)
    return Found()


async def _look_at_storage(place: Place, seconds: Callable[[], float]) -> Found:
    storage = place.create(REMOTE_STORAGE)
    began = seconds()
    try:
        await storage.start()
        return Found(start_s=seconds() - began)
    finally:
        await storage.stop()


async def _look_at_metadata(place: Place, seconds: Callable[[], float]) -> Found:
    metadata = place.create(REMOTE_LOG_METADATA)
    began = seconds()
    try:
        await metadata.start(RemoteLogMetadataServices(cluster_id="trial", ledger=MemoryLedger()))
        return Found(start_s=seconds() - began)
    finally:
        await metadata.stop()


_Look = Callable[[Place, Callable[[], float]], Awaitable[Found]]

_LOOKS: Mapping[str, _Look] = {
    COORDINATOR_LOG.name: _look_at_log,
    COORDINATOR_STORE.name: _look_at_store,
    WAL_OBJECT_STORE.name: _look_at_objects,
    REMOTE_STORAGE.name: _look_at_storage,
    REMOTE_LOG_METADATA.name: _look_at_metadata,
}
