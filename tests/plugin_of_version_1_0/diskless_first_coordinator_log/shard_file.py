"""The log of one shard: a file of record batches, each with the offset that it got. Everything here blocks."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogBatch
from diskless_core.plugin.folders import sync_folder, write_durably
from diskless_core.protocol.record_batch import CorruptBatchError, crc_is_valid, read_header

_OFFSET_BYTES = 8


class ShardFile:
    """Used by one thread. The places of all batches are in memory; replace that by a sparse index for long logs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("a+b", buffering=0)
        self._failed: OSError | None = None
        self._offsets: list[int] = []
        self._places: list[int] = []
        self._size = 0
        self._end = 0
        try:
            self._recover()
        except BaseException:
            self._file.close()
            raise

    @property
    def start(self) -> int:
        """The first offset that can be read."""
        return self._offsets[0] if self._offsets else 0

    @property
    def end(self) -> int:
        """The offset that the next batch gets. What is below it is durable."""
        return self._end

    def append(self, batches: Sequence[bytes]) -> list[int]:
        """Write batches and return their offsets, when they are durable."""
        if self._failed is not None:
            # Nobody knows what of a failed write, or of a failed fsync, is on the disk: only reading it again tells.
            raise CoordinatorLogError(f"an earlier write to {self._path} failed, restart the broker: {self._failed}")
        counts = [_records(batch) for batch in batches]
        offsets, written, end = [], bytearray(), self._end
        for batch, count in zip(batches, counts, strict=True):
            offsets.append(end)
            written += end.to_bytes(_OFFSET_BYTES, "big") + batch[_OFFSET_BYTES:]
            end += count
        try:
            if self._file.write(written) != len(written):
                raise OSError(f"{self._path} took only a part of a write")
            os.fsync(self._file.fileno())
        except OSError as error:
            self._failed = error
            raise
        for offset, batch in zip(offsets, batches, strict=True):
            self._offsets.append(offset)
            self._places.append(self._size)
            self._size += len(batch)
        self._end = end
        return offsets

    def read(self, offset: int, max_bytes: int) -> list[LogBatch]:
        """Batches from the one that contains `offset` on, at least one if there is one."""
        first = bisect_right(self._offsets, offset) - 1
        if offset >= self._end or first < 0:
            return []
        found: list[LogBatch] = []
        for at in range(first, len(self._offsets)):
            place, next_place = self._places[at], (*self._places[at + 1 : at + 2], self._size)[0]
            if found and next_place - self._places[first] > max_bytes:
                break
            next_offset = (*self._offsets[at + 1 : at + 2], self._end)[0]
            data = os.pread(self._file.fileno(), next_place - place, place)
            found.append(LogBatch(self._offsets[at], next_offset, data))
        return found

    def prune(self, before: int, rewrite_bytes: int) -> None:
        """Write the file anew without what is below `before`, once that is much. The last batch, so the end, stays."""
        first = min(bisect_right(self._offsets, before), len(self._offsets)) - 1
        if first <= 0 or self._places[first] < rewrite_bytes:
            return
        kept = os.pread(self._file.fileno(), self._size - self._places[first], self._places[first])
        write_durably(self._path, kept)  # under another name, synced, and renamed: there is no moment without a log
        self._file.close()
        self._file = self._path.open("a+b", buffering=0)
        self._recover()

    def close(self) -> None:
        self._file.close()

    def _recover(self) -> None:
        """Find all batches, and cut off what a write left that did not end. Damage before the end is an error."""
        content = self._path.read_bytes()
        self._offsets, self._places, self._size, self._end = [], [], 0, 0
        while self._size < len(content):
            count = _records_at(content, self._size)
            if count is None:
                break
            self._offsets.append(int.from_bytes(content[self._size : self._size + _OFFSET_BYTES], "big"))
            self._places.append(self._size)
            self._end = self._offsets[-1] + count
            self._size += read_header(content, self._size).size
        if self._size < len(content):
            # A torn write is the last thing in a file. If whole batches follow, this is damage: cut nothing.
            if any(_records_at(content, at) is not None for at in range(self._size + 1, len(content))):
                raise CoordinatorLogError(f"{self._path} is damaged at byte {self._size}: restore it from a backup")
            self._file.truncate(self._size)
        os.fsync(self._file.fileno())  # what is found may not have been durable before the crash
        sync_folder(self._path.parent)


def _records(batch: bytes) -> int:
    count = _records_at(batch, 0)
    if count is None or read_header(batch).size != len(batch):
        raise CoordinatorLogError("that is not one whole, intact record batch")
    return count


def _records_at(content: bytes, position: int) -> int | None:
    """How many records the batch has that begins there; None if none does, or a damaged one."""
    try:
        header = read_header(content, position)
    except CorruptBatchError:
        return None
    return header.record_count if header.magic == 2 and crc_is_valid(content, position, header) else None
