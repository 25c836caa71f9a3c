"""`coordinator_log=local`: the log of a single node, in Kafka-format segments on its disk.

Appends go through one writer thread; readers at the end are served from memory, others from files on worker threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
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
    LogNotFoundError,
    LogOffsetPrunedError,
)
from diskless_core.plugin.folders import FolderInUseError, FolderLock, make_folder
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_local_log.config import LocalLogSettings
from diskless_local_log.recovery import RecoveredShard, Segment, look_at_shard, look_at_shards, recover_shards
from diskless_local_log.shard_log import FilePosition, ShardLog, read_chunk
from diskless_local_log.writer import Append, LogWriter, Outcome, Written

_READER_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """What exists between start and stop. Opened for reading only, there is no writer, and the lock is not held."""

    lock: FolderLock
    writer: LogWriter | None
    shards: dict[ShardId, ShardLog]
    readers: ThreadPoolExecutor
    pruner: ThreadPoolExecutor
    stopped: asyncio.Event


class LocalCoordinatorLog(CoordinatorLog):
    """All shards below one folder, which one process at a time may use."""

    group_coordinators: ClassVar[int] = 1

    def __init__(self, context: PluginContext, settings: LocalLogSettings) -> None:
        self._node_id = context.node_id
        self._data_dir = context.data_dir
        self._settings = settings
        self._running: _Running | None = None

    async def start(self) -> None:
        lock = FolderLock(self._data_dir)
        try:
            recovered = await asyncio.to_thread(_lock_and_recover, lock, self._data_dir, fsync=self._settings.fsync)
            self._running = self._run(lock, recovered, writable=True)
        except BaseException as error:
            lock.release()
            if isinstance(error, FolderInUseError):
                raise CoordinatorLogError(str(error)) from None
            if isinstance(error, OSError):
                raise self._cannot_open(error) from error
            raise

    async def start_reading(self) -> None:
        try:
            found = await asyncio.to_thread(look_at_shards, self._data_dir)
        except FileNotFoundError as error:
            raise LogNotFoundError(
                f"there is no coordinator log in {self._data_dir}: has a broker run with this log.dirs?"
            ) from error
        except OSError as error:
            raise self._cannot_open(error) from error
        self._running = self._run(FolderLock(self._data_dir), found, writable=False)

    async def stop(self) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        running.stopped.set()
        for log in running.shards.values():
            log.wake()
        try:
            if running.writer is not None:
                await asyncio.to_thread(running.writer.close)
            await asyncio.to_thread(running.readers.shutdown)
            await asyncio.to_thread(running.pruner.shutdown)
        finally:
            running.lock.release()

    async def append(self, shard: ShardId, batches: Sequence[bytes]) -> Sequence[int]:
        running, _ = self._running_shard(shard)
        if running.writer is None:
            raise CoordinatorLogError(f"the log of {shard} was opened for reading only")
        if not batches:
            return []
        counts = [_record_count(batch) for batch in batches]
        taken = next((at for at, batch in enumerate(batches) if len(batch) > self.max_entry_bytes), len(batches))
        offsets: Sequence[int] = []
        if taken:
            answer: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
            batches_taken, counts_taken = tuple(batches[:taken]), counts[:taken]
            running.writer.submit(Append(shard=shard, batches=batches_taken, record_counts=counts_taken, answer=answer))
            offsets = await answer
        if taken < len(batches):
            raise EntryRefusedError(
                f"an entry of {len(batches[taken])} bytes is larger than {self.max_entry_bytes}", position=taken
            )
        return offsets

    def read(self, shard: ShardId, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        running, log = self._running_shard(shard)
        return self._stream(running, log, shard, offset)

    async def bounds(self, shard: ShardId) -> LogBounds:
        running, log = self._running_shard(shard)
        if running.writer is None:
            try:
                found = await asyncio.to_thread(look_at_shard, self._data_dir, shard)
            except OSError as error:
                raise self._cannot_open(error) from error
            if found is not None:
                log.take_found(found)
        return log.bounds

    def leadership(self, shard: ShardId, *, candidate: bool = True) -> AsyncIterator[LeadershipHint]:
        running, _ = self._running_shard(shard)
        return self._hints(running, self._node_id if candidate else None)

    async def prune(self, shard: ShardId, before: int) -> None:
        running, log = self._running_shard(shard)
        forgotten = log.forget_before(before)
        if not forgotten:
            return
        kept, error = await asyncio.get_running_loop().run_in_executor(running.pruner, _delete, forgotten)
        log.restore(kept)
        if error is not None:
            raise CoordinatorLogError(f"{shard} could not be pruned, the next attempt goes on: {error}") from error

    async def _stream(
        self, running: _Running, log: ShardLog, shard: ShardId, offset: int
    ) -> AsyncIterator[Sequence[LogBatch]]:
        at: FilePosition | None = None
        while not running.stopped.is_set():
            if offset < log.bounds.start:
                raise LogOffsetPrunedError(f"{shard} begins at offset {log.bounds.start}: {offset} is gone")
            if not log.is_in_memory(offset):
                batches, at = await self._read_file(running, log, offset, at)
            else:
                batches, at = log.tail_from(offset), None
                if not batches:
                    await log.changed.wait()
            if batches:
                offset = batches[-1].next_offset
                yield batches

    @staticmethod
    async def _hints(running: _Running, leader: int | None) -> AsyncIterator[LeadershipHint]:
        yield LeadershipHint(leader, generation=0)
        await running.stopped.wait()

    @staticmethod
    async def _read_file(
        running: _Running, log: ShardLog, offset: int, at: FilePosition | None
    ) -> tuple[Sequence[LogBatch], FilePosition | None]:
        segment = log.segment_of(offset)
        if at is not None and at.segment is not segment:
            at = None
        loop = asyncio.get_running_loop()
        try:
            batches, at = await loop.run_in_executor(running.readers, read_chunk, segment, segment.size, offset, at)
        except FileNotFoundError as error:
            if segment.base_offset < log.bounds.start:
                return [], None
            if running.writer is None:
                raise LogOffsetPrunedError(f"{segment.path} was pruned meanwhile: begin again") from error
            raise CoordinatorLogError(f"{segment.path} is missing: put it back") from error
        except OSError as error:
            raise CoordinatorLogError(f"{segment.path} can't be read: {error}") from error
        return [batch for batch in batches if batch.next_offset > offset], at

    def _cannot_open(self, error: OSError) -> CoordinatorLogError:
        return CoordinatorLogError(f"the coordinator log in {self._data_dir} can't be opened: {error}")

    def _start_writer(self, recovered: list[RecoveredShard], shards: dict[ShardId, ShardLog]) -> LogWriter:
        loop = asyncio.get_running_loop()
        writer = LogWriter(
            self._data_dir,
            fsync=self._settings.fsync,
            segment_bytes=self._settings.segment_bytes,
            publish=lambda outcomes: loop.call_soon_threadsafe(_publish, shards, outcomes),
        )
        writer.start(recovered)
        return writer

    def _run(self, lock: FolderLock, recovered: list[RecoveredShard], *, writable: bool) -> _Running:
        shards = {
            found.shard: ShardLog(found.segments, found.next_offset, tail_bytes=self._settings.tail_bytes)
            for found in recovered
        }
        return _Running(
            lock=lock,
            writer=self._start_writer(recovered, shards) if writable else None,
            shards=shards,
            readers=ThreadPoolExecutor(_READER_THREADS, "coordinator-log-reader"),
            pruner=ThreadPoolExecutor(1, "coordinator-log-pruner"),
            stopped=asyncio.Event(),
        )

    def _running_shard(self, shard: ShardId) -> tuple[_Running, ShardLog]:
        running = self._running
        if running is None:
            raise CoordinatorLogError(f"the coordinator log of {shard} is not running")
        log = running.shards.get(shard)
        if log is None:
            log = running.shards[shard] = ShardLog([], 0, tail_bytes=self._settings.tail_bytes)
        return running, log


def _lock_and_recover(lock: FolderLock, data_dir: Path, *, fsync: bool) -> list[RecoveredShard]:
    make_folder(data_dir)
    lock.acquire()
    return recover_shards(data_dir, fsync=fsync)


def _publish(shards: dict[ShardId, ShardLog], outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, Written):
            shards[outcome.shard].publish(outcome)
        _answer(outcome)


def _answer(outcome: Outcome) -> None:
    first = 0
    for append in outcome.appends:
        cancelled = append.answer.done()
        if isinstance(outcome, Written):
            end = first + len(append.batches)
            if not cancelled:
                append.answer.set_result([batch.offset for batch in outcome.batches[first:end]])
            first = end
        elif not cancelled:
            append.answer.set_exception(CoordinatorLogError(outcome.reason))


def _record_count(batch: bytes) -> int:
    try:
        return require_whole_batch(batch).record_count
    except CorruptBatchError as error:
        raise CoordinatorLogError(f"refused to append: {error}") from error


def _delete(segments: list[Segment]) -> tuple[list[Segment], OSError | None]:
    """Delete oldest first, so that a crash leaves no hole; return what is still there and why."""
    for position, segment in enumerate(segments):
        try:
            segment.path.unlink()
        except OSError as error:
            return segments[position:], error
    return [], None
