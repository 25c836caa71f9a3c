"""`coordinator_log=bucket`: the log of a cluster that has nothing but an object store that writes on condition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

import structlog

from diskless_bucket_log.config import BucketLogSettings
from diskless_bucket_log.decisions import Position, position_after
from diskless_bucket_log.lease_keeper import RELEASE_PAUSE_S, LeaseKeeper
from diskless_bucket_log.objects import MAX_ENTRY_BYTES, Names
from diskless_bucket_log.pruning import prune
from diskless_bucket_log.requests import ShardObjects
from diskless_bucket_log.view import ShardView
from diskless_bucket_log.writer import ShardWriter
from diskless_core.log.segment import require_whole_batch
from diskless_core.plugin.conditional_check import ROUNDS, check_conditional_writes
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import (
    CoordinatorLog,
    CoordinatorLogError,
    EntryRefusedError,
    LeadershipHint,
    LogBatch,
    LogBounds,
)
from diskless_core.plugin.retrying import Backoff, Retrying
from diskless_core.plugin.shard import ShardId
from diskless_core.plugin.wal_object_store import ConditionalObjectStore, WalObjectStoreError
from diskless_core.protocol.record_batch import CorruptBatchError

_PREFIX_SUFFIX = "-log"
_START = Backoff(first_ms=200, max_ms=5000, attempts=6)

_log = structlog.get_logger(__name__)


class BucketLog(CoordinatorLog):
    """All shards below one prefix of the object store of WAL objects, shared by all brokers of a cluster.

    Args:
        check_rounds: how often `start` tries whether the store writes on condition; 0 leaves it out.
    """

    is_shared: ClassVar[bool] = True
    group_coordinators: ClassVar[int] = 4
    max_entry_bytes: int = MAX_ENTRY_BYTES

    def __init__(self, context: PluginContext, settings: BucketLogSettings, *, check_rounds: int = ROUNDS) -> None:
        self._check_rounds = check_rounds
        self._context = context
        self._clock = context.clock
        self._settings = settings
        self._prefix = settings.prefix or f"{context.object_prefix}{_PREFIX_SUFFIX}"
        self._running: _Running | None = None

    async def start(self) -> None:
        await self._open(for_writing=True)

    async def start_reading(self) -> None:
        await self._open(for_writing=False)

    async def stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.stop()

    async def append(self, shard: ShardId, batches: Sequence[bytes]) -> Sequence[int]:
        running = self._require_running(shard)
        if not running.may_write:
            raise CoordinatorLogError(f"the log of {shard} was opened for reading only")
        refused = _first_refused(batches)
        taken = batches[: refused.position] if refused is not None else batches
        offsets = await running.writer(shard).append(taken) if taken else []
        if refused is not None:
            raise refused
        return offsets

    def read(self, shard: ShardId, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        running = self._require_running(shard)
        return self._stream(running, running.view(shard), offset)

    async def bounds(self, shard: ShardId) -> LogBounds:
        running = self._require_running(shard)
        view = running.view(shard)
        if running.may_write:
            await view.look_unless_recent()
        else:
            await view.look()
        return view.bounds

    def leadership(self, shard: ShardId, *, candidate: bool = True) -> AsyncIterator[LeadershipHint]:
        return self._require_running(shard).keeper(shard).hints(candidate=candidate)

    def suspect(self, shard: ShardId, node_id: int) -> None:
        if self._running is not None:
            self._running.keeper(shard).suspect(node_id)

    async def prune(self, shard: ShardId, before: int) -> None:
        running = self._require_running(shard)
        await prune(running.view(shard), before, self._clock)

    async def _open(self, *, for_writing: bool) -> None:
        if self._context.object_store is None:
            raise CoordinatorLogError(
                "coordinator_log=bucket keeps its log beside the WAL objects, and no wal_object_store is configured"
            )
        store = self._context.object_store()
        if not isinstance(store, ConditionalObjectStore):
            raise CoordinatorLogError(
                "coordinator_log=bucket needs an object store that creates and replaces objects on condition, and the "
                "configured wal_object_store does not: choose an S3 or GCS bucket, or a folder (wal_object_store.fsspec"
                ".url), or another coordinator_log"
            )
        try:
            await Retrying(_START, self._clock).do(store.start if for_writing else store.start_reading)
            if for_writing:
                await self._check(store)
        except BaseException as error:
            await store.stop()
            if isinstance(error, WalObjectStoreError):
                raise CoordinatorLogError(f"coordinator_log=bucket cannot use its object store: {error}") from error
            raise
        self._running = _Running(self._context, self._settings, self._prefix, store, may_write=for_writing)

    async def _check(self, store: ConditionalObjectStore) -> None:
        """Refuse a store that does not keep what it promises, or that would keep all that was ever deleted."""
        place = f"{self._prefix}/"
        if self._check_rounds:
            await check_conditional_writes(
                store, "the wal_object_store", f"{place}check/", self._clock, rounds=self._check_rounds
            )
        try:
            problem = await store.unbounded_versions(place)
        except WalObjectStoreError as error:
            _log.warning("the object store does not say whether old versions of objects are removed", error=str(error))
            return
        if problem is not None:
            raise CoordinatorLogError(f"coordinator_log=bucket cannot use its object store: {problem}")

    @staticmethod
    async def _stream(running: _Running, view: ShardView, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        position: Position | None = None
        try:
            with view.read():
                while not running.is_stopped:
                    if view.tail is None:
                        await view.look()
                        continue
                    view.require_not_pruned(offset)
                    if offset >= view.tail.offset:
                        await view.wait_and_look()
                        continue
                    if position is None:
                        header = await view.find(offset)
                        position = Position(header.number, header.base_offset, header.predecessor)
                        continue
                    for entry in await view.fetch(position):
                        position = position_after(entry.header)
                        batches = [batch for batch in entry.batches if batch.next_offset > offset]
                        if batches and not running.is_stopped:
                            view.require_not_pruned(offset)
                            offset = batches[-1].next_offset
                            yield batches
        except CoordinatorLogError:
            if not running.is_stopped:  # else the store has gone from under a read
                raise

    def _require_running(self, shard: ShardId) -> _Running:
        if self._running is None:
            raise CoordinatorLogError(f"the coordinator log of {shard} is not running")
        return self._running


class _Running:
    """What exists between start and stop."""

    def __init__(
        self,
        context: PluginContext,
        settings: BucketLogSettings,
        prefix: str,
        store: ConditionalObjectStore,
        *,
        may_write: bool,
    ) -> None:
        self.may_write = may_write
        self.is_stopped = False
        self._context = context
        self._settings = settings
        self._prefix = prefix
        self._store = store
        self._views: dict[ShardId, ShardView] = {}
        self._writers: dict[ShardId, ShardWriter] = {}
        self._keepers: dict[ShardId, LeaseKeeper] = {}

    def view(self, shard: ShardId) -> ShardView:
        if shard not in self._views:
            clock = self._context.clock
            longest_poll_s = self._settings.longest_poll_s(requests_are_billed=self._store.requests_are_billed)
            objects = ShardObjects(self._store, self._names(shard), clock)
            self._views[shard] = ShardView(objects, clock, longest_poll_s=longest_poll_s)
        return self._views[shard]

    def writer(self, shard: ShardId) -> ShardWriter:
        if shard not in self._writers:
            linger_s = self._settings.linger_s(requests_are_billed=self._store.requests_are_billed)
            self._writers[shard] = ShardWriter(self.view(shard), self._context.clock, linger_s=linger_s)
        return self._writers[shard]

    def keeper(self, shard: ShardId) -> LeaseKeeper:
        if shard not in self._keepers:
            is_billed = self._store.requests_are_billed
            self._keepers[shard] = LeaseKeeper(
                self._store,
                self._names(shard),
                self._context.clock,
                node_id=self._context.node_id,
                lease_ms=self._settings.lease_ms,
                poll_s=self._settings.longest_poll_s(requests_are_billed=is_billed),
                release_pause_s=RELEASE_PAUSE_S if is_billed else 0.0,
            )
        return self._keepers[shard]

    async def stop(self) -> None:
        self.is_stopped = True
        for view in self._views.values():
            view.stop()
        await asyncio.gather(*(writer.stop() for writer in self._writers.values()))
        await asyncio.gather(*(keeper.stop() for keeper in self._keepers.values()))
        await self._store.stop()

    def _names(self, shard: ShardId) -> Names:
        return Names(self._prefix, shard)


def _first_refused(batches: Sequence[bytes]) -> EntryRefusedError | None:
    for position, batch in enumerate(batches):
        try:
            require_whole_batch(batch)
        except CorruptBatchError as error:
            return EntryRefusedError(f"refused to append: {error}", position=position)
        if len(batch) > MAX_ENTRY_BYTES:
            return EntryRefusedError(
                f"refused to append a batch of {len(batch)} bytes: an object of the bucket log takes {MAX_ENTRY_BYTES}",
                position=position,
            )
    return None
