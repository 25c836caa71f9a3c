"""The local coordinator log opened by a tool, beside a broker or after its end: it changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from diskless_core.clock import SystemClock
from diskless_core.log.segment import file_name
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import (
    CoordinatorLog,
    CoordinatorLogError,
    LogBounds,
    LogNotFoundError,
    LogOffsetPrunedError,
)
from diskless_core.protocol.record_batch import patch_base_offset
from diskless_core.testing.coordinator_log_tools import (
    OTHER_SHARD,
    SHARD,
    batch_of,
    numbered_batches,
    read_all,
    read_batches,
    same_content,
    started,
)
from diskless_local_log import recovery
from diskless_local_log.config import LocalLogSettings
from diskless_local_log.local_log import LocalCoordinatorLog

A, B, C = batch_of(b"a", b"aa"), batch_of(b"b"), batch_of(b"c")

MakeLog = Callable[[], LocalCoordinatorLog]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "local"


@pytest.fixture
def folder(data_dir: Path) -> Path:
    return data_dir / str(SHARD)


@pytest.fixture
def make_log(data_dir: Path) -> MakeLog:
    context = PluginContext(node_id=7, data_dir=data_dir, log_dir=data_dir, clock=SystemClock())
    return lambda: LocalCoordinatorLog(context, LocalLogSettings(segment_bytes=4096))


@asynccontextmanager
async def opened(log: CoordinatorLog) -> AsyncIterator[CoordinatorLog]:
    await log.start_reading()
    try:
        yield log
    finally:
        await log.stop()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def folders(folder: Path) -> Iterator[Path]:
    return folder.iterdir()


async def test_a_log_is_read_while_another_process_would_hold_it(make_log: MakeLog, data_dir: Path) -> None:
    batches = numbered_batches(9)
    async with started(make_log()) as log:
        for batch in batches:
            await log.append(SHARD, [batch])
        await log.append(OTHER_SHARD, [A])
        before = contents(data_dir)
        async with opened(make_log()) as reader:
            await log.append(SHARD, [C])
            assert await reader.bounds(SHARD) == LogBounds(0, 10)
            assert same_content(await read_all(reader, SHARD), [*batches, C])
            assert same_content(await read_batches(reader, SHARD, 5, 5), [*batches[5:], C])
            assert same_content(await read_all(reader, OTHER_SHARD), [A])
        assert await log.append(SHARD, [B]) == [10]
        assert before.keys() == contents(data_dir).keys()


async def test_it_is_read_after_its_end_and_can_be_started_afterwards(make_log: MakeLog, data_dir: Path) -> None:
    async with started(make_log()) as log:
        await log.append(SHARD, [A, B])
    before = contents(data_dir)
    async with opened(make_log()) as reader:
        assert same_content(await read_all(reader, SHARD), [A, B])
        with pytest.raises(CoordinatorLogError, match="for reading only"):
            await reader.append(SHARD, [C])
    assert contents(data_dir) == before
    async with started(make_log()) as log:
        assert await log.append(SHARD, [C]) == [3]


async def test_a_torn_end_is_left_out_and_left_alone(make_log: MakeLog, folder: Path) -> None:
    async with started(make_log()) as log:
        await log.append(SHARD, [A])
    last_segment = folder / file_name(0)
    interrupted = bytearray(B[:-1])
    patch_base_offset(interrupted, 0, 2)
    torn = last_segment.read_bytes() + bytes(interrupted)
    last_segment.write_bytes(torn)
    async with opened(make_log()) as reader:
        assert await reader.bounds(SHARD) == LogBounds(0, 2)
        assert same_content(await read_all(reader, SHARD), [A])
    assert last_segment.read_bytes() == torn


async def test_a_damaged_log_is_read_up_to_the_damage_which_is_told(make_log: MakeLog, folder: Path) -> None:
    async with started(make_log()) as log:
        await log.append(SHARD, [A, B, C])
        await log.append(OTHER_SHARD, [A])
    last_segment = folder / file_name(0)
    damaged = bytearray(last_segment.read_bytes())
    damaged[len(A) + len(B) - 1] ^= 1
    last_segment.write_bytes(damaged)
    async with opened(make_log()) as reader:
        assert same_content(await read_batches(reader, SHARD, 0, 1), [A])
        with pytest.raises(CoordinatorLogError, match=f"{last_segment} is damaged: .* offset 2 at byte {len(A)}"):
            await read_all(reader, SHARD)
        assert same_content(await read_all(reader, OTHER_SHARD), [A])
    assert last_segment.read_bytes() == damaged


async def test_what_the_broker_prunes_meanwhile_is_told(make_log: MakeLog) -> None:
    async with started(make_log()) as log:
        for batch in numbered_batches(9):
            await log.append(SHARD, [batch])
        async with opened(make_log()) as reader:
            await log.prune(SHARD, 9)
            with pytest.raises(LogOffsetPrunedError, match="was pruned meanwhile"):
                await read_batches(reader, SHARD, 0, 9)
            assert (await reader.bounds(SHARD)).start > 0


async def test_a_segment_that_the_broker_prunes_during_a_look_makes_it_look_again(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(make_log()) as log:
        for batch in numbered_batches(9):
            await log.append(SHARD, [batch])
        async with opened(make_log()) as reader:
            closed_segment, found = recovery._closed_segment, list[int]()

            def prune_first(folder: Path, base_offset: int) -> recovery.Segment:
                if not found:
                    (folder / file_name(base_offset)).unlink()
                found.append(base_offset)
                return closed_segment(folder, base_offset)

            monkeypatch.setattr(recovery, "_closed_segment", prune_first)
            bounds = await reader.bounds(SHARD)
            assert bounds.start > found[0] == 0
            assert bounds.end == 9


async def test_a_log_that_never_was_is_not_made(make_log: MakeLog, data_dir: Path) -> None:
    with pytest.raises(LogNotFoundError, match=f"there is no coordinator log in {data_dir}"):
        await make_log().start_reading()
    assert list(folders(data_dir.parent)) == []
