"""`diskless log`: what it says of damage in the local coordinator log, and what it changes when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from diskless_core.cli.main import main
from diskless_core.clock import SystemClock
from diskless_core.log.segment import file_name
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.testing.coordinator_log_tools import (
    OTHER_SHARD,
    SHARD,
    numbered_batches,
    read_all,
    same_content,
    started,
)
from diskless_local_log.config import LocalLogSettings
from diskless_local_log.local_log import LocalCoordinatorLog

BATCHES = numbered_batches(9)
"""Three segments of three."""
BATCH_BYTES = len(BATCHES[0])


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "coordinator_log" / "local"


@pytest.fixture
def folder(data_dir: Path) -> Path:
    """Of a shard in a log that was stopped."""

    async def fill() -> None:
        async with started(log_in(data_dir)) as log:
            for batch in BATCHES:
                await log.append(SHARD, [batch])
            await log.append(OTHER_SHARD, BATCHES[:1])

    asyncio.run(fill())
    return data_dir / str(SHARD)


def log_in(data_dir: Path) -> LocalCoordinatorLog:
    context = PluginContext(node_id=7, data_dir=data_dir, log_dir=data_dir, clock=SystemClock())
    return LocalCoordinatorLog(context, LocalLogSettings(segment_bytes=4096))


def call(data_dir: Path, *arguments: str, code: int = 0) -> str:
    log_dirs = data_dir.parent.parent
    result = CliRunner().invoke(main, ["log", *arguments, "-o", f"log.dirs={log_dirs}"])
    assert result.exit_code == code, result.output + repr(result.exception)
    return " ".join(result.output.split())


def damage(path: Path, position: int, with_bytes: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(with_bytes)] = with_bytes
    path.write_bytes(content)


def flip(path: Path, position: int) -> None:
    damage(path, position, bytes([path.read_bytes()[position] ^ 4]))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def entries(data_dir: Path) -> Sequence[bytes]:
    async def read() -> Sequence[bytes]:
        async with started(log_in(data_dir)) as log:
            found = await read_all(log, SHARD)
            assert same_content(found, BATCHES[: len(found)])
            assert same_content(await read_all(log, OTHER_SHARD), BATCHES[:1])
            return [entry.data for entry in found]

    return asyncio.run(read())


def test_a_whole_log_is_said_to_be_whole(data_dir: Path, folder: Path) -> None:
    assert f"{folder.name} 0 9 ok" in call(data_dir, "verify")
    assert "needs no repair: ok" in call(data_dir, "repair", "diskless-0", "--cut")


@pytest.mark.parametrize("segment", [0, 6], ids=["in an earlier segment", "in the last segment"])
def test_a_flipped_bit_is_found_and_corrected_without_a_loss(data_dir: Path, folder: Path, segment: int) -> None:
    path = folder / file_name(segment)
    before = path.read_bytes()
    flip(path, BATCH_BYTES + 200)

    assert f"{folder.name} 0 {segment + 1} damaged" in call(data_dir, "verify", code=1)
    told = call(data_dir, "repair", "diskless-0", code=1)
    assert f"in byte {BATCH_BYTES + 200}, the one of value 4" in told
    assert f"gives up the entries of {folder.name} from offset {segment + 1} to 8" in told
    assert path.read_bytes() != before
    assert "has lost nothing" in call(data_dir, "repair", "diskless-0", "--flip-back")
    assert path.read_bytes() == before
    assert len(entries(data_dir)) == 9


@pytest.mark.parametrize("segment", [0, 6], ids=["in an earlier segment", "in the last segment"])
def test_a_damaged_log_is_cut_only_when_told_to_and_what_is_cut_is_kept(
    data_dir: Path, folder: Path, segment: int
) -> None:
    whole = contents(folder)
    path = folder / file_name(segment)
    damage(path, BATCH_BYTES + 200, b"not what was there")
    before = contents(data_dir)
    damaged = path.read_bytes()

    call(data_dir, "repair", "diskless-0", code=1)
    assert "More than a single bit" in call(data_dir, "repair", "diskless-0", "--flip-back", code=1)
    changed = {path for path, content in contents(data_dir).items() if before.get(path) != content}
    assert {path.name for path in changed} <= {".lock"}
    assert f"ends at offset {segment + 1} now" in call(data_dir, "repair", "diskless-0", "--cut")
    assert len(entries(data_dir)) == segment + 1
    removed = data_dir / "removed" / f"{folder.name}-from-{segment + 1}"
    kept = {kept.name: kept.read_bytes() for kept in removed.iterdir()}
    assert kept.pop(f"{path.name}.from-byte-{BATCH_BYTES}") == damaged[BATCH_BYTES:]
    assert kept == {path.name: content for path, content in whole.items() if path.name > file_name(segment)}


def test_a_log_that_lacks_its_last_entries_goes_on_without_them_only_when_told_to(data_dir: Path, folder: Path) -> None:
    (folder / file_name(6)).unlink()
    with pytest.raises(CoordinatorLogError, match="everything below offset 9 was durable"):
        entries(data_dir)
    assert f"gives up the entries of {folder.name} from offset 6 to 8" in call(data_dir, "repair", "diskless-0", code=1)
    call(data_dir, "repair", "diskless-0", "--cut")
    assert len(entries(data_dir)) == 6


def test_a_log_in_use_is_looked_at_and_not_changed(data_dir: Path, folder: Path) -> None:
    flip(data_dir / str(SHARD) / file_name(0), 100)

    async def ask() -> None:
        async with started(log_in(data_dir)):
            for option in ("--cut", "--flip-back"):
                told = await asyncio.to_thread(call, data_dir, "repair", "diskless-0", option, code=1)
                assert "is in use by the process" in told
            assert "damaged" in await asyncio.to_thread(call, data_dir, "verify", code=1)

    asyncio.run(ask())


def test_a_shard_or_a_log_that_is_not_there_is_told(data_dir: Path, folder: Path, tmp_path: Path) -> None:
    assert f"there is no shard 'groups-7'; there are {SHARD}, {OTHER_SHARD}" in call(
        data_dir, "repair", "groups-7", code=1
    )
    assert "there is no log in" in call(tmp_path / "elsewhere" / "a" / "b", "verify", code=1)
    other = CliRunner().invoke(main, ["log", "verify", "-o", "coordinator_log=kafka", "-o", f"log.dirs={tmp_path}"])
    assert other.exit_code == 1
