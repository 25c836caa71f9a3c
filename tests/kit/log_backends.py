"""What faulty coordinator logs are made from: one in memory that nodes share, and one that appends to a file."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from diskless_core.log.segment import require_whole_batch
from diskless_core.plugin.coordinator_log import CoordinatorLog, CoordinatorLogError
from diskless_core.plugin.shard import ShardId, parse_shard_id
from diskless_core.protocol.record_batch import CorruptBatchError
from diskless_core.testing.coordinator_log import CoordinatorLogContract
from diskless_core.testing.coordinator_log_tools import OTHER_SHARD, SHARD, HangBackend, MakeLog
from diskless_core.testing.fakes.log import APPEND_TIMEOUT_S, FakeCoordinatorLog, SharedLog
from diskless_core.testing.power_cut import SyncedFiles
from tests.kit.fault import Fault, MakeSuite

NOUN = "coordinator_log"
PASSWORD = "correct-horse"

LARGEST_ENTRY_BYTES = 2 << 20

_FRAME = struct.Struct(">II")


class Unopenable(FakeCoordinatorLog):
    """One whose backend is not there."""

    async def start(self) -> None:
        raise CoordinatorLogError("cannot be reached: check the address")


def shared_suite(
    made: type[FakeCoordinatorLog] = FakeCoordinatorLog,
    shared_log: type[SharedLog] = SharedLog,
    unopenable: type[FakeCoordinatorLog] = Unopenable,
) -> MakeSuite:
    """The suite for a log in memory that nodes share."""

    class Suite(CoordinatorLogContract):
        secrets = (PASSWORD,)

        @pytest.fixture
        def shared(self) -> SharedLog:
            shared = shared_log()
            shared.max_entry_bytes = shared.announced_max_entry_bytes = LARGEST_ENTRY_BYTES
            return shared

        @pytest.fixture
        def make_log(self, shared: SharedLog) -> MakeLog:
            return lambda node_id=1: made(shared, node_id)

        @pytest.fixture
        def make_unopenable_log(self, shared: SharedLog) -> MakeLog:
            return lambda node_id=1: unopenable(shared, node_id)

        @pytest.fixture
        def hang_backend(self, shared: SharedLog) -> HangBackend:
            @asynccontextmanager
            async def hang() -> AsyncIterator[None]:
                shared.append_timeout_s = 0.05
                for shard in (SHARD, OTHER_SHARD):
                    shared.hold_high_watermark(shard)
                yield
                for shard in (SHARD, OTHER_SHARD):
                    shared.release_high_watermark(shard)
                shared.append_timeout_s = APPEND_TIMEOUT_S

            return hang

    return lambda: Suite


def _is_intact(batch: bytes) -> bool:
    try:
        require_whole_batch(batch)
    except CorruptBatchError:
        return False
    return True


class FileLog(FakeCoordinatorLog):
    """A log of one node in one file, which is read at the start; what is pruned comes back then."""

    is_shared = False

    def __init__(self, folder: Path) -> None:
        shared = SharedLog()
        shared.max_entry_bytes = shared.announced_max_entry_bytes = LARGEST_ENTRY_BYTES
        super().__init__(shared, 1)
        self._path = folder / "log"
        self._fd: int | None = None
        self._writing = asyncio.Lock()

    async def start(self) -> None:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._fd = fd
        content = self._path.read_bytes()
        os.ftruncate(fd, self.replay(content))
        self.sync(fd)
        self.sync_folder()
        await super().start()

    async def start_reading(self) -> None:
        await CoordinatorLog.start_reading(self)

    async def stop(self) -> None:
        await super().stop()
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    async def append(self, shard: ShardId, batches: Sequence[bytes]) -> Sequence[int]:
        for batch in batches:
            try:
                require_whole_batch(batch)
            except CorruptBatchError as error:
                raise CoordinatorLogError(str(error)) from error
        async with self._writing:
            fd = self._fd
            if fd is None:
                raise CoordinatorLogError("the log is not running")
            frames = [self.frame(shard, batch) for batch in batches if len(batch) <= LARGEST_ENTRY_BYTES]
            if len(frames) == len(batches):
                await self.write(fd, b"".join(frames))
            return await super().append(shard, batches)

    async def write(self, fd: int, data: bytes) -> None:
        """Make it durable."""
        os.write(fd, data)
        self.sync(fd)

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def sync_folder(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def frame(self, shard: ShardId, batch: bytes) -> bytes:
        name = str(shard).encode()
        return _FRAME.pack(len(name), len(batch)) + name + batch

    def replay(self, content: bytes) -> int:
        """Take in what is whole, and return where that ends."""
        at = 0
        while at + _FRAME.size <= len(content):
            name_bytes, batch_bytes = _FRAME.unpack_from(content, at)
            begin = at + _FRAME.size + name_bytes
            batch = content[begin : begin + batch_bytes]
            shard = parse_shard_id(content[at + _FRAME.size : begin].decode())
            if shard is None or not _is_intact(batch):
                break
            self._shared.state(shard).append(batch)
            at = begin + batch_bytes
        return at


def file_suite(made: type[FileLog]) -> MakeSuite:
    """The suite for a log in a file."""

    class Suite(CoordinatorLogContract):
        prunes = False

        @pytest.fixture
        def folder(self, tmp_path: Path) -> Path:
            folder = tmp_path / "log"
            folder.mkdir()
            return folder

        @pytest.fixture
        def make_log(self, folder: Path) -> MakeLog:
            return lambda node_id=1: made(folder)

        @pytest.fixture
        def synced_files(self, folder: Path) -> SyncedFiles:
            return SyncedFiles(folder)

    return lambda: Suite


def fault(name: str, made: type[CoordinatorLog], promise: str) -> Fault:
    """A fault of a node's log; what is wrong is its docstring."""
    suite = file_suite(made) if issubclass(made, FileLog) else shared_suite(made)
    return Fault(noun=NOUN, name=name, says=(made.__doc__ or "").strip(), promise=promise, suite=suite)


def shared_fault(name: str, shared_log: type[SharedLog], promise: str) -> Fault:
    """A fault of what the nodes share; what is wrong is its docstring."""
    says = (shared_log.__doc__ or "").strip()
    return Fault(noun=NOUN, name=name, says=says, promise=promise, suite=shared_suite(shared_log=shared_log))


def start_fault(name: str, unopenable: type[FakeCoordinatorLog], promise: str) -> Fault:
    """A fault of a log that cannot be started; what is wrong is its docstring."""
    says = (unopenable.__doc__ or "").strip()
    return Fault(noun=NOUN, name=name, says=says, promise=promise, suite=shared_suite(unopenable=unopenable))
