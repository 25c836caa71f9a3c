"""The contract of `coordinator_log` on the bucket log: in memory, in a folder that brokers share, in S3, in GCS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from diskless_bucket_log import writer
from diskless_bucket_log.bucket_log import BucketLog
from diskless_bucket_log.config import BucketLogSettings
from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.coordinator_log import CoordinatorLog
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.testing.coordinator_log import CoordinatorLogContract
from diskless_core.testing.coordinator_log_appender import KillableLog
from diskless_core.testing.coordinator_log_tools import HangBackend, MakeLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from diskless_fsspec.config import FsspecSettings
from diskless_fsspec.factory import make_store

CLOCK = SystemClock()
GCS_OPTIONS = '{"token": "anon", "project": "p"}'
QUICK = {"linger.ms": 0, "poll.max.ms": 100, "lease.ms": 6000}


def bucket_log(
    folder: Path, node_id: int, make_objects: Callable[[int], WalObjectStore], *, check_rounds: int = 0
) -> CoordinatorLog:
    context = PluginContext(
        node_id=node_id,
        data_dir=folder / "log",
        log_dir=folder,
        clock=CLOCK,
        object_store=lambda: make_objects(node_id),
        object_prefix="wal",
    )
    return BucketLog(context, BucketLogSettings.model_validate(QUICK), check_rounds=check_rounds)


class TestBucketLogInMemory(CoordinatorLogContract):
    @pytest.fixture
    def store(self) -> MemoryWalObjectStore:
        return MemoryWalObjectStore(CLOCK)

    @pytest.fixture
    def make_log(self, store: MemoryWalObjectStore, tmp_path: Path) -> MakeLog:
        return lambda node_id=1: bucket_log(tmp_path, node_id, lambda _: store)

    @pytest.fixture
    def hang_backend(self, store: MemoryWalObjectStore, monkeypatch: pytest.MonkeyPatch) -> HangBackend:
        @asynccontextmanager
        async def hang() -> AsyncIterator[None]:
            monkeypatch.setattr(writer, "APPEND_TIMEOUT_S", 0.05)
            with ExitStack() as holds:
                for operation in Operation:
                    holds.enter_context(store.hold(operation))
                yield
            monkeypatch.undo()

        return hang


class TestBucketLogInFolder(CoordinatorLogContract):
    @pytest.fixture
    def make_log(self, tmp_path: Path) -> MakeLog:
        def objects(node_id: int) -> WalObjectStore:
            context = PluginContext(
                node_id=node_id, data_dir=tmp_path / str(node_id), log_dir=tmp_path / str(node_id), clock=CLOCK
            )
            return make_store(context, FsspecSettings(url=f"file://{tmp_path}/objects"))

        return lambda node_id=1: bucket_log(tmp_path, node_id, objects, check_rounds=1)

    @pytest.fixture
    def killable_log(self, tmp_path: Path) -> KillableLog:
        return KillableLog(
            module="tests.support.bucket_log_in_folder", name="bucket", data_dir=tmp_path / "log", settings=dict(QUICK)
        )


class TestBucketLogInS3(CoordinatorLogContract):
    @pytest.fixture
    def bucket(self, s3_client: Any) -> str:
        name = f"log-{CLOCK.new_uuid().hex}"
        s3_client.create_bucket(Bucket=name)
        return name

    @pytest.fixture
    def make_log(self, tmp_path: Path, s3_endpoint: str, bucket: str) -> MakeLog:
        def objects(node_id: int) -> WalObjectStore:
            context = PluginContext(node_id=node_id, data_dir=tmp_path, log_dir=tmp_path, clock=CLOCK)
            settings = FsspecSettings.model_validate(
                {
                    "url": f"s3://{bucket}/some/prefix",
                    "endpoint.url": s3_endpoint,
                    "region": "us-east-1",
                    "key": "test-key",
                    "secret": "test-secret",
                }
            )
            return make_store(context, settings)

        return lambda node_id=1: bucket_log(tmp_path, node_id, objects)


class TestBucketLogInGcs(CoordinatorLogContract):
    @pytest.fixture
    def bucket(self, gcs_endpoint: str) -> str:
        name = f"log-{CLOCK.new_uuid().hex}"
        httpx.post(f"{gcs_endpoint}/storage/v1/b?project=p", json={"name": name}).raise_for_status()
        return name

    @pytest.fixture
    def make_log(self, tmp_path: Path, gcs_endpoint: str, bucket: str) -> MakeLog:
        def objects(node_id: int) -> WalObjectStore:
            context = PluginContext(node_id=node_id, data_dir=tmp_path, log_dir=tmp_path, clock=CLOCK)
            settings = {"url": f"gs://{bucket}/some/place", "endpoint.url": gcs_endpoint, "options": GCS_OPTIONS}
            return make_store(context, FsspecSettings.model_validate(settings))

        return lambda node_id=1: bucket_log(tmp_path, node_id, objects)
