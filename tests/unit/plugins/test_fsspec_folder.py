"""Objects in a folder: nothing half written is ever an object, and nothing acknowledged is only in the page cache."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.wal_object_store import ConditionFailedError, WalObjectStoreError
from diskless_core.testing.wal_object_store_tools import listed
from diskless_fsspec import local_conditions
from diskless_fsspec.keys import INCOMING
from diskless_fsspec.local_store import LocalObjectStore

CLOCK = SystemClock()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalObjectStore]:
    store = LocalObjectStore(tmp_path / "wal", node_id=1, clock=CLOCK)
    await store.start()
    yield store
    await store.stop()


@pytest.fixture
def disk_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The fsyncs, renames and links, in order, by the name of the file or folder."""
    calls: list[str] = []
    fsync, rename, link = os.fsync, Path.rename, os.link

    def noted_fsync(descriptor: int) -> None:
        calls.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        fsync(descriptor)

    def noted_rename(source: Path, target: Path) -> Path:
        calls.append(f"rename {source.name} {target.name}")
        return rename(source, target)

    def noted_link(source: Path, target: Path) -> None:
        calls.append(f"link {source.name} {target.name}")
        link(source, target)

    monkeypatch.setattr(os, "link", noted_link)
    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    return calls


async def test_a_put_is_synced_before_and_after_it_gets_its_name(
    store: LocalObjectStore, disk_calls: list[str]
) -> None:
    await store.put("new/deep/object", b"data")
    *folders, file, renamed, last = disk_calls
    growing = file.removeprefix("fsync ")
    assert folders == ["fsync wal", "fsync new"]
    assert renamed == f"rename {growing} object"
    assert last == "fsync deep"


async def test_a_known_folder_is_not_synced_into_its_parent_again(
    store: LocalObjectStore, disk_calls: list[str]
) -> None:
    await store.put("folder/one", b"data")
    disk_calls.clear()
    await store.put("folder/two", b"data")
    assert len(disk_calls) == 3


async def test_a_conditional_write_is_synced_before_and_after_it_gets_its_name(
    store: LocalObjectStore, disk_calls: list[str]
) -> None:
    version = await store.create("folder/object", b"data")
    file, linked, last = disk_calls[-3:]
    assert linked == f"link {file.removeprefix('fsync ')} object"
    assert last == "fsync folder"
    disk_calls.clear()
    await store.replace("folder/object", b"other", version)
    file, renamed, last = disk_calls[-3:]
    assert renamed == f"rename {file.removeprefix('fsync ')} object"
    assert last == "fsync folder"


async def test_what_was_read_stays_though_its_writer_was_killed_before_it_synced_the_folder(
    store: LocalObjectStore, tmp_path: Path, disk_calls: list[str]
) -> None:
    (tmp_path / "wal" / "left").mkdir()
    (tmp_path / "wal" / "left" / "object").write_bytes(b"data")
    await store.get_versioned("left/object")
    assert disk_calls == ["fsync left"]


async def test_a_loser_writes_nothing(store: LocalObjectStore, disk_calls: list[str]) -> None:
    version = await store.create("object", b"data")
    disk_calls.clear()
    with pytest.raises(ConditionFailedError):
        await store.create("object", b"other")
    with pytest.raises(ConditionFailedError):
        await store.replace("object", b"other", f"not-{version}")
    assert disk_calls == []


async def test_a_conditional_write_that_fails_leaves_no_growing_file(
    store: LocalObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = await store.create("object", b"data")

    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    for write in (store.create("new", b"x"), store.replace("object", b"x", version)):
        with pytest.raises(WalObjectStoreError, match="No space left") as caught:
            await write
        assert caught.value.retriable
    assert list((tmp_path / "wal" / INCOMING / "1").iterdir()) == []


async def test_a_process_that_stops_while_it_replaces_holds_up_only_replacing_and_deleting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many replaces wait as there are threads; objects are put all the same."""
    monkeypatch.setattr(local_conditions, "LOCK_TIMEOUT_S", 0.2)
    store = LocalObjectStore(tmp_path / "wal", node_id=1, clock=CLOCK, threads=2)
    await store.start()
    version = await store.create("object", b"data")
    lock = tmp_path / "wal" / INCOMING / local_conditions.LOCK_NAME
    await store.replace("object", b"data", version)
    with lock.open() as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        writes = [store.replace("object", b"%d" % number, version) for number in range(4)]
        waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(one) for one in (*writes, store.delete(["object"]))]
        await store.put("other", b"data")
        await store.create("another", b"data")
        for one in waiting:
            with pytest.raises(WalObjectStoreError, match="another process has held") as caught:
                await one
            assert caught.value.retriable
    await store.replace("object", b"again", version)
    assert await store.delete(["object"]) == ["object"]
    await store.stop()


async def test_two_processes_on_one_folder_never_both_win(tmp_path: Path) -> None:
    """Two stores have locks and threads of their own, as two processes have."""
    stores = [LocalObjectStore(tmp_path / "wal", node_id=number, clock=CLOCK) for number in range(2)]
    for store in stores:
        await store.start()
    version = await stores[0].create("object", b"first")
    for number in range(20):
        bodies = [b"%d %d" % (number, writer) for writer in range(8)]
        writes = [stores[writer % 2].replace("object", data, version) for writer, data in enumerate(bodies)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        (won,) = [writer for writer, result in enumerate(results) if isinstance(result, str)]
        assert {type(result) for result in results} == {str, ConditionFailedError}
        found = await stores[1].get_versioned("object")
        assert (bytes(found.data), found.version) == (bodies[won], results[won])
        version = found.version
    for store in stores:
        await store.stop()


async def test_a_folder_left_by_a_killed_process_is_synced_once_more(
    store: LocalObjectStore, tmp_path: Path, disk_calls: list[str]
) -> None:
    (tmp_path / "wal" / "left").mkdir()
    await store.put("left/object", b"data")
    assert disk_calls[0] == "fsync wal"


async def test_a_full_disk_is_retriable_and_leaves_nothing(
    store: LocalObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    await store.put("folder/before", b"x")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", no_space)
        with pytest.raises(WalObjectStoreError, match="No space left") as caught:
            await store.put("folder/object", b"data")
    assert caught.value.retriable
    assert {path.name for path in (tmp_path / "wal").rglob("*") if path.is_file()} == {"before"}
    await store.put("folder/object", b"data")
    assert set(await listed(store)) == {"folder/before", "folder/object"}


async def test_unfinished_files_are_not_listed_and_go_at_the_next_start_of_their_node(tmp_path: Path) -> None:
    root = tmp_path / "wal"
    for node in ("1", "2"):
        (root / ".incoming" / node).mkdir(parents=True)
        (root / ".incoming" / node / "unfinished").write_bytes(b"half")
    store = LocalObjectStore(root, node_id=1, clock=CLOCK)
    await store.start()
    assert await listed(store) == {}
    assert await listed(store, ".in") == {}
    await store.stop()
    assert [path.parent.name for path in root.rglob("unfinished")] == ["2"]


async def test_two_nodes_share_a_folder(store: LocalObjectStore, tmp_path: Path) -> None:
    other = LocalObjectStore(tmp_path / "wal", node_id=2, clock=CLOCK)
    await other.start()
    await asyncio.gather(*((store, other)[n % 2].put(f"{n}", b"x" * n) for n in range(20)))
    assert {info.size_bytes for info in (await listed(other)).values()} == set(range(20))
    assert list(await store.delete(["1"])) == ["1"]
    assert "1" not in await listed(other)
    await other.stop()


@pytest.mark.parametrize(
    "key", ["../outside", "a/../../outside", "/etc/passwd", "a//b", "a/", "", ".incoming/1/x", "ü"]
)
async def test_a_key_that_leads_elsewhere_is_refused_by_every_method(
    store: LocalObjectStore, tmp_path: Path, key: str
) -> None:
    (tmp_path / "outside").write_bytes(b"x")
    for attempt in (store.put(key, b"x"), store.get(key, 0, 1), store.delete([key])):
        with pytest.raises(WalObjectStoreError) as caught:
            await attempt
        assert not caught.value.retriable
    assert (tmp_path / "outside").read_bytes() == b"x"


async def test_a_prefix_that_leads_elsewhere_is_refused(store: LocalObjectStore) -> None:
    for prefix in ("../", "/etc/", ".incoming/1"):
        with pytest.raises(WalObjectStoreError):
            await listed(store, prefix)


async def test_a_place_that_is_no_folder_is_refused_at_start_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = LocalObjectStore(tmp_path / "file", node_id=1, clock=CLOCK)
    with pytest.raises(WalObjectStoreError, match=r"wal_object_store\.fsspec\.url") as caught:
        await store.start()
    assert not caught.value.retriable
    await store.stop()


async def test_an_object_in_the_way_of_a_folder_is_an_error_no_retry_helps(store: LocalObjectStore) -> None:
    await store.put("a", b"x")
    with pytest.raises(WalObjectStoreError) as caught:
        await store.put("a/b", b"x")
    assert not caught.value.retriable


async def test_a_folder_removed_by_hand_is_made_again_by_the_next_try(store: LocalObjectStore, tmp_path: Path) -> None:
    await store.put("folder/one", b"x")
    (tmp_path / "wal" / "folder" / "one").unlink()
    (tmp_path / "wal" / "folder").rmdir()
    with pytest.raises(WalObjectStoreError, match="removed") as caught:
        await store.put("folder/two", b"x")
    assert caught.value.retriable
    await store.put("folder/two", b"x")
    assert list(await listed(store)) == ["folder/two"]


async def test_a_root_that_has_gone_is_not_listed_as_a_store_without_objects(
    store: LocalObjectStore, tmp_path: Path
) -> None:
    await store.put("object", b"data")
    (tmp_path / "wal").rename(tmp_path / "aside")
    with pytest.raises(WalObjectStoreError, match="cannot list"):
        await listed(store)
    (tmp_path / "aside").rename(tmp_path / "wal")
    assert list(await listed(store)) == ["object"]


async def test_a_file_that_cannot_be_deleted_is_not_reported_gone(
    store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("a/stuck", b"x")
    await store.put("a/free", b"x")
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name == "stuck":
            raise PermissionError(errno.EPERM, "no")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert list(await store.delete(["a/stuck", "a/free"])) == ["a/free"]


async def test_a_deletion_is_synced_once_for_each_folder(store: LocalObjectStore, disk_calls: list[str]) -> None:
    for key in ("a/1", "a/2", "b/1"):
        await store.put(key, b"x")
    disk_calls.clear()
    await store.delete(["a/1", "b/1", "a/2", "absent/1"])
    assert sorted(disk_calls) == ["fsync a", "fsync b"]


async def test_a_stopped_store_says_so(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path, node_id=1, clock=CLOCK)
    await store.start()
    await store.stop()
    with pytest.raises(WalObjectStoreError, match="stopped"):
        await store.put("a", b"x")


async def test_reads_do_not_wait_for_writes(store: LocalObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.put("a", b"x")
    loop = asyncio.get_running_loop()
    stuck, release = asyncio.Semaphore(0), asyncio.Event()

    def slow_fsync(descriptor: int) -> None:
        loop.call_soon_threadsafe(stuck.release)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(30)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", slow_fsync)
        puts = [asyncio.create_task(store.put(f"{number}", b"x")) for number in range(4)]
        for _ in puts:
            await stuck.acquire()
        assert await store.get("a", 0, 1) == b"x"
        release.set()
        await asyncio.gather(*puts)


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


async def test_opened_for_reading_nothing_is_written_not_even_where_uploads_grow(
    store: LocalObjectStore, tmp_path: Path
) -> None:
    await store.put("a/b", b"data")
    growing = tmp_path / "wal" / INCOMING / "1" / "growing"
    growing.write_bytes(b"half")
    before = files(tmp_path)
    reader = LocalObjectStore(tmp_path / "wal", node_id=1, clock=CLOCK)
    await reader.start_reading()

    assert list(await listed(reader)) == ["a/b"]
    assert await reader.get("a/b", 1, 3) == b"at"
    await reader.stop()
    assert files(tmp_path) == before


async def test_a_folder_that_is_not_there_is_not_made_for_reading(tmp_path: Path) -> None:
    reader = LocalObjectStore(tmp_path / "none", node_id=1, clock=CLOCK)
    with pytest.raises(WalObjectStoreError, match="there is no folder"):
        await reader.start_reading()
    await reader.stop()
    assert files(tmp_path) == []
