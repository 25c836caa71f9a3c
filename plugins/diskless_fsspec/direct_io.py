"""Writes whole files past the page cache, where the file system allows it.

An object is written once and read from the broker's own cache; a second copy in the kernel's costs more CPU time than
everything else about a put (measured on a virtual disk: 3 CPU-seconds per GiB against 0.3).
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from pathlib import Path

CHUNK_BYTES = 1 << 20
"""Each writing thread keeps one aligned buffer of this size."""

_BLOCK_BYTES = 4096
"""Address, length and position of a direct write have to be multiples of the device's block, which is at most this."""


class DurableWriter:
    """Writes new files that are on disk when `write` returns. Safe to be called from several threads."""

    def __init__(self) -> None:
        self._direct_flag = getattr(os, "O_DIRECT", 0)
        self._buffers = threading.local()

    def write(self, path: Path, data: bytes | bytearray) -> None:
        """Create `path` with exactly this content, and sync it.

        Raises:
            OSError: also when it exists already; what was written so far stays.
        """
        descriptor = self._create(path)
        try:
            if self._direct_flag:
                self._write_direct(descriptor, memoryview(data))
            else:
                _write_all(descriptor, memoryview(data))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _create(self, path: Path) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return os.open(path, flags | self._direct_flag, 0o644)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._direct_flag:
                raise
        self._direct_flag = 0  # tmpfs and some network file systems know no direct writes
        path.unlink(missing_ok=True)
        return os.open(path, flags, 0o644)

    def _write_direct(self, descriptor: int, data: memoryview) -> None:
        buffer = self._buffer()
        for position in range(0, len(data), CHUNK_BYTES):
            part = data[position : position + CHUNK_BYTES]
            buffer[: len(part)] = part
            _write_all(descriptor, buffer[: -(-len(part) // _BLOCK_BYTES) * _BLOCK_BYTES])
        os.ftruncate(descriptor, len(data))

    def _buffer(self) -> memoryview:
        buffer: memoryview | None = getattr(self._buffers, "aligned", None)
        if buffer is None:
            buffer = self._buffers.aligned = memoryview(mmap.mmap(-1, CHUNK_BYTES))
        return buffer


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
