"""What reading asks of a device at once, beside what is written meanwhile."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from diskless_fsspec import direct_io
from diskless_fsspec.direct_io import READ_STEP_BYTES, READ_STEPS_AT_ONCE, DurableFiles

THREADS = 6
SIZE = 3 * READ_STEP_BYTES + 1000


def test_threads_that_read_much_ask_for_little_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not direct_io._DIRECT_FLAG:
        pytest.skip("there is no direct I/O here")
    counting, under_way, most = threading.Lock(), 0, 0
    everybody = threading.Barrier(READ_STEPS_AT_ONCE)
    read = os.preadv

    def preadv(descriptor, buffers, position):
        nonlocal under_way, most
        assert sum(map(len, buffers)) <= READ_STEP_BYTES
        with counting:
            under_way += 1
            most = max(most, under_way)
        try:
            if position == 0:
                everybody.wait(timeout=30)
            return read(descriptor, buffers, position)
        finally:
            with counting:
                under_way -= 1

    data = bytes(range(256)) * (SIZE // 256) + b"end"
    files = [DurableFiles() for _ in range(2)]
    files[0].write(tmp_path / "object", data)
    monkeypatch.setattr(os, "preadv", preadv)
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda number: bytes(files[number % 2].read(tmp_path / "object", 1, SIZE)), range(THREADS))
        assert all(one == data[1:SIZE] for one in found)
    assert most in (0, READ_STEPS_AT_ONCE), "0 where the file system refused direct I/O"
