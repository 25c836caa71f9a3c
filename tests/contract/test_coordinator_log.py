"""The contract of `coordinator_log` on the built-in plugin and on the in-memory fake."""

from __future__ import annotations

from pathlib import Path

import pytest

from diskless_bucket_log.bucket_log import BucketLog
from diskless_bucket_log.config import BucketLogSettings
from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.testing.coordinator_log import CoordinatorLogContract
from diskless_core.testing.coordinator_log_appender import KillableLog
from diskless_core.testing.coordinator_log_tools import MakeLog
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from diskless_local_log.config import LocalLogSettings
from diskless_local_log.local_log import LocalCoordinatorLog


class TestLocalLog(CoordinatorLogContract):
    @pytest.fixture
    def settings(self) -> dict[str, object]:
        return {"segment.bytes": 16384}

    @pytest.fixture
    def make_log(self, tmp_path: Path, settings: dict[str, object]) -> MakeLog:
        context = PluginContext(node_id=7, data_dir=tmp_path / "log", log_dir=tmp_path, clock=SystemClock())
        return lambda: LocalCoordinatorLog(context, LocalLogSettings.model_validate(settings))

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


class TestFakeLog(CoordinatorLogContract):
    @pytest.fixture
    def make_log(self) -> MakeLog:
        shared = SharedLog()
        return lambda: shared.node(1)


class TestBucketLogInMemory(CoordinatorLogContract):
    @pytest.fixture
    def make_log(self, tmp_path: Path) -> MakeLog:
        clock = SystemClock()
        store = MemoryWalObjectStore(clock)
        context = PluginContext(
            node_id=7, data_dir=tmp_path, log_dir=tmp_path, clock=clock, object_store=lambda: store, object_prefix="wal"
        )
        return lambda: BucketLog(context, BucketLogSettings())
