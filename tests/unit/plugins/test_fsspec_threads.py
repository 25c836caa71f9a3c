"""A folder that does not answer any more, as on a mount whose server is gone: a FIFO stands for a file there."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.wal_object_store import ObjectData
from diskless_core.testing.remote_storage_tools import copied, make_segment
from diskless_fsspec import local_folder
from diskless_fsspec.config import FsspecRemoteStorageSettings
from diskless_fsspec.direct_io import DurableFiles
from diskless_fsspec.factory import make_remote_storage
from diskless_fsspec.local_store import LocalObjectStore
from diskless_fsspec.threads import Threads

HANGS_AND_ENDS = """
import asyncio, os, sys
from pathlib import Path
from diskless_core.clock import SystemClock
from diskless_fsspec import local_folder
from diskless_fsspec.local_store import LocalObjectStore

async def main():
    local_folder.END_S = 0.1
    root = Path(sys.argv[1])
    os.mkfifo(root / "hangs")
    store = LocalObjectStore(root, node_id=1, clock=SystemClock())
    await store.start()
    loop, begun, read = asyncio.get_running_loop(), asyncio.Event(), store._folder.files.read

    def reads(*arguments):
        loop.call_soon_threadsafe(begun.set)
        return read(*arguments)

    store._folder.files.read = reads
    reading = asyncio.create_task(store.get("hangs", 0, 1))
    await begun.wait()
    reading.cancel()
    await store.stop()

asyncio.run(main())
print("ended")
"""


@pytest.fixture
def fifos() -> Iterator[list[Path]]:
    """Opened for writing at the end, so that who reads them goes on."""
    made: list[Path] = []
    yield made
    for fifo in made:
        os.close(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))


def with_fifo_as_log(folder: Path) -> Path:
    """Put one in the place of the only log there is."""
    (log,) = folder.rglob("*.log")
    log.unlink()
    os.mkfifo(log)
    return log


async def test_a_read_that_hangs_holds_up_no_stop(
    tmp_path: Path, fifos: list[Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local_folder, "END_S", 0.1)
    context = PluginContext(node_id=1, data_dir=tmp_path / "data", log_dir=tmp_path, clock=SystemClock())
    storage = make_remote_storage(context, FsspecRemoteStorageSettings())
    await storage.start()
    segment = await copied(storage, make_segment())
    fifos.append(with_fifo_as_log(tmp_path))
    loop, begun, read = asyncio.get_running_loop(), asyncio.Event(), DurableFiles.read

    def reads(files: DurableFiles, path: Path, start: int, end: int) -> ObjectData:
        loop.call_soon_threadsafe(begun.set)
        return read(files, path, start, end)

    monkeypatch.setattr(DurableFiles, "read", reads)
    reading = asyncio.create_task(storage.fetch(segment.metadata, 0, 1))
    await begun.wait()
    async with asyncio.timeout(5):
        await storage.stop()
    assert "does not answer" in caplog.text
    reading.cancel()


def test_a_read_that_hangs_holds_up_no_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS_AND_ENDS, str(tmp_path)], capture_output=True, text=True, timeout=20
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


async def test_a_write_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalObjectStore(tmp_path, node_id=1, clock=SystemClock())
    await store.start()
    loop, syncing, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    fsync = os.fsync

    def slow_fsync(descriptor: int) -> None:
        loop.call_soon_threadsafe(syncing.set)
        assert release.wait(10)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow_fsync)
    writing = asyncio.create_task(store.put("a", b"x"))
    await syncing.wait()
    stopping = asyncio.create_task(store.stop())
    await asyncio.wait({stopping}, timeout=0.05)  # a stop that does not wait is done by then
    assert not stopping.done()
    release.set()
    await stopping
    await writing
    assert (tmp_path / "a").read_bytes() == b"x"


async def test_what_waits_for_a_thread_is_done_before_the_end() -> None:
    threads, done = Threads(2, "some"), list[int]()
    loop = asyncio.get_running_loop()
    waiting = [loop.run_in_executor(threads, done.append, number) for number in range(50)]
    assert await threads.stop(5)
    await asyncio.gather(*waiting)
    assert sorted(done) == list(range(50))
    assert await threads.stop(5)
    with pytest.raises(RuntimeError, match="stopped"):
        threads.submit(done.append, 1)


async def test_what_a_call_raises_is_its_callers_and_ends_no_thread() -> None:
    threads = Threads(1, "some")

    def fails() -> None:
        raise OSError(errno.EIO, "broken")

    loop = asyncio.get_running_loop()
    with pytest.raises(OSError, match="broken"):
        await loop.run_in_executor(threads, fails)
    assert await loop.run_in_executor(threads, lambda: 5) == 5
    assert await threads.stop(5)


async def test_what_is_cancelled_before_a_thread_takes_it_is_not_done() -> None:
    threads, release, done = Threads(1, "some"), threading.Event(), list[int]()
    loop = asyncio.get_running_loop()
    first = loop.run_in_executor(threads, release.wait, 10)
    second = loop.run_in_executor(threads, done.append, 1)
    second.cancel()
    await asyncio.sleep(0)
    release.set()
    assert await first
    assert await threads.stop(5)
    assert done == []
