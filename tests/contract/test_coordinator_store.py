"""The coordinator stores that come with Diskless keep the contract."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from diskless_core.plugin.coordinator_store import CoordinatorStore
from diskless_core.testing.coordinator_store import CoordinatorStoreContract, MakeStore
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from diskless_sqlite.store import SqliteCoordinatorStore


class TestSqlite(CoordinatorStoreContract):
    survives_kill = True

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return partial(SqliteCoordinatorStore, tmp_path)

    @pytest.fixture
    def make_unopenable_store(self, tmp_path: Path) -> MakeStore:
        (tmp_path / "file").touch()
        return partial(SqliteCoordinatorStore, tmp_path / "file")


class TestMemory(CoordinatorStoreContract):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        return partial(_itself, MemoryCoordinatorStore())


def _itself(store: CoordinatorStore) -> CoordinatorStore:
    return store
