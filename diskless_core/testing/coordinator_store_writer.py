"""Processes that write to a store and are killed while they do, to find out what a crash leaves.

Part of the contract suite. One spawned process, the host, imports the plugin once; each writer is a fork of it and
opens the store for itself.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import Event
from types import FrameType, TracebackType
from typing import Any, NoReturn

from diskless_core.plugin.coordinator_store import (
    Column,
    ColumnType,
    CoordinatorStore,
    Row,
    ShardStore,
    StoreView,
    TableChanges,
    TableSpec,
)
from diskless_core.plugin.shard import ShardId

REPLACED = TableSpec(
    name="replaced", key=(Column("row", ColumnType.INTEGER),), values=(Column("write", ColumnType.INTEGER),)
)
MOVED = TableSpec(
    name="moved",
    key=(Column("write", ColumnType.INTEGER), Column("row", ColumnType.INTEGER)),
    values=(Column("text", ColumnType.TEXT),),
)
WRITTEN = (REPLACED, MOVED)
"""Write number n replaces all rows of the one table, moves all rows of the other one, and applies offset n."""

_TIMEOUT_S = 300
_POLL_S = 0.001
_COUNTER = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class ForEver:
    """Write until killed, `delay_s` after write number `least` returned. The answer: the last write that returned."""

    shard: ShardId
    rows: int
    least: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class StepByStep:
    """Open, do so many writes and close, killed at step `kill_at`. The answer: the last step; None when it failed.

    A step is an instruction of Python code in the writing thread, so that a kill falls between any two calls.
    """

    shard: ShardId
    rows: int
    writes: int
    kill_at: int


class DoomedWriters:
    """A context in which writers are started and killed. `make_store` has to be picklable."""

    def __init__(self, make_store: Callable[[], CoordinatorStore]) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._host_end, its_end = spawning.Pipe()
        self._host = spawning.Process(target=_host, args=(make_store, its_end), daemon=True)
        self._its_end = its_end

    def run(self, order: ForEver | StepByStep) -> int:
        """Start a writer and return the order's answer when it is dead.

        Raises:
            AssertionError: the writer failed by itself; its traceback is on stderr.
        """
        self._host_end.send(order)
        if not self._host_end.poll(_TIMEOUT_S):
            raise TimeoutError("the writing process makes no progress")
        answer: int | None = self._host_end.recv()
        assert answer is not None, "the store failed in the writing process: see stderr"
        return answer

    def __enter__(self) -> DoomedWriters:
        self._host.start()
        self._its_end.close()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._host.kill()
        self._host.join()
        self._host.close()
        self._host_end.close()


def changes_of(write: int, rows: int) -> dict[str, TableChanges]:
    """What write number `write` does, each to `rows` rows."""
    moved: list[Row] = [(write, row, f"{write}:{row}") for row in range(rows)]
    return {
        REPLACED.name: TableChanges(put=[(row, write) for row in range(rows)]),
        MOVED.name: TableChanges(put=moved, delete=[(write - 1, row) for row in range(rows) if write > 1]),
    }


def assert_whole(view: StoreView, rows: int) -> int:
    """The content is that of the write that the applied offset tells of, which is returned."""
    write = view.applied_offset()
    expected = changes_of(write, rows) if write else {}
    for table in WRITTEN:
        found, whole = view.scan(table.name), expected[table.name].put if write else []
        assert found == whole, f"offset {write} is applied, but {table.name!r} is not as that write left it"
    return write


def _host(make_store: Callable[[], CoordinatorStore], orders: Connection) -> None:
    while True:
        try:
            order: ForEver | StepByStep = orders.recv()
        except EOFError:
            return
        with mmap.mmap(-1, _COUNTER.size) as progress:
            orders.send(_run(make_store, order, progress))


def _run(make_store: Callable[[], CoordinatorStore], order: ForEver | StepByStep, progress: mmap.mmap) -> int | None:
    writer = os.fork()
    if not writer:
        _write_and_exit(make_store, order, progress)
    status = _killed_later(writer, order, progress) if isinstance(order, ForEver) else os.waitpid(writer, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return _get(progress)
    return _get(progress) if status == 0 else None


def _killed_later(writer: int, order: ForEver, progress: mmap.mmap) -> int:
    pause = Event()
    while _get(progress) < order.least:
        dead, status = os.waitpid(writer, os.WNOHANG)
        if dead:
            return status
        pause.wait(_POLL_S)
    pause.wait(order.delay_s)
    os.kill(writer, signal.SIGKILL)
    return os.waitpid(writer, 0)[1]


def _write_and_exit(
    make_store: Callable[[], CoordinatorStore], order: ForEver | StepByStep, progress: mmap.mmap
) -> NoReturn:
    try:
        if isinstance(order, ForEver):
            _write_for_ever(make_store().open(order.shard, WRITTEN), order.rows, progress)
        else:
            sys.settrace(_killer(order.kill_at, progress))
            with closing(make_store().open(order.shard, WRITTEN)) as store:
                for write in range(1, order.writes + 1):
                    store.write(changes_of(write, order.rows), write)
            sys.settrace(None)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _write_for_ever(store: ShardStore, rows: int, progress: mmap.mmap) -> None:
    host, write = os.getppid(), store.applied_offset()
    while os.getppid() == host:
        write += 1
        store.write(changes_of(write, rows), write)
        _set(progress, write)


def _killer(kill_at: int, progress: mmap.mmap) -> Callable[[FrameType, str, Any], Any]:
    step = 0

    def trace(frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal step
        frame.f_trace_opcodes = True
        step += 1
        _set(progress, step)
        if step >= kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


def _get(progress: mmap.mmap) -> int:
    (value,) = _COUNTER.unpack_from(progress)
    return int(value)


def _set(progress: mmap.mmap, value: int) -> None:
    _COUNTER.pack_into(progress, 0, value)
