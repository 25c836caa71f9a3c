"""Group commit: one thread writes and syncs what is queued, of all shards at once, while more is being queued.

It owns the active segment of each shard. What it has done it hands to the event loop as outcomes, in order.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from diskless_core.log.segment import file_name
from diskless_core.plugin.coordinator_log import LogBatch
from diskless_core.plugin.folders import sync_folder
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.record_batch import patch_base_offset
from diskless_local_log.recovery import RecoveredShard
from diskless_local_log.recovery_points import note_recovery_points

sync_file = os.fsync if sys.platform == "darwin" else os.fdatasync

_SYNC_THREADS = 8

_IDLE_S = 1.0
"""When so long nothing was appended, it is noted how far everything is durable."""

_MAX_EPOCH = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """A queued append: checked batches and how many records each has. `answer` belongs to the event loop."""

    shard: ShardId
    batches: Sequence[bytes]
    record_counts: Sequence[int]
    answer: Future[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A shard's part of a group: durable, in `segment_path` from `position` up to `segment_size`."""

    appends: list[Append]
    shard: ShardId
    segment_base_offset: int
    segment_path: Path
    position: int
    segment_size: int
    batches: list[LogBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Appends that were not, or not knowingly, made durable."""

    appends: list[Append]
    reason: str


Outcome = Written | Refused


class _NotDurableError(Exception):
    """The disk may or may not have what was written: nothing that this log says afterwards could be believed."""


@dataclass(slots=True)
class _ActiveSegment:
    """A segment that is appended to. What lies below `synced_size` bytes and `synced_offset` is durable."""

    base_offset: int
    path: Path
    fd: int
    size: int
    next_offset: int
    synced_size: int
    synced_offset: int

    def synced(self) -> None:
        self.synced_size, self.synced_offset = self.size, self.next_offset


class LogWriter:
    """The writer thread.

    A failed write is taken back and the next one may succeed. A failed sync is final: the kernel may hold the pages for
    clean and report success next time, so the files are closed and everything is refused until the log is opened again,
    which reads what is there and writes the end of each file once more.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        fsync: bool,
        segment_bytes: int,
        publish: Callable[[list[Outcome]], object],
    ) -> None:
        """`publish` is called on the writer thread, once for each group."""
        self._data_dir = data_dir
        self._fsync = fsync
        self._segment_bytes = segment_bytes
        self._publish = publish
        self._queue: queue.SimpleQueue[Append | None] = queue.SimpleQueue()
        self._active: dict[ShardId, _ActiveSegment] = {}
        self._failure: str | None = None
        self._is_noteworthy = False
        self._syncers = ThreadPoolExecutor(_SYNC_THREADS, "coordinator-log-sync")
        self._thread = threading.Thread(target=self._run, name="coordinator-log-writer", daemon=True)

    def start(self, recovered: Iterable[RecoveredShard]) -> None:
        """Open the last segments and begin."""
        for shard in recovered:
            last = shard.segments[-1]
            fd = os.open(last.path, os.O_RDWR)
            active = _ActiveSegment(last.base_offset, last.path, fd, last.size, shard.next_offset, 0, last.base_offset)
            if self._fsync:
                active.synced()  # the recovery did
            self._active[shard.shard] = active
        self._thread.start()

    def submit(self, append: Append) -> None:
        """Queue an append; never blocks."""
        self._queue.put(append)

    def close(self) -> None:
        """Finish what is queued, publish it, end the thread, and close the files. Blocks."""
        self._queue.put(None)
        self._thread.join()
        self._syncers.shutdown()
        self._note_synced()
        self._close_files()

    def _close_files(self) -> None:
        for active in self._active.values():
            os.close(active.fd)
        self._active.clear()

    def _run(self) -> None:
        closing = False
        while not closing:
            group = self._next_group()
            closing = group[-1] is None
            appends = [append for append in group if append is not None]
            if appends:
                self._publish(self._commit(appends))

    def _next_group(self) -> list[Append | None]:
        group = [self._first()]
        while group[-1] is not None:
            try:
                group.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return group

    def _first(self) -> Append | None:
        try:
            return self._queue.get(timeout=_IDLE_S if self._is_noteworthy else None)
        except queue.Empty:
            self._note_synced()
            return self._queue.get()

    def _note_synced(self) -> None:
        if self._is_noteworthy:
            self._is_noteworthy = False
            note_recovery_points(
                self._data_dir, {shard: active.synced_offset for shard, active in self._active.items()}
            )

    def _commit(self, appends: list[Append]) -> list[Outcome]:
        if self._failure is not None:
            return [Refused(appends=appends, reason=self._failure)]
        by_shard: dict[ShardId, list[Append]] = {}
        for append in appends:
            by_shard.setdefault(append.shard, []).append(append)
        written: list[Written] = []
        refused: list[Outcome] = []
        try:
            for shard, group in by_shard.items():
                try:
                    written.append(self._write(shard, group))
                except OSError as error:
                    refused.append(Refused(appends=group, reason=f"the append to {shard} was taken back: {error}"))
            if self._fsync:
                self._sync_all(written)
        except _NotDurableError as error:
            return [Refused(appends=appends, reason=self._fail(error, written))]
        return [*written, *refused]

    def _sync_all(self, written: list[Written]) -> None:
        files = [(self._active[done.shard].fd, done.segment_path) for done in written]
        self._is_noteworthy = True
        if len(files) > 1:
            # At once, so that the file system's journal commits them together. All have ended before one that failed
            # is reported: the files are closed then.
            syncs = [self._syncers.submit(_sync, fd, path) for fd, path in files]
            wait(syncs)
            for sync in syncs:
                sync.result()
        else:
            for fd, path in files:
                _sync(fd, path)
        for done in written:
            self._active[done.shard].synced()

    def _write(self, shard: ShardId, group: list[Append]) -> Written:
        batches = [batch for append in group for batch in append.batches]
        counts = [count for append in group for count in append.record_counts]
        data = bytearray().join(batches)
        active = self._segment_with_room(shard, len(data))
        offsets = list(accumulate(counts, initial=active.next_offset))
        ends = list(accumulate(map(len, batches), initial=0))
        for base_offset, position in zip(offsets[:-1], ends[:-1], strict=True):
            unsynced_bytes = active.size + position - active.synced_size
            patch_base_offset(data, position, base_offset, min(unsynced_bytes, _MAX_EPOCH))
        _write_or_take_back(active, data)
        position, active.size, active.next_offset = active.size, active.size + len(data), offsets[-1]
        return Written(
            appends=group,
            shard=shard,
            segment_base_offset=active.base_offset,
            segment_path=active.path,
            position=position,
            segment_size=active.size,
            batches=[
                LogBatch(offset, next_offset, bytes(data[start:end]))
                for (offset, next_offset), (start, end) in zip(pairwise(offsets), pairwise(ends), strict=True)
            ],
        )

    def _segment_with_room(self, shard: ShardId, size: int) -> _ActiveSegment:
        active = self._active.get(shard)
        if active is not None and (active.size == 0 or active.size + size <= self._segment_bytes):
            return active
        if active is not None:
            # Only the last segment may ever end in an interrupted write, even where appends are not synced.
            _sync(active.fd, active.path)
        created = self._create_segment(shard, active.next_offset if active is not None else 0)
        if active is not None:
            os.close(active.fd)
        self._active[shard] = created
        return created

    def _create_segment(self, shard: ShardId, base_offset: int) -> _ActiveSegment:
        folder = self._data_dir / str(shard)
        folder.mkdir(exist_ok=True)
        path = folder / file_name(base_offset)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            sync_folder(folder)
            if base_offset == 0:
                sync_folder(self._data_dir)
        except OSError as error:
            os.close(fd)
            raise _NotDurableError(f"the new file {path} could not be made durable: {error}") from error
        return _ActiveSegment(base_offset, path, fd, 0, base_offset, 0, base_offset)

    def _fail(self, error: Exception, written: list[Written]) -> str:
        if self._failure is None:
            self._failure = f"{error}. Check the disk and restart the broker: until then nothing is appended"
        for done in written:
            # Best effort: what was refused should not come back as committed when the log is opened again.
            with contextlib.suppress(OSError):
                os.ftruncate(self._active[done.shard].fd, done.position)
        # A sync of these files that succeeds now would prove nothing.
        self._is_noteworthy = False
        self._close_files()
        return self._failure


def _sync(fd: int, path: Path) -> None:
    try:
        sync_file(fd)
    except OSError as error:
        raise _NotDurableError(f"{path} could not be made durable: {error}") from error


def _write_or_take_back(active: _ActiveSegment, data: bytearray) -> None:
    try:
        _write_all(active.fd, data, active.size)
    except OSError as error:
        try:
            os.ftruncate(active.fd, active.size)
        except OSError as second:
            raise _NotDurableError(f"a failed write to {active.path} could not be taken back: {second}") from error
        raise


def _write_all(fd: int, data: bytearray, position: int) -> None:
    rest = memoryview(data)
    while rest:
        count = os.pwrite(fd, rest, position)
        rest, position = rest[count:], position + count
