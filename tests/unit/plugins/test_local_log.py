"""The local coordinator log: what is on disk, when it is acknowledged, and what it does when the disk fails."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from diskless_core.clock import SystemClock
from diskless_core.log.offset_checkpoint import RECOVERY_POINTS
from diskless_core.log.segment import file_name
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogError, LogOffsetPrunedError
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.record_batch import patch_base_offset, walk
from diskless_core.shards import DISKLESS
from diskless_core.testing.coordinator_log_tools import (
    OTHER_SHARD,
    SHARD,
    batch_of,
    next_batches,
    numbered_batches,
    read_all,
    read_batches,
    reading,
    same_content,
    started,
)
from diskless_local_log import local_log, shard_log, writer
from diskless_local_log.config import LocalLogSettings
from diskless_local_log.local_log import LocalCoordinatorLog
from diskless_local_log.plugin import diskless_coordinator_logs
from diskless_local_log.recovery_points import read_recovery_points
from tests.support.waiting import wait_until

A, B, C = batch_of(b"a", b"aa"), batch_of(b"b"), batch_of(b"c")

MakeLocalLog = Callable[..., LocalCoordinatorLog]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "plugins" / "local"


@pytest.fixture
def folder(data_dir: Path) -> Path:
    return data_dir / "__diskless_metadata-0"


@pytest.fixture
def make_log(data_dir: Path, tmp_path: Path) -> MakeLocalLog:
    def make(**settings: object) -> LocalCoordinatorLog:
        context = PluginContext(node_id=7, data_dir=data_dir, log_dir=tmp_path, clock=SystemClock())
        return LocalCoordinatorLog(context, LocalLogSettings.model_validate(settings))

    return make


@pytest.fixture
async def log(make_log: MakeLocalLog) -> AsyncIterator[CoordinatorLog]:
    async with started(make_log(segment_bytes=4096)) as log:
        yield log


class Gate:
    """Stands in for a system call: counts, waits while closed, and fails on demand."""

    def __init__(self, call: Callable[..., object]) -> None:
        self._call = call
        self._threads: list[int] = []
        self.error: OSError | None = None
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()

    @property
    def calls(self) -> int:
        return len(self._threads)

    def __call__(self, *arguments: object) -> object:
        self._threads.append(threading.get_ident())
        self.entered.set()
        self.open.wait(30)
        if self.error is not None:
            raise self.error
        return self._call(*arguments)


@pytest.fixture
def sync(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(writer.sync_file)
    monkeypatch.setattr(writer, "sync_file", gate)
    yield gate
    gate.open.set()


def at_offset(batch: bytes, offset: int) -> bytes:
    written = bytearray(batch)
    patch_base_offset(written, 0, offset)
    return bytes(written)


def segments(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- on disk --------------------------------------------------------------------------------------------------------


async def test_a_shard_is_a_folder_of_kafka_segments_with_patched_offsets(log: CoordinatorLog, folder: Path) -> None:
    await log.append(SHARD, [A, B])
    await log.append(SHARD, [C])
    data = (folder / file_name(0)).read_bytes()
    headers = [header for _, header in walk(data)]
    assert [header.base_offset for header in headers] == [0, 2, 3]
    assert data[16 : len(A)] == A[16:]


async def test_a_batch_tells_how_many_bytes_before_it_were_not_durable_yet(
    make_log: MakeLocalLog, folder: Path
) -> None:
    for fsync in (True, False):
        async with started(make_log(fsync=fsync)) as log:
            await log.append(SHARD, [A, B])
            await log.append(SHARD, [C])
    headers = list(walk((folder / file_name(0)).read_bytes()))
    told = [position - header.partition_leader_epoch for position, header in headers]
    assert told == [0, 0, len(A) + len(B), 0, 0, 0]


async def test_segments_roll_before_they_exceed_their_size(log: CoordinatorLog, folder: Path) -> None:
    for batch in numbered_batches(10):
        await log.append(SHARD, [batch])
    assert segments(folder) == [file_name(base_offset) for base_offset in (0, 3, 6, 9)]
    assert all((folder / name).stat().st_size <= 4096 for name in segments(folder))


async def test_a_batch_larger_than_a_segment_has_one_for_itself(log: CoordinatorLog, folder: Path) -> None:
    batches = [A, batch_of(bytes(10_000)), B]
    for batch in batches:
        await log.append(SHARD, [batch])
    assert segments(folder) == [file_name(base_offset) for base_offset in (0, 2, 3)]
    assert same_content(await read_all(log, SHARD), batches)


async def test_a_shard_of_a_topic_that_this_release_does_not_know_is_there_after_a_restart(
    make_log: MakeLocalLog,
) -> None:
    shard = ShardId("__metadata-of-tomorrow", 3)
    async with started(make_log()) as log:
        await log.append(shard, [A, B])
    async with started(make_log()) as log:
        assert same_content(await read_all(log, shard), [A, B])


async def test_other_folders_in_the_data_folder_are_left_alone(make_log: MakeLocalLog, data_dir: Path) -> None:
    for name in ("lost+found", "orders-0", "__diskless_metadata-x", "__diskless_metadata"):
        (data_dir / name).mkdir(parents=True)
        (data_dir / name / file_name(0)).write_bytes(b"not ours")
    async with started(make_log()) as log:
        await log.append(SHARD, [A])
    assert (data_dir / "orders-0" / file_name(0)).read_bytes() == b"not ours"


async def test_an_opened_and_stopped_log_leaves_no_file_open(make_log: MakeLocalLog) -> None:
    def open_files() -> list[str]:
        return [file.path for file in psutil.Process().open_files()]

    before = open_files()
    async with started(make_log(segment_bytes=4096)) as log:
        await log.append(SHARD, numbered_batches(3))
        await log.append(OTHER_SHARD, numbered_batches(3))
        assert len(open_files()) > len(before)
    assert open_files() == before


# -- group commit ---------------------------------------------------------------------------------------------------


async def test_nothing_is_acknowledged_or_readable_before_it_is_synced(make_log: MakeLocalLog, sync: Gate) -> None:
    async with started(make_log()) as log, reading(log, SHARD, 0) as reader:
        sync.open.clear()
        append = asyncio.create_task(log.append(SHARD, [A]))
        waiting = asyncio.create_task(next_batches(reader))
        await asyncio.to_thread(sync.entered.wait, 30)
        assert (await log.bounds(SHARD)).end == 0
        assert not append.done()
        assert not waiting.done()
        sync.open.set()
        assert await append == [0]
        assert same_content(await waiting, [A])


async def test_appends_that_queue_during_a_sync_share_the_next_one(make_log: MakeLocalLog, sync: Gate) -> None:
    shards = [DISKLESS.shard(index) for index in range(3)]
    async with started(make_log()) as log:
        sync.open.clear()
        first = asyncio.create_task(log.append(SHARD, [A]))
        await asyncio.to_thread(sync.entered.wait, 30)
        queued = [asyncio.create_task(log.append(shard, [B])) for shard in shards for _ in range(5)]
        await asyncio.sleep(0)
        sync.open.set()
        await asyncio.gather(first, *queued)
        assert sync.calls == 1 + len(shards)
        assert same_content(await read_all(log, SHARD), [A, B, B, B, B, B])


async def test_without_fsync_an_append_is_not_synced(make_log: MakeLocalLog, sync: Gate) -> None:
    async with started(make_log(fsync=False)) as log:
        await log.append(SHARD, [A, B])
    assert sync.calls == 0


async def test_a_full_segment_is_synced_before_the_next_begins_even_without_fsync(
    make_log: MakeLocalLog, sync: Gate
) -> None:
    async with started(make_log(fsync=False, segment_bytes=4096)) as log:
        for batch in numbered_batches(4):
            await log.append(SHARD, [batch])
    assert sync.calls == 1


async def test_the_event_loop_goes_on_while_the_disk_is_slow(make_log: MakeLocalLog, sync: Gate) -> None:
    async with started(make_log()) as log:
        sync.open.clear()
        append = asyncio.create_task(log.append(SHARD, [A]))
        for _ in range(100):
            await log.bounds(SHARD)
            await asyncio.sleep(0)
        assert not append.done()
        sync.open.set()
        await append


# -- readers --------------------------------------------------------------------------------------------------------


async def test_a_reader_at_the_end_reads_no_file(log: CoordinatorLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_log, "read_chunk", lambda *_: pytest.fail("a file was read"))
    async with reading(log, SHARD, 0) as reader:
        for batch in numbered_batches(20):
            await log.append(SHARD, [batch])
            assert same_content(await next_batches(reader), [batch])


async def test_catching_up_reads_files_on_other_threads(
    make_log: MakeLocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()
    batches = numbered_batches(20)

    def noting_the_thread(*arguments: Any) -> object:
        threads.add(threading.get_ident())
        return shard_log.read_chunk(*arguments)

    async with started(make_log(segment_bytes=4096)) as log:
        await log.append(SHARD, batches)
    monkeypatch.setattr(local_log, "read_chunk", noting_the_thread)
    async with started(make_log(segment_bytes=4096)) as log:
        assert same_content(await read_all(log, SHARD), batches)
    assert threads
    assert threading.get_ident() not in threads


async def test_the_batches_kept_in_memory_are_bounded(make_log: MakeLocalLog) -> None:
    batches = numbered_batches(100)
    async with started(make_log(tail_bytes=10_000)) as log:
        for batch in batches:
            await log.append(SHARD, [batch])
        assert log._running is not None
        kept = log._running.shards[SHARD].tail_from(0)
        assert 10_000 - len(batches[0]) <= sum(len(batch.data) for batch in kept) <= 20_000
        assert same_content(await read_all(log, SHARD), batches)


async def test_a_reader_may_begin_anywhere_in_segments_of_an_earlier_run(make_log: MakeLocalLog) -> None:
    batches = numbered_batches(300)
    async with started(make_log(segment_bytes=200_000)) as log:
        for first in range(0, 300, 30):
            await log.append(SHARD, batches[first : first + 30])
    async with started(make_log(segment_bytes=200_000)) as log:
        for offset in (299, 0, 170, 1, 210):
            assert same_content(await read_batches(log, SHARD, offset, 300 - offset), batches[offset:])


# -- torn and damaged files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "torn", [bytes(100), at_offset(B, 2)[:-1], at_offset(B, 2)[:30]], ids=["zeros", "batch", "header"]
)
async def test_a_torn_last_write_is_cut_and_the_log_goes_on(make_log: MakeLocalLog, folder: Path, torn: bytes) -> None:
    async with started(make_log()) as log:
        await log.append(SHARD, [A])
    with (folder / file_name(0)).open("ab") as file:
        file.write(torn)
    async with started(make_log()) as log:
        assert (await log.bounds(SHARD)).end == 2
        assert (folder / file_name(0)).stat().st_size == len(A)
        assert await log.append(SHARD, [C]) == [2]
    async with started(make_log()) as log:
        assert same_content(await read_all(log, SHARD), [A, C])


async def test_a_crash_between_creating_a_segment_and_writing_to_it_is_no_harm(
    make_log: MakeLocalLog, folder: Path
) -> None:
    async with started(make_log()) as log:
        await log.append(SHARD, [A])
    (folder / file_name(2)).touch()
    async with started(make_log()) as log:
        assert await log.append(SHARD, [B]) == [2]
        assert same_content(await read_all(log, SHARD), [A, B])


def flip(path: Path, position: int) -> bytes:
    damaged = bytearray(path.read_bytes())
    damaged[position] ^= 1
    path.write_bytes(damaged)
    return bytes(damaged)


@pytest.mark.parametrize("batch", [0, 1, 2], ids=["first", "middle", "last"])
@pytest.mark.parametrize("is_known_durable", [True, False], ids=["after a stop", "after a crash"])
async def test_a_flipped_bit_stops_the_start_which_names_the_repair_and_changes_nothing(
    make_log: MakeLocalLog, data_dir: Path, folder: Path, batch: int, is_known_durable: bool
) -> None:
    async with started(make_log()) as log:
        await log.append(SHARD, [A])
        await log.append(SHARD, [B, C])
        crashed = data_dir.with_name("crashed")
        shutil.copytree(data_dir, crashed)
    if not is_known_durable:
        shutil.rmtree(data_dir)
        crashed.rename(data_dir)
    path = folder / file_name(0)
    damaged = flip(path, [len(A), len(A) + len(B), len(A) + len(B) + len(C)][batch] - 1)
    with pytest.raises(CoordinatorLogError, match=f"{path} is damaged: .*`diskless log repair {SHARD}`"):
        await make_log().start()
    assert path.read_bytes() == damaged


async def test_batches_that_were_durable_and_are_missing_are_damage(make_log: MakeLocalLog, folder: Path) -> None:
    async with started(make_log()) as log:
        await log.append(SHARD, [A])
        await log.append(SHARD, [B])
    os.truncate(folder / file_name(0), len(A))
    with pytest.raises(CoordinatorLogError, match="everything below offset 3 was durable"):
        await make_log().start()


async def test_a_log_that_is_idle_notes_that_its_last_write_is_durable(
    make_log: MakeLocalLog, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_IDLE_S", 0.01)
    async with started(make_log()) as log:
        await log.append(SHARD, [A])
        await log.append(OTHER_SHARD, [B])
        expected = {SHARD: 2, OTHER_SHARD: 1}
        await asyncio.to_thread(wait_until, lambda: read_recovery_points(data_dir) == expected, "the checkpoint")


async def test_a_checkpoint_that_cannot_be_read_is_told_and_the_log_opened(
    make_log: MakeLocalLog, data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with started(make_log()) as log:
        await log.append(SHARD, [A])
    (data_dir / RECOVERY_POINTS).write_text("0\nmany\n")
    async with started(make_log()) as log:
        assert same_content(await read_all(log, SHARD), [A])
    assert f"{data_dir / RECOVERY_POINTS} is ignored" in caplog.text


async def test_of_an_interrupted_write_a_missing_sector_is_no_damage_though_later_ones_are_there(
    make_log: MakeLocalLog, data_dir: Path, folder: Path
) -> None:
    crashed = data_dir.with_name("crashed")
    large = [batch_of(bytes([byte]) * 2000) for byte in b"abc"]
    async with started(make_log()) as log:
        await log.append(SHARD, [A])
        await log.append(SHARD, large)
        shutil.copytree(data_dir, crashed)
    shutil.rmtree(data_dir)
    crashed.rename(data_dir)
    path = folder / file_name(0)
    with path.open("r+b") as file:
        file.seek(512)
        file.write(bytes(512))
    async with started(make_log()) as log:
        assert same_content(await read_all(log, SHARD), [A])
        assert await log.append(SHARD, [B]) == [2]
    async with started(make_log()) as log:
        assert same_content(await read_all(log, SHARD), [A, B])


@pytest.mark.parametrize("byte", [7, 100], ids=["base offset", "content"])
async def test_damage_in_an_earlier_segment_fails_those_who_read_there(
    make_log: MakeLocalLog, folder: Path, byte: int
) -> None:
    batches = numbered_batches(9)
    async with started(make_log(segment_bytes=4096)) as log:
        for batch in batches:
            await log.append(SHARD, [batch])
    path = folder / file_name(3)
    damaged = bytearray(path.read_bytes())
    damaged[len(batches[0]) + byte] ^= 1
    path.write_bytes(damaged)
    async with started(make_log(segment_bytes=4096)) as log:
        with pytest.raises(CoordinatorLogError, match=f"{path} is damaged: .* offset 4"):
            await read_batches(log, SHARD, 0, 9)
        assert same_content(await read_batches(log, SHARD, 6, 3), batches[6:])
    assert path.read_bytes() == damaged


async def test_a_missing_segment_is_never_skipped(make_log: MakeLocalLog, folder: Path) -> None:
    async with started(make_log(segment_bytes=4096)) as log:
        for batch in numbered_batches(9):
            await log.append(SHARD, [batch])
    (folder / file_name(3)).unlink()
    async with started(make_log(segment_bytes=4096)) as log:
        with pytest.raises(CoordinatorLogError, match="offset 3"):
            await read_batches(log, SHARD, 0, 9)


# -- a failing disk -------------------------------------------------------------------------------------------------


async def test_a_full_disk_fails_the_append_and_a_later_one_works(
    log: CoordinatorLog, make_log: MakeLocalLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.append(SHARD, [A])
    pwrite, room = os.pwrite, [len(B) + 20]

    def until_the_disk_is_full(fd: int, data: memoryview, position: int) -> int:
        written = pwrite(fd, data[: room[0]], position)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= written
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", until_the_disk_is_full)
        with pytest.raises(CoordinatorLogError, match="No space left"):
            await log.append(SHARD, [B, C])
    assert (folder / file_name(0)).stat().st_size == len(A)
    assert await log.append(SHARD, [C]) == [2]
    await log.stop()
    async with started(make_log()) as reopened:
        assert same_content(await read_all(reopened, SHARD), [A, C])


async def test_a_failed_write_to_one_shard_does_not_fail_another_of_its_group(
    make_log: MakeLocalLog, sync: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite

    def failing_for_large(fd: int, data: memoryview, position: int) -> int:
        if len(data) > 5000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(fd, data, position)

    async with started(make_log()) as log:
        sync.open.clear()
        first = asyncio.create_task(log.append(SHARD, [A]))
        await asyncio.to_thread(sync.entered.wait, 30)
        monkeypatch.setattr(os, "pwrite", failing_for_large)
        large = asyncio.create_task(log.append(SHARD, [batch_of(bytes(10_000))]))
        small = asyncio.create_task(log.append(OTHER_SHARD, [B]))
        await asyncio.sleep(0)
        sync.open.set()
        await first
        with pytest.raises(CoordinatorLogError, match="__diskless_metadata-0"):
            await large
        assert await small == [0]


async def test_a_disk_too_full_for_a_new_segment_fails_the_append_only(
    log: CoordinatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = numbered_batches(4)
    for batch in batches[:3]:
        await log.append(SHARD, [batch])

    def disk_full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", disk_full)
        with pytest.raises(CoordinatorLogError, match="No space left"):
            await log.append(SHARD, batches[3:])
    await log.append(SHARD, batches[3:])
    assert same_content(await read_all(log, SHARD), batches)


async def test_after_a_failed_sync_nothing_is_acknowledged_until_the_log_is_opened_again(
    make_log: MakeLocalLog, sync: Gate
) -> None:
    async with started(make_log()) as log:
        await log.append(SHARD, [A])
        sync.error = OSError(errno.EIO, os.strerror(errno.EIO))
        with pytest.raises(CoordinatorLogError, match="restart the broker"):
            await log.append(SHARD, [B])
        sync.error = None
        for shard in (SHARD, OTHER_SHARD):
            with pytest.raises(CoordinatorLogError, match="restart the broker"):
                await log.append(shard, [B])
        assert same_content(await read_all(log, SHARD), [A])
    async with started(make_log()) as log:
        assert same_content(await read_all(log, SHARD), [A])
        assert await log.append(SHARD, [C]) == [2]


async def test_after_a_failed_sync_the_end_of_the_file_is_written_again_before_it_is_trusted(
    make_log: MakeLocalLog, sync: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may hold the pages for clean, so that another sync would report success without writing them."""
    written: list[bytes] = []
    pwrite = os.pwrite

    def noting_what_is_written(fd: int, data: memoryview, position: int) -> int:
        written.append(bytes(data))
        return pwrite(fd, data, position)

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with started(make_log()) as log:
        await log.append(SHARD, [A])
        files = len(psutil.Process().open_files())
        sync.error = OSError(errno.EIO, os.strerror(errno.EIO))
        with monkeypatch.context() as patch:
            patch.setattr(os, "ftruncate", failing)
            with pytest.raises(CoordinatorLogError, match="restart the broker"):
                await log.append(SHARD, [B])
        assert len(psutil.Process().open_files()) == files - 1
    sync.error = None
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", noting_what_is_written)
        async with started(make_log()) as log:
            assert same_content(await read_all(log, SHARD), [A, B])
    assert any(A[16:] in data and data.endswith(B[16:]) for data in written)


async def test_a_failed_sync_refuses_the_whole_group(make_log: MakeLocalLog, sync: Gate) -> None:
    async with started(make_log()) as log:
        sync.open.clear()
        first = asyncio.create_task(log.append(SHARD, [A]))
        await asyncio.to_thread(sync.entered.wait, 30)
        queued = [asyncio.create_task(log.append(shard, [B])) for shard in (SHARD, OTHER_SHARD)]
        await asyncio.sleep(0)
        sync.error = OSError(errno.EIO, os.strerror(errno.EIO))
        sync.open.set()
        outcomes = await asyncio.gather(first, *queued, return_exceptions=True)
    assert all(isinstance(outcome, CoordinatorLogError) for outcome in outcomes)


async def test_what_was_found_at_start_is_synced_before_it_is_shown(
    make_log: MakeLocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(make_log()) as log:
        await log.append(SHARD, [A])

    fsync = os.fsync

    def failing_for_files(fd: int) -> None:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", failing_for_files)
    with pytest.raises(CoordinatorLogError, match="Input/output error"):
        await make_log().start()


# -- prune ----------------------------------------------------------------------------------------------------------


async def test_pruning_deletes_whole_segments_and_never_the_last(log: CoordinatorLog, folder: Path) -> None:
    for batch in numbered_batches(10):
        await log.append(SHARD, [batch])
    await log.prune(SHARD, 8)
    assert segments(folder) == [file_name(6), file_name(9)]
    assert (await log.bounds(SHARD)).start == 6
    await log.prune(SHARD, 10)
    assert segments(folder) == [file_name(9)]


async def test_a_segment_that_cannot_be_deleted_stays_in_the_log(
    log: CoordinatorLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = numbered_batches(10)
    for batch in batches:
        await log.append(SHARD, [batch])
    unlink = Path.unlink

    def not_the_second(path: Path) -> None:
        if path.name == file_name(3):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        unlink(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", not_the_second)
        with pytest.raises(CoordinatorLogError, match="Permission denied"):
            await log.prune(SHARD, 9)
    assert (await log.bounds(SHARD)).start == 3
    assert same_content(await read_all(log, SHARD), batches[3:])
    await log.prune(SHARD, 9)
    assert (await log.bounds(SHARD)).start == 9


async def test_a_reader_whose_file_is_pruned_under_it_is_told(make_log: MakeLocalLog) -> None:
    async with started(make_log(segment_bytes=4096)) as log:
        for batch in numbered_batches(10):
            await log.append(SHARD, [batch])
    async with started(make_log(segment_bytes=4096)) as log, reading(log, SHARD, 0) as reader:
        await next_batches(reader)
        waiting = asyncio.create_task(next_batches(reader))
        await log.prune(SHARD, 9)
        await asyncio.wait([waiting])
        if waiting.exception() is None:
            with pytest.raises(LogOffsetPrunedError):
                await next_batches(reader)
        else:
            assert isinstance(waiting.exception(), LogOffsetPrunedError)


# -- who may use the folder -----------------------------------------------------------------------------------------


async def test_a_second_process_is_told_which_folder_is_in_use_by_whom(
    log: CoordinatorLog, data_dir: Path, make_log: MakeLocalLog
) -> None:
    script = """
import asyncio, pathlib, sys
from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_local_log.config import LocalLogSettings
from diskless_local_log.local_log import LocalCoordinatorLog
path = pathlib.Path(sys.argv[1])
context = PluginContext(node_id=2, data_dir=path, log_dir=path, clock=SystemClock())
asyncio.run(LocalCoordinatorLog(context, LocalLogSettings()).start())
"""
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script, str(data_dir)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert f"{data_dir} is in use by the process {os.getpid()}" in run.stderr
    with pytest.raises(CoordinatorLogError, match="is in use"):
        await make_log().start()
    await log.stop()
    async with started(make_log()) as after:
        await after.append(SHARD, [A])


async def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(make_log: MakeLocalLog, data_dir: Path) -> None:
    data_dir.parent.parent.mkdir(exist_ok=True)
    data_dir.parent.write_text("a file where a folder should be")
    with pytest.raises(CoordinatorLogError, match=str(data_dir)):
        await make_log().start()


async def test_this_node_is_the_hinted_leader_of_every_shard_and_stays_so(log: CoordinatorLog) -> None:
    hints = log.leadership(SHARD)
    assert (await anext(hints)).node_id == 7
    changed = asyncio.create_task(anext(hints, None))
    await log.append(SHARD, [A])
    assert not changed.done()
    await log.stop()
    assert await changed is None


def test_the_plugin_describes_itself() -> None:
    (descriptor,) = diskless_coordinator_logs()
    assert (descriptor.noun, descriptor.name) == ("coordinator_log", "local")
    settings = descriptor.settings.model_validate({"segment.bytes": "8192", "fsync": "false"})
    assert settings == LocalLogSettings.model_validate({"segment_bytes": 8192, "fsync": False})
