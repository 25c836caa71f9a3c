"""Standard streams that are full, broken or slow: who logs never waits, and what is lost is counted."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping

import pytest

from diskless_core import log_output
from diskless_core.log_output import STUCK_S, LogOutput, Loss
from tests.support.waiting import wait_until

PATIENCE_S = 60.0


class SteppedClock:
    """Its time goes on when a test says so."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def now_ms(self) -> int:
        return int(self.time_s * 1000)

    def monotonic(self) -> float:
        return self.time_s

    def new_uuid(self) -> uuid.UUID:
        raise NotImplementedError

    def random(self) -> random.Random:
        raise NotImplementedError


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Its end to read, which a test may close, and its end to write."""
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        with contextlib.suppress(OSError):
            os.close(fd)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, object]:
    """The last line that the program logs itself."""
    line: dict[str, object] = {}

    class Log:
        def warning(self, event: str, **context: object) -> None:
            line.update(context, event=event)

    monkeypatch.setattr(log_output, "_log", Log())
    return line


def read_lines(reader: int, count: int) -> list[str]:
    data = b""
    while data.count(b"\n") < count:
        data += os.read(reader, 65536)
    return data.decode().splitlines()


def fill(writer: int) -> int:
    """Leave no room in a pipe, and return how many lines fill it."""
    os.set_blocking(writer, False)
    lines = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            lines += os.write(writer, b"\n")
    os.set_blocking(writer, True)
    return lines


def test_lines_come_out_in_the_order_in_which_they_were_written(pipe: tuple[int, int], clock: SteppedClock) -> None:
    reader, writer = pipe
    output = LogOutput(writer, "a pipe", clock)

    def write(thread: int) -> None:
        for number in range(200):
            output.write(f"{thread} {number}\n")

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    lines = read_lines(reader, 800)
    for thread in threads:
        thread.join()
    for number in range(4):
        assert [line for line in lines if line.startswith(f"{number} ")] == [f"{number} {line}" for line in range(200)]
    assert output.lost == {Loss.FULL: 0, Loss.FAILED: 0}
    assert output.problem is None


def test_nothing_waits_for_a_stream_that_nothing_reads_and_what_was_lost_is_told_when_it_is_read(
    pipe: tuple[int, int], clock: SteppedClock, told: Mapping[str, object]
) -> None:
    reader, writer = pipe
    before = fill(writer)
    output = LogOutput(writer, "a pipe", clock, limit=100)
    written = 0
    while not output.lost[Loss.FULL]:
        output.write(f"{written}\n")
        written += 1
    output.write("lost too\nand this\n")

    assert output.lost == {Loss.FULL: 3, Loss.FAILED: 0}
    assert not output.drain(0.01)
    clock.time_s += STUCK_S + 1
    assert output.problem == "a pipe has taken no line for 6 s, as if nothing reads it; 3 lines are lost so far"
    assert read_lines(reader, before + written - 1)[before:] == [str(number) for number in range(written - 1)]
    wait_until(lambda: output.problem is None, "the stream is well again")
    lost = {"event": "lines of this log were lost", "stream": "a pipe", "lines": 3}
    wait_until(lambda: told == lost, "the loss is told")


def test_lines_that_cannot_be_written_are_counted_and_the_next_ones_are_tried(
    pipe: tuple[int, int], clock: SteppedClock
) -> None:
    reader, writer = pipe
    os.close(reader)
    output = LogOutput(writer, "a pipe", clock)
    for lines in (1, 2):
        output.write("nothing reads this\n")
        assert output.drain(PATIENCE_S)
        assert output.lost == {Loss.FULL: 0, Loss.FAILED: lines}
    assert output.problem == "a pipe can't be written: Broken pipe; 2 lines are lost so far"


def test_a_full_disk_loses_lines_until_there_is_room(
    clock: SteppedClock, told: Mapping[str, object], pipe: tuple[int, int]
) -> None:
    reader, writer = pipe
    full = os.open("/dev/full", os.O_WRONLY)
    log = os.dup(full)
    output = LogOutput(log, "a file", clock)
    output.write("no room\n")
    assert output.drain(PATIENCE_S)
    assert output.problem == "a file can't be written: No space left on device; 1 lines are lost so far"

    os.dup2(writer, log)
    output.write("room again\n")

    assert read_lines(reader, 1) == ["room again"]
    wait_until(lambda: told.get("lines") == 1, "the loss is told")
    assert output.problem is None
    os.close(full)
    os.dup2(os.open(os.devnull, os.O_WRONLY), log)


def test_a_line_that_a_full_disk_cut_off_is_no_part_of_the_next_one(
    pipe: tuple[int, int], clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    write, room = os.write, [5]

    def until_the_disk_is_full(fd: int, data: memoryview) -> int:
        if fd != writer:
            return write(fd, data)
        if not room[0]:
            raise OSError(28, "No space left on device")
        written = write(fd, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", until_the_disk_is_full)
    output = LogOutput(writer, "a pipe", clock)
    output.write("cut off\n")
    assert output.drain(PATIENCE_S)
    room[0] = 1000
    output.write("whole\n")
    assert output.drain(PATIENCE_S)
    assert os.read(reader, 1000) == b"cut o\nwhole\n"
    assert output.lost[Loss.FAILED] == 1


def test_a_stream_that_another_process_made_non_blocking_gets_every_line(
    pipe: tuple[int, int], clock: SteppedClock
) -> None:
    reader, writer = pipe
    os.set_blocking(writer, False)
    output = LogOutput(writer, "a pipe", clock)
    for number in range(3000):
        output.write(f"{number:0100}\n")
    assert read_lines(reader, 3000) == [f"{number:0100}" for number in range(3000)]


def test_text_that_is_no_unicode_is_written_and_bytes_are_refused(pipe: tuple[int, int], clock: SteppedClock) -> None:
    reader, writer = pipe
    output = LogOutput(writer, "a pipe", clock)
    output.write("half a character: \ud800\n")
    assert read_lines(reader, 1) == ["half a character: \\ud800"]
    with pytest.raises(TypeError):
        output.write(b"")  # type: ignore[arg-type]


ENDS_WITH_AN_ERROR = """
import logging, sys, warnings
from diskless_core import logs
from diskless_core.clock import SystemClock
from diskless_core.log_output import StandardStreams

StandardStreams.take_over(SystemClock())
logs.configure("text", "info", 1)
print("printed")
logging.getLogger("a.library").warning("of a library")
warnings.warn("a warning")
raise RuntimeError("nothing caught this")
"""


def test_what_a_process_logged_prints_warns_of_and_ends_with_is_written_before_its_end() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDS_WITH_AN_ERROR], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 1
    assert ended.stdout == "printed\n"
    at = [ended.stderr.find(text) for text in ("of a library", "a warning", "RuntimeError: nothing caught this")]
    assert at == sorted(at)
    assert at[0] >= 0
