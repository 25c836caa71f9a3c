"""What a power cut leaves of a folder, as the contract suites make one; and what they say of what does not happen."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from diskless_core.testing.patience import within
from diskless_core.testing.power_cut import SyncedFiles


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def test_only_what_was_synced_is_left(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    with SyncedFiles(tmp_path) as files:
        with (tmp_path / "new").open("wb", buffering=0) as file:
            file.write(b"synced")
            os.fsync(file)
            _sync_folder(tmp_path)
            file.write(b", and not")
        (tmp_path / "old").write_bytes(b"changed")
        files.leave(files.durable())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"old": b"old", "new": b"synced"}


def test_a_file_whose_folder_was_not_synced_is_gone(tmp_path: Path) -> None:
    with SyncedFiles(tmp_path) as files:
        with (tmp_path / "new").open("wb", buffering=0) as file:
            file.write(b"synced")
            os.fdatasync(file)
        assert files.durable() == {}


def test_a_folder_that_was_never_synced_itself_is_empty_and_no_file(tmp_path: Path) -> None:
    with SyncedFiles(tmp_path) as files:
        (tmp_path / "folder").mkdir()
        with (tmp_path / "folder" / "new").open("wb", buffering=0) as file:
            file.write(b"synced")
            os.fsync(file)
        _sync_folder(tmp_path)
        assert files.durable() == {}


def test_half_of_what_a_sync_is_about_is_torn(tmp_path: Path) -> None:
    with SyncedFiles(tmp_path) as files:
        with (tmp_path / "log").open("wb", buffering=0) as file:
            file.write(b"1234")
            os.fsync(file)
            _sync_folder(tmp_path)
            files.tear_at_next_sync()
            file.write(b"5678")
            os.fsync(file)
        assert files.torn() == {Path("log"): b"123456"}
        assert files.durable() == {Path("log"): b"12345678"}


def test_a_sector_in_the_middle_of_what_a_sync_is_about_may_be_missing(tmp_path: Path) -> None:
    with SyncedFiles(tmp_path) as files:
        with (tmp_path / "log").open("wb", buffering=0) as file:
            file.write(b"a" * 100)
            os.fsync(file)
            _sync_folder(tmp_path)
            files.tear_at_next_sync()
            file.write(b"b" * 1900)
            os.fsync(file)
        left = b"a" * 100 + b"b" * 924 + bytes(512) + b"b" * 464
        assert files.torn_with_hole() == {Path("log"): left}


async def test_what_does_not_happen_in_time_is_told_with_its_promise() -> None:
    with pytest.raises(AssertionError, match=r"an append ends: that has not happened within 0\.01 s"):
        async with within("an append ends", 0.01):
            await asyncio.Event().wait()


async def test_a_timeout_of_what_is_waited_for_is_not_taken_for_impatience() -> None:
    with pytest.raises(TimeoutError, match="its own"):
        async with within("an append ends"):
            raise TimeoutError("its own")
