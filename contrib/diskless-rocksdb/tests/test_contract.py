"""The store keeps the contract of all coordinator stores."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from diskless_core.testing.coordinator_store import CoordinatorStoreContract, MakeStore
from diskless_rocksdb.config import RocksdbSettings
from diskless_rocksdb.store import RocksdbCoordinatorStore


class _RocksdbContract(CoordinatorStoreContract):
    survives_kill = True

    @pytest.fixture
    def make_unopenable_store(self, tmp_path: Path) -> MakeStore:
        """Its folder is a file."""
        (tmp_path / "file").write_bytes(b"not a folder")
        return partial(RocksdbCoordinatorStore, tmp_path / "file")


class TestRocksdb(_RocksdbContract):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return partial(RocksdbCoordinatorStore, tmp_path / "store")


class TestRocksdbWithLittleMemory(_RocksdbContract):
    """Tables are written and merged all the time."""

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        settings = RocksdbSettings(cache_bytes=1 << 20, write_buffer_bytes=2 << 20, max_open_files=32)
        return partial(RocksdbCoordinatorStore, tmp_path / "store", settings)
