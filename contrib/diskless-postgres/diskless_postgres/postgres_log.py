"""`coordinator_log=postgres`: the log of a cluster beside a PostgreSQL that is there already."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

from diskless_core.log.segment import require_whole_batch
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import (
    CoordinatorLog,
    CoordinatorLogError,
    EntryRefusedError,
    LeadershipHint,
    LogBatch,
    LogBounds,
)
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_postgres.backend import Backend
from diskless_postgres.config import PostgresLogSettings
from diskless_postgres.reader import ShardReader

MAX_ENTRY_BYTES = 8 << 20
_SLICE = 5000


class PostgresLog(CoordinatorLog):
    """All shards in the tables of one schema, shared by all brokers of a cluster."""

    is_shared: ClassVar[bool] = True
    max_entry_bytes: int = MAX_ENTRY_BYTES

    def __init__(self, context: PluginContext, settings: PostgresLogSettings) -> None:
        self._context = context
        self._settings = settings
        self._backend: Backend | None = None

    async def start(self) -> None:
        await self._open(may_write=True)

    async def start_reading(self) -> None:
        await self._open(may_write=False)

    async def stop(self) -> None:
        backend, self._backend = self._backend, None
        if backend is not None:
            await backend.stop()

    async def append(self, shard: ShardId, batches: Sequence[bytes]) -> Sequence[int]:
        backend = self._running(shard)
        if not backend.may_write:
            raise CoordinatorLogError(f"the log of {shard} was opened for reading only")
        refused = _first_refused(batches)
        taken = batches[: refused.position] if refused is not None else batches
        offsets = await backend.writer(shard).append(taken) if taken else []
        if refused is not None:
            raise refused
        return offsets

    def read(self, shard: ShardId, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        return self._stream(self._running(shard), shard, offset)

    async def bounds(self, shard: ShardId) -> LogBounds:
        backend = self._running(shard)
        view = backend.view(shard)
        await backend.watcher.look([view])
        view.require_sound()
        return view.bounds

    async def leadership(self, shard: ShardId, *, candidate: bool = True) -> AsyncIterator[LeadershipHint]:
        nominations = self._running(shard).nominations
        if nominations is None:
            raise CoordinatorLogError(f"the log of {shard} was opened for reading only")
        hints = nominations.hints(shard, candidate=candidate)
        try:
            async for hint in hints:
                yield hint
        finally:
            await hints.aclose()

    def suspect(self, shard: ShardId, node_id: int) -> None:
        if self._backend is not None and self._backend.nominations is not None:
            self._backend.nominations.suspect(shard, node_id)

    async def prune(self, shard: ShardId, before: int) -> None:
        # Each statement proves that it may: it changes nothing in tables that were made anew under the same name, and
        # deletes only below the log start that the tables have at that moment.
        backend = self._running(shard)
        statements, of_log = backend.statements, {"shard": str(shard), "log": backend.log_id}
        await backend.reads.rows(statements.move_start, {**of_log, "before": before})
        start = (await self.bounds(shard)).start
        ((first,),) = await backend.reads.rows(statements.first_entry, [str(shard)])
        for lowest in range(first if first is not None else start, start, _SLICE):
            await backend.reads.rows(statements.delete, {**of_log, "lowest": lowest, "below": start})

    async def _open(self, *, may_write: bool) -> None:
        backend = Backend(self._context, self._settings, may_write=may_write)
        try:
            await backend.start()
        except BaseException:
            await backend.stop()
            raise
        self._backend = backend

    @staticmethod
    async def _stream(backend: Backend, shard: ShardId, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        view = backend.view(shard)
        reader = ShardReader(view, backend.reads, backend.statements, offset)
        try:
            while not backend.has_stopped():
                batches = await reader.next_page()
                if batches:
                    yield batches
                elif reader.offset >= view.head.end and not backend.has_stopped():
                    backend.watcher.look_soon()
                    await view.wait()
        except CoordinatorLogError:
            if not backend.has_stopped():
                raise

    def _running(self, shard: ShardId) -> Backend:
        if self._backend is None:
            raise CoordinatorLogError(f"the coordinator log of {shard} is not running")
        return self._backend


def _first_refused(batches: Sequence[bytes]) -> EntryRefusedError | None:
    for position, batch in enumerate(batches):
        try:
            require_whole_batch(batch)
        except CorruptBatchError as error:
            return EntryRefusedError(f"refused to append: {error}", position=position)
        if len(batch) > MAX_ENTRY_BYTES:
            return EntryRefusedError(
                f"refused to append a batch of {len(batch)} bytes: the log in PostgreSQL takes {MAX_ENTRY_BYTES}",
                position=position,
            )
    return None
