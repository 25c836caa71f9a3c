"""Segments in a folder: laid out as Apache Kafka expects them, durable in the right order, nothing left behind."""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import IndexType, LogSegmentData, RemoteStorage, RemoteStorageError
from diskless_core.plugin.wal_object_store import ObjectData, WalObjectStoreError
from diskless_core.protocol.names import uuid_text
from diskless_core.remote_log.metadata import RemoteLogSegmentId, TopicIdPartition
from diskless_core.testing.remote_storage_tools import (
    BrokenLogError,
    Segment,
    assert_absent,
    assert_stored,
    copied,
    make_segment,
)
from diskless_fsspec.config import FsspecRemoteStorageSettings
from diskless_fsspec.factory import make_remote_storage
from diskless_fsspec.local_segments import LocalSegmentStore
from diskless_fsspec.remote_storage import FsspecRemoteStorage
from tests.support.open_files import open_below

MEBIBYTE = 1 << 20
CLOCK = SystemClock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "remote-storage"


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[RemoteStorage]:
    context = PluginContext(node_id=1, data_dir=tmp_path / "data", log_dir=tmp_path, clock=CLOCK)
    storage = make_remote_storage(context, FsspecRemoteStorageSettings())
    await storage.start()
    yield storage
    await storage.stop()


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def disk_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The fsyncs and renames, in order, by the name of the file or folder; what grows is called so."""
    calls: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def name_of(path: Path) -> str:
        return "growing" if path.parent.name == ".incoming" else path.suffix or path.name

    def noted_fsync(descriptor: int) -> None:
        calls.append(f"fsync {name_of(Path(f'/proc/self/fd/{descriptor}').readlink())}")
        fsync(descriptor)

    def noted_rename(source: Path, target: Path) -> Path:
        calls.append(f"rename {name_of(source)} {name_of(target)}")
        return rename(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    return calls


async def test_files_are_called_as_in_the_local_tiered_storage_of_apache_kafka(
    storage: RemoteStorage, root: Path
) -> None:
    topic_id = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    copy_id = uuid.UUID("fffefdfc-fbfa-f9f8-f7f6-f5f4f3f2f1f0")
    segment = make_segment(absent=(), start_offset=1234)
    segment_id = RemoteLogSegmentId(TopicIdPartition(topic_id, "a.b_c-d", 7), copy_id)
    await copied(storage, replace(segment, metadata=replace(segment.metadata, segment_id=segment_id)))

    folder = "kafka-tiered-storage/a.b_c-d-7-ABEiM0RVZneImaq7zN3u_w"
    name = "00000000000000001234-__79_Pv6-fj39vX08_Lx8A"
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".leader_epoch_checkpoint", ".snapshot")
    assert files(root) == {f"{folder}/{name}{suffix}" for suffix in suffixes}


async def test_all_is_synced_before_anything_gets_its_name_and_the_log_gets_it_last(
    storage: RemoteStorage, disk_calls: list[str]
) -> None:
    await copied(storage, make_segment(absent=(IndexType.TRANSACTION, IndexType.TIMESTAMP)))

    first_rename = next(at for at, call in enumerate(disk_calls) if call.startswith("rename"))
    assert [call.split()[0] for call in disk_calls[:2]] == ["fsync"] * 2
    assert disk_calls[2:first_rename] == ["fsync growing"] * 4
    *indexes, log, folder = disk_calls[first_rename:]
    assert set(indexes) == {f"rename growing {index}" for index in (".index", ".snapshot", ".leader_epoch_checkpoint")}
    assert log == "rename growing .log"
    assert folder.startswith("fsync orders-3-")


async def test_a_copy_leaves_nothing_that_grew(storage: RemoteStorage, root: Path) -> None:
    await copied(storage, make_segment(9 * MEBIBYTE))
    assert list((root / ".incoming").iterdir()) == []


@pytest.mark.parametrize("after_bytes", [0, 100, 9 * MEBIBYTE])
async def test_a_copy_that_breaks_off_leaves_nothing(storage: RemoteStorage, root: Path, after_bytes: int) -> None:
    segment = make_segment(9 * MEBIBYTE)
    with pytest.raises(BrokenLogError):
        await storage.copy(segment.metadata, segment.broken_data(after_bytes))
    assert files(root) == set()
    assert list((root / ".incoming").iterdir()) == []


def names_of(root: Path, segment: Segment) -> str:
    """What the names of a segment's files begin with."""
    (log,) = root.rglob(f"*{uuid_text(segment.metadata.segment_id.id)}.log")
    return log.name.removesuffix(".log")


async def test_a_deletion_takes_what_a_killed_copy_left_and_nothing_else(storage: RemoteStorage, root: Path) -> None:
    segment, other = await copied(storage, make_segment()), await copied(storage, make_segment(number=2))
    for known in (segment, other):
        (root / ".incoming" / f"{names_of(root, known)}.half").write_bytes(b"half a log")

    await storage.delete(segment.metadata)

    await assert_stored(storage, other)
    assert {path.name for path in (root / ".incoming").iterdir()} == {f"{names_of(root, other)}.half"}
    await storage.delete(other.metadata)
    assert files(root) == set()


async def test_what_a_killed_copy_left_goes_when_another_one_is_complete(storage: RemoteStorage, root: Path) -> None:
    segment, other = await copied(storage, make_segment()), await copied(storage, make_segment(number=2))
    for known in (segment, other):
        (root / ".incoming" / f"{names_of(root, known)}.half").write_bytes(b"half a log")

    await storage.discard_unfinished(segment.metadata)

    assert {path.name for path in (root / ".incoming").iterdir()} == {f"{names_of(root, other)}.half"}
    await assert_stored(storage, segment, other)


async def test_a_copy_whose_growing_file_was_thrown_away_fails_and_leaves_the_complete_one(
    storage: RemoteStorage, root: Path
) -> None:
    """An attempt that Spark has given up, and that is alive when another one's copy is finished."""
    segment, stuck = await copied(storage, make_segment()), asyncio.Event()
    goes_on = asyncio.Event()

    async def late() -> AsyncIterator[ObjectData]:
        stuck.set()
        await goes_on.wait()
        yield segment.log

    attempt = asyncio.create_task(
        storage.copy(segment.metadata, LogSegmentData(log=late, indexes=lambda: segment.indexes))
    )
    await stuck.wait()
    await storage.discard_unfinished(segment.metadata)
    goes_on.set()
    with pytest.raises(RemoteStorageError, match="was removed meanwhile"):
        await attempt
    assert list((root / ".incoming").iterdir()) == []
    await assert_stored(storage, segment)


async def test_a_start_leaves_alone_what_others_are_copying(storage: RemoteStorage, root: Path) -> None:
    growing = root / ".incoming" / "segment.half"
    growing.write_bytes(b"half a log")
    other = FsspecRemoteStorage(LocalSegmentStore(root, clock=CLOCK))
    await other.start()
    await other.stop()
    assert files(root) == {".incoming/segment.half"}


async def test_a_full_disk_is_retriable_and_leaves_nothing(
    storage: RemoteStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    segment = make_segment(20 * MEBIBYTE)
    for call in ("pwrite", "fsync"):
        with monkeypatch.context() as patched:
            patched.setattr(os, call, no_space)
            with pytest.raises(RemoteStorageError, match="No space left") as caught:
                await storage.copy(segment.metadata, segment.data())
        assert caught.value.retriable
        assert files(root) == set()
    await assert_stored(storage, await copied(storage, segment))


async def test_a_log_of_another_size_than_its_metadata_say_is_refused(storage: RemoteStorage, root: Path) -> None:
    segment = make_segment(1000)
    for size in (999, 1001):
        metadata = replace(segment.metadata, segment_size_bytes=size)
        with pytest.raises(RemoteStorageError, match=f"has 1000 bytes, its metadata say {size}") as caught:
            await storage.copy(metadata, segment.data())
        assert not caught.value.retriable
    assert files(root) == set()


async def test_an_error_of_the_log_is_not_taken_for_one_of_the_storage(storage: RemoteStorage) -> None:
    error = WalObjectStoreError("the WAL object cannot be read")

    async def unreadable() -> AsyncIterator[ObjectData]:
        yield b"x"
        raise error

    segment = make_segment()
    with pytest.raises(WalObjectStoreError) as caught:
        await storage.copy(segment.metadata, LogSegmentData(log=unreadable, indexes=dict))
    assert caught.value is error


async def test_a_log_that_is_left_early_is_closed(storage: RemoteStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = False

    async def endless() -> AsyncIterator[ObjectData]:
        nonlocal closed
        try:
            while True:
                yield bytes(MEBIBYTE)
        finally:
            closed = True

    def broken(*arguments: object) -> int:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(RemoteStorageError):
        await storage.copy(make_segment().metadata, LogSegmentData(log=endless, indexes=dict))
    assert closed


async def test_a_log_is_read_no_faster_than_it_is_written(
    storage: RemoteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four parts of 4 MiB: two that are being written, one that waits for them, and the piece that was asked for."""
    loop = asyncio.get_running_loop()
    stuck, release, pwrite, read_mebibytes = asyncio.Semaphore(0), asyncio.Event(), os.pwrite, 0
    segment = make_segment(64 * MEBIBYTE)

    async def log() -> AsyncIterator[ObjectData]:
        nonlocal read_mebibytes
        for at in range(0, len(segment.log), MEBIBYTE):
            read_mebibytes += 1
            yield segment.log[at : at + MEBIBYTE]

    def slow_pwrite(descriptor: int, data: memoryview, position: int) -> int:
        loop.call_soon_threadsafe(stuck.release)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(30)
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", slow_pwrite)
    copying = asyncio.create_task(storage.copy(segment.metadata, replace_log(segment, log)))
    for _ in range(2):
        await stuck.acquire()
    for _ in range(100):
        await asyncio.sleep(0)
    assert read_mebibytes <= 16
    release.set()
    await copying
    await assert_stored(storage, segment)


async def test_reads_do_not_wait_for_copies(storage: RemoteStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    known = await copied(storage, make_segment())
    loop = asyncio.get_running_loop()
    stuck, release = asyncio.Semaphore(0), asyncio.Event()

    def slow_fsync(descriptor: int) -> None:
        loop.call_soon_threadsafe(stuck.release)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(30)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", slow_fsync)
        copies = [asyncio.create_task(copied(storage, make_segment(number=number))) for number in range(2, 6)]
        for _ in copies:
            await stuck.acquire()
        await assert_stored(storage, known)
        release.set()
        await asyncio.gather(*copies)


async def test_a_copy_that_is_cancelled_while_it_gets_its_names_ends_first(
    storage: RemoteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a deletion that follows deletes it."""
    loop = asyncio.get_running_loop()
    stuck, release, fsync = asyncio.Event(), asyncio.Event(), os.fsync
    segment = make_segment()

    def slow_fsync(descriptor: int) -> None:
        loop.call_soon_threadsafe(stuck.set)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(30)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow_fsync)
    copying = asyncio.create_task(storage.copy(segment.metadata, segment.data()))
    await stuck.wait()
    for _ in range(2):
        copying.cancel()
        await asyncio.sleep(0)
    assert not copying.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await copying
    await assert_stored(storage, segment)
    await storage.delete(segment.metadata)
    await assert_absent(storage, segment)


async def test_a_folder_removed_by_hand_is_made_again_by_the_next_try(storage: RemoteStorage, root: Path) -> None:
    segment = await copied(storage, make_segment())
    await storage.delete(segment.metadata)
    (folder,) = (root / "kafka-tiered-storage").iterdir()
    folder.rmdir()
    with pytest.raises(RemoteStorageError, match="removed") as caught:
        await copied(storage, segment)
    assert caught.value.retriable
    await assert_stored(storage, await copied(storage, segment))


async def test_a_file_that_cannot_be_deleted_is_an_error(
    storage: RemoteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = await copied(storage, make_segment())

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EPERM, "no")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        with pytest.raises(RemoteStorageError, match="cannot delete"):
            await storage.delete(segment.metadata)
    await assert_stored(storage, segment)


async def test_a_place_that_is_no_folder_is_refused_at_start_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    storage = FsspecRemoteStorage(LocalSegmentStore(tmp_path / "file", clock=CLOCK))
    with pytest.raises(RemoteStorageError, match=r"remote_storage\.fsspec\.url") as caught:
        await storage.start()
    assert not caught.value.retriable
    await storage.stop()


async def test_a_topic_whose_name_is_too_long_for_a_file_is_an_error_no_retry_helps(storage: RemoteStorage) -> None:
    with pytest.raises(RemoteStorageError) as caught:
        await copied(storage, make_segment(topic="x" * 249))
    assert not caught.value.retriable


async def test_a_stopped_storage_says_so(storage: RemoteStorage) -> None:
    await storage.stop()
    segment = make_segment()
    for attempt in (storage.copy(segment.metadata, segment.data()), storage.fetch(segment.metadata, 0, 1)):
        with pytest.raises(RemoteStorageError, match="stopped"):
            await attempt


async def test_no_failed_copy_keeps_a_file_open(storage: RemoteStorage, root: Path) -> None:
    segment = make_segment(9 * MEBIBYTE)
    for _ in range(3):
        with pytest.raises(BrokenLogError):
            await storage.copy(segment.metadata, segment.broken_data(len(segment.log)))
    assert open_below(root) == []


def replace_log(segment: Segment, log: Callable[[], AsyncIterator[ObjectData]]) -> LogSegmentData:
    return LogSegmentData(log=log, indexes=lambda: segment.indexes)
