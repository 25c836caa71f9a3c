"""What is asked of a device at once, beside what somebody waits for."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from diskless_fsspec import direct_io
from diskless_fsspec.direct_io import BUFFERED_BELOW_BYTES, STEP_BYTES, STEPS_AT_ONCE, DurableFiles

THREADS = 6
SIZE = 3 * STEP_BYTES + 1000
DATA = bytes(range(256)) * (SIZE // 256) + b"end" * 256


class Watched:
    """A call of the system, by which positions are read or written; the first ones wait until all allowed are there."""

    def __init__(self, call):
        self.most = 0
        self._call = call
        self._under_way = 0
        self._counting = threading.Lock()
        self._everybody = threading.Barrier(STEPS_AT_ONCE)

    def __call__(self, descriptor, data, position):
        size = len(data) if isinstance(data, memoryview) else sum(map(len, data))
        assert size <= STEP_BYTES
        with self._counting:
            self._under_way += 1
            self.most = max(self.most, self._under_way)
        try:
            if position == 0:
                self._everybody.wait(timeout=30)
            return self._call(descriptor, data, position)
        finally:
            with self._counting:
                self._under_way -= 1


@pytest.fixture(autouse=True)
def _direct_io() -> None:
    if not direct_io._DIRECT_FLAG:
        pytest.skip("there is no direct I/O here")


def test_threads_that_read_much_ask_for_little_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [DurableFiles() for _ in range(2)]
    files[0].write(tmp_path / "object", DATA)
    monkeypatch.setattr(os, "preadv", preadv := Watched(os.preadv))
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda number: bytes(files[number % 2].read(tmp_path / "object", 1, SIZE)), range(THREADS))
        assert all(one == DATA[1:SIZE] for one in found)
    assert preadv.most in (0, STEPS_AT_ONCE), "0 where the file system refused direct I/O"


def test_threads_that_write_segments_ask_for_little_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [DurableFiles() for _ in range(2)]
    monkeypatch.setattr(os, "pwrite", pwrite := Watched(os.pwrite))

    def copy(number: int) -> None:
        growing = files[number % 2].create(tmp_path / str(number))
        growing.write(0, DATA)
        growing.finish(SIZE)
        growing.close()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(copy, range(THREADS)))
    assert pwrite.most == STEPS_AT_ONCE
    assert all((tmp_path / str(number)).read_bytes() == DATA[:SIZE] for number in range(THREADS))


@pytest.fixture
def all_turns_taken(tmp_path: Path) -> Iterator[None]:
    with ExitStack() as taken:
        for _ in range(STEPS_AT_ONCE):
            taken.enter_context(direct_io.turns_at(tmp_path.stat().st_dev))
        yield


@pytest.mark.usefixtures("all_turns_taken")
@pytest.mark.parametrize("size", [0, 1, 4096, BUFFERED_BELOW_BYTES - 1, BUFFERED_BELOW_BYTES, 1 << 20, SIZE])
def test_what_somebody_waits_for_waits_for_no_turn(tmp_path: Path, size: int) -> None:
    DurableFiles().write(tmp_path / "object", DATA[:size])
    assert (tmp_path / "object").read_bytes() == DATA[:size]


@pytest.mark.usefixtures("all_turns_taken")
def test_a_device_that_hangs_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = DurableFiles()
    files.write(tmp_path / "object", DATA)
    device = tmp_path.stat().st_dev
    monkeypatch.setattr(direct_io, "turns_at", lambda found, turns_at=direct_io.turns_at: turns_at(found + device + 1))
    assert bytes(files.read(tmp_path / "object", 0, SIZE)) == DATA[:SIZE]


@pytest.mark.parametrize("size", [300, BUFFERED_BELOW_BYTES, 2 * BUFFERED_BELOW_BYTES])
def test_what_was_read_and_is_kept_takes_no_mapping_of_its_own(tmp_path: Path, size: int) -> None:
    """A process may have 65,530: a cache of small objects would use them up, and no read would ever succeed again."""
    files, data = DurableFiles(), (DATA * (size // SIZE + 1))[:size]
    files.write(tmp_path / "object", data)
    files.read(tmp_path / "object", 0, size)
    before = len(Path("/proc/self/maps").read_text().splitlines())

    kept = [files.read(tmp_path / "object", position % 2, size * (1 + position % 3)) for position in range(200)]

    assert {bytes(one) for one in kept} == {data, data[1:]}
    assert len(Path("/proc/self/maps").read_text().splitlines()) < before + 50
