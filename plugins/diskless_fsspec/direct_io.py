"""Reads and writes files past the page cache, where the file system allows it.

An object is written once and read through the broker's own cache; a second copy in the kernel's costs more CPU time
than everything else about a put (measured on a virtual disk: 3 CPU-seconds per GiB against 0.2).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from diskless_core.pages import POOLED_FROM_BYTES, PagePool
from diskless_core.plugin.wal_object_store import ObjectData

BLOCK_BYTES = 4096
"""Address, length and position of direct I/O have to be multiples of the device's block, which is at most this."""

CHUNK_BYTES = 1 << 20
"""Data that is not aligned goes through a buffer of this size, one for each thread."""

MAX_IDLE_READ_BYTES = 16 << 20

BUFFERED_BELOW_BYTES = 64 << 10
"""Smaller files go through the page cache: its copy of them costs less than what direct I/O asks for besides."""

STEP_BYTES = 512 << 10
STEPS_AT_ONCE = 2
"""What all stores of the process have asked one device for at any time, but for what somebody waits to see written.

That would have to wait for the rest. Measured on a virtual disk: a small write and its sync take 1.3 ms; beside four
threads that read 4 MiB at once, 165 ms, and that write as much, 66 ms; beside these steps, 7 ms. As many bytes are read
and written in a second.
"""

_Write = Callable[[int, memoryview, int], None]
"""Writes data to a descriptor at a position."""

_DIRECT_FLAG = getattr(os, "O_DIRECT", 0)
_REFUSED_DIRECT = errno.EINVAL


class Turns:
    """Who has a turn may ask a device for a step."""

    def __init__(self) -> None:
        self._free = SimpleQueue[None]()  # it takes the interpreter less often than a semaphore
        for _ in range(STEPS_AT_ONCE):
            self._free.put(None)

    def __enter__(self) -> None:
        self._free.get()

    def __exit__(self, *_: object) -> None:
        self._free.put(None)


_turns: dict[int, Turns] = {}


def turns_at(device: int) -> Turns:
    """Those of a device. One that hangs holds up no other."""
    return _turns.get(device) or _turns.setdefault(device, Turns())


class DurableFiles:
    """Writes new files that are on disk when `write` returns, and reads ranges. Any number of threads may use it."""

    def __init__(self) -> None:
        self._direct_flag = _DIRECT_FLAG
        self._buffers = threading.local()
        self._read_memory = PagePool(MAX_IDLE_READ_BYTES)

    def write(self, path: Path, data: ObjectData) -> None:
        """Create `path` with exactly this content, and sync it.

        Raises:
            OSError: also when it exists already; what was written so far stays.
        """
        growing = self._create(path, _write_all, is_small=len(data) < BUFFERED_BELOW_BYTES)
        try:
            growing.write(0, data)
            growing.finish(len(data))
        finally:
            growing.close()

    def create(self, path: Path) -> GrowingFile:
        """A new file, to be written piece by piece while nobody waits for it.

        Raises:
            OSError: also when it exists already.
        """
        return self._create(path, _write_in_steps)

    def read(self, path: Path, start: int, end: int) -> ObjectData:
        """The bytes `start` to `end` (exclusive) of a file, as many as it has.

        Raises:
            FileNotFoundError: there is no such file, or it is not a regular one.
        """
        descriptor, is_direct = self._open(path, os.O_RDONLY, is_small=end - start < BUFFERED_BELOW_BYTES)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise FileNotFoundError(path)
            size = min(end, found.st_size) - start
            if size <= 0:
                return b""
            if not is_direct:
                return os.pread(descriptor, size, start)
            return self._read_direct(descriptor, turns_at(found.st_dev), start, size)
        finally:
            os.close(descriptor)

    def _create(self, path: Path, write: _Write, *, is_small: bool = False) -> GrowingFile:
        descriptor, is_direct = self._open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, is_small=is_small)
        return GrowingFile(descriptor, write, self._buffer if is_direct else None)

    def _open(self, path: Path, flags: int, *, is_small: bool = False) -> tuple[int, bool]:
        """A descriptor, and whether it is for direct I/O; tmpfs and some network file systems know none."""
        if self._direct_flag and not is_small:
            try:
                return os.open(path, flags | os.O_CLOEXEC | self._direct_flag, 0o644), True
            except OSError as error:
                if error.errno != _REFUSED_DIRECT:
                    raise
                self._direct_flag = 0
                if flags & os.O_CREAT:
                    path.unlink(missing_ok=True)
        return os.open(path, flags | os.O_CLOEXEC, 0o644), False

    def _read_direct(self, descriptor: int, turns: Turns, start: int, size: int) -> ObjectData:
        first = start // BLOCK_BYTES * BLOCK_BYTES
        skipped = start - first
        needed = _rounded_up(skipped + size)
        # Small reads are copied. A mapping for each that a cache keeps would use up the 65,530 that a process may have.
        is_copied = needed < POOLED_FROM_BYTES
        view = self._buffer()[:needed] if is_copied else self._read_memory.take(needed)
        filled = 0
        while filled < skipped + size:
            with turns:
                count = os.preadv(descriptor, [view[filled : filled + STEP_BYTES]], first + filled)
            filled += count
            if count % BLOCK_BYTES or not count:
                break
        found = view[skipped : min(filled, skipped + size)]
        return bytearray(found) if is_copied else found

    def _buffer(self) -> memoryview:
        buffer: memoryview | None = getattr(self._buffers, "aligned", None)
        if buffer is None:
            buffer = self._buffers.aligned = memoryview(mmap.mmap(-1, CHUNK_BYTES))
        return buffer


class GrowingFile:
    """A file that is written in pieces: in any order, by several threads at once."""

    def __init__(self, descriptor: int, write: _Write, buffer: Callable[[], memoryview] | None) -> None:
        self._descriptor = descriptor
        self._write = write
        self._buffer = buffer

    def write(self, position: int, data: ObjectData) -> None:
        """Write a piece. All pieces but the last begin and end at multiples of `BLOCK_BYTES`."""
        view = memoryview(data)
        if self._buffer is None:
            self._write(self._descriptor, view, position)
            return
        whole_blocks = len(view) // BLOCK_BYTES * BLOCK_BYTES if _is_aligned(view) else 0
        self._write(self._descriptor, view[:whole_blocks], position)
        buffer = self._buffer()
        for done in range(whole_blocks, len(view), CHUNK_BYTES):
            part = view[done : done + CHUNK_BYTES]
            buffer[: len(part)] = part
            self._write(self._descriptor, buffer[: _rounded_up(len(part))], position + done)

    def finish(self, size: int) -> None:
        """Sync the file; `size` bytes of it were written."""
        if self._buffer is not None and size % BLOCK_BYTES:
            os.ftruncate(self._descriptor, size)
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Idempotent. Nobody may be writing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _is_aligned(data: memoryview) -> bool:
    if data.readonly or len(data) < BLOCK_BYTES:
        return False
    return ctypes.addressof(ctypes.c_char.from_buffer(data)) % BLOCK_BYTES == 0


def _rounded_up(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def _write_all(descriptor: int, data: memoryview, position: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, position)
        data, position = data[written:], position + written


def _write_in_steps(descriptor: int, data: memoryview, position: int) -> None:
    turns = turns_at(os.fstat(descriptor).st_dev)
    for done in range(0, len(data), STEP_BYTES):
        with turns:
            _write_all(descriptor, data[done : done + STEP_BYTES], position + done)
