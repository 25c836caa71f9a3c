"""The contract of `coordinator_log` on the built-in plugin and on the in-memory fake."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.testing.coordinator_log import CoordinatorLogContract
from diskless_core.testing.coordinator_log_appender import KillableLog
from diskless_core.testing.coordinator_log_tools import OTHER_SHARD, SHARD, HangBackend, MakeLog
from diskless_core.testing.fakes.log import APPEND_TIMEOUT_S, SharedLog
from diskless_core.testing.power_cut import SyncedFiles
from diskless_local_log import writer
from diskless_local_log.config import LocalLogSettings
from diskless_local_log.local_log import LocalCoordinatorLog


class TestLocalLog(CoordinatorLogContract):
    largest_tried_entry_bytes = 64 << 20

    @pytest.fixture
    def settings(self) -> dict[str, object]:
        return {"segment.bytes": 16384}

    @pytest.fixture
    def make_log(self, tmp_path: Path, settings: dict[str, object]) -> MakeLog:
        context = PluginContext(node_id=7, data_dir=tmp_path / "log", log_dir=tmp_path, clock=SystemClock())
        return lambda node_id=7: LocalCoordinatorLog(context, LocalLogSettings.model_validate(settings))

    @pytest.fixture
    def synced_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SyncedFiles:
        monkeypatch.setattr(writer, "sync_file", lambda fd: os.fdatasync(fd))  # as it is when it is called
        return SyncedFiles(tmp_path / "log")

    @pytest.fixture
    def make_unopenable_log(self, tmp_path: Path) -> MakeLog:
        (tmp_path / "file").touch()
        context = PluginContext(node_id=7, data_dir=tmp_path / "file", log_dir=tmp_path, clock=SystemClock())
        return lambda node_id=7: LocalCoordinatorLog(context, LocalLogSettings())

    @pytest.fixture
    def killable_log(self, tmp_path: Path, settings: dict[str, object]) -> KillableLog:
        return KillableLog(
            module="diskless_local_log.plugin", name="local", data_dir=tmp_path / "log", settings=settings
        )


class TestLocalLogWithoutMemory(TestLocalLog):
    """Every read comes from files."""

    @pytest.fixture
    def settings(self) -> dict[str, object]:
        return {"segment.bytes": 16384, "tail.bytes": 0, "fsync": False}

    @pytest.fixture
    def synced_files(self) -> None:  # type: ignore[override]
        """It does not sync."""


class TestFakeLog(CoordinatorLogContract):
    @pytest.fixture
    def shared(self) -> SharedLog:
        shared = SharedLog()
        shared.max_entry_bytes = shared.announced_max_entry_bytes = 2 << 20
        return shared

    @pytest.fixture
    def make_log(self, shared: SharedLog) -> MakeLog:
        return lambda node_id=1: shared.node(node_id)

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
