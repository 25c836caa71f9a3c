"""The log `first_coordinator_log`, for a broker that is alone. `shard_file.py` knows the files.

Replace both by your system. What has to stay: an append returns when all of it is durable, never before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import (
    CoordinatorLog,
    CoordinatorLogError,
    EntryRefusedError,
    LeadershipHint,
    LogBatch,
    LogBounds,
    LogOffsetPrunedError,
)
from diskless_core.plugin.folders import FolderInUseError, FolderLock, make_folder
from diskless_core.plugin.shard import ShardId, parse_shard_id

from diskless_first_coordinator_log.settings import FirstCoordinatorLogSettings
from diskless_first_coordinator_log.shard_file import ShardFile
from diskless_first_coordinator_log.worker import Worker

_READ_BYTES = 1 << 20


class FirstCoordinatorLogLog(CoordinatorLog):
    """One file for each shard, in the plugin's folder. All work on files is done by one thread, in order.

    A log that several nodes can have sets `is_shared`, and nominates one of the candidates; see `leadership`.
    """

    max_entry_bytes = 16 << 20

    def __init__(self, context: PluginContext, settings: FirstCoordinatorLogSettings) -> None:
        """A factory does no I/O: that is for `start`."""
        self._node_id = context.node_id
        self._folder = context.data_dir
        self._lock = FolderLock(self._folder)
        self._rewrite_bytes = settings.rewrite_bytes
        self._shards: dict[ShardId, ShardFile] = {}
        self._changed: dict[ShardId, asyncio.Event] = {}
        self._worker: Worker | None = None

    async def start(self) -> None:
        worker = Worker()
        try:
            await worker.run(self._open)
        except (OSError, FolderInUseError) as error:
            await asyncio.to_thread(worker.stop)
            raise CoordinatorLogError(f"cannot open the log in {self._folder}: {error}") from error
        except BaseException:
            await asyncio.to_thread(worker.stop)
            raise
        self._worker = worker

    async def stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.run(self._close)
            await asyncio.to_thread(worker.stop)
        for shard in list(self._changed):
            self._notify(shard)  # readers see that it is over

    async def append(self, shard: ShardId, batches: Sequence[bytes]) -> Sequence[int]:
        worker = self._running()
        fitting = list(batches)
        too_large = next((at for at, batch in enumerate(batches) if len(batch) > self.max_entry_bytes), None)
        if too_large is not None:
            fitting = fitting[:too_large]
        try:
            # Not cancelled half-way: the worker waits for the thread, whoever is cancelled.
            offsets = await worker.run(lambda: self._file(shard).append(fitting)) if fitting else []
        except OSError as error:
            raise CoordinatorLogError(f"cannot append to {shard}: {error}") from error
        finally:
            self._notify(shard)
        if too_large is not None:
            # Those before it are in: the contract says so, and the broker goes on without reading the log again.
            size = len(batches[too_large])
            raise EntryRefusedError(f"{size} bytes are more than {self.max_entry_bytes}", position=too_large)
        return offsets

    async def read(self, shard: ShardId, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        while self._worker is not None:
            changed = self._changed.setdefault(shard, asyncio.Event())  # before looking, or a change is missed
            found: Sequence[LogBatch] = []
            file = self._shards.get(shard)
            if offset < (start := file.start if file else 0):
                raise LogOffsetPrunedError(f"offset {offset} of {shard} is below {start}, where its log starts")
            if file is not None:
                try:
                    found = await self._worker.run(lambda file=file, at=offset: file.read(at, _READ_BYTES))  # type: ignore[misc]
                except OSError as error:
                    raise CoordinatorLogError(f"cannot read {shard}: {error}") from error
            if found and found[0].next_offset > offset:
                offset = found[-1].next_offset
                yield found
            elif not changed.is_set():
                await changed.wait()

    async def bounds(self, shard: ShardId) -> LogBounds:
        self._running()
        file = self._shards.get(shard)
        return LogBounds(file.start, file.end) if file else LogBounds(0, 0)

    async def leadership(self, shard: ShardId, *, candidate: bool = True) -> AsyncIterator[LeadershipHint]:
        # There is nobody else. A shared log nominates one of its candidates, with a generation that grows each time.
        yield LeadershipHint(self._node_id if candidate else None, generation=0)
        while self._worker is not None:
            await self._changed.setdefault(shard, asyncio.Event()).wait()

    async def prune(self, shard: ShardId, before: int) -> None:
        file = self._shards.get(shard)
        if file is not None:
            try:
                await self._running().run(lambda: file.prune(before, self._rewrite_bytes))
            except OSError as error:
                raise CoordinatorLogError(f"cannot prune {shard}: {error}") from error
            self._notify(shard)

    def _running(self) -> Worker:
        if self._worker is None:
            raise CoordinatorLogError("the log is not started, or it is stopped")
        return self._worker

    def _notify(self, shard: ShardId) -> None:
        self._changed.pop(shard, asyncio.Event()).set()

    # -- on the thread ------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        make_folder(self._folder)
        self._lock.acquire()  # a second broker on this folder would destroy it
        try:
            for path in sorted(self._folder.glob("*.log")):
                shard = parse_shard_id(path.stem)
                if shard is not None:
                    self._shards[shard] = ShardFile(path)
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        while self._shards:
            self._shards.popitem()[1].close()
        self._lock.release()

    def _file(self, shard: ShardId) -> ShardFile:
        if shard not in self._shards:
            self._shards[shard] = ShardFile(self._folder / f"{shard}.log")
        return self._shards[shard]
