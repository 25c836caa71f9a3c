"""The remote storages that come with Diskless keep the contract: folder, memory, S3 (played by moto), and the fake."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage
from diskless_core.testing.remote_storage import RemoteStorageContract
from diskless_core.testing.remote_storage_tools import BrokenLogError, copied, make_segment
from diskless_fsspec.config import FsspecRemoteStorageSettings
from diskless_fsspec.factory import make_remote_storage
from tests.support import versitygw
from tests.support.s3_storage import make_s3_storage
from tests.support.versitygw import VersityGateway

MakeStorage = Callable[[], RemoteStorage]


def context_in(folder: Path) -> PluginContext:
    return PluginContext(node_id=1, data_dir=folder / "plugin", log_dir=folder / "log", clock=SystemClock())


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    gateway = VersityGateway(tmp_path_factory.mktemp("versitygw"), "segments").start()
    yield gateway
    gateway.end()


class TestFolder(RemoteStorageContract):
    @pytest.fixture
    def make_storage(self, tmp_path: Path) -> MakeStorage:
        return lambda: make_remote_storage(context_in(tmp_path), FsspecRemoteStorageSettings())


class TestFolderThroughFsspec(RemoteStorageContract):
    """What any file system gets that can rename: `local://` is another name of fsspec's for `file://`."""

    @pytest.fixture
    def make_storage(self, tmp_path: Path) -> MakeStorage:
        settings = FsspecRemoteStorageSettings(url=f"local://{tmp_path}/segments")
        return lambda: make_remote_storage(context_in(tmp_path), settings)


class TestMemory(RemoteStorageContract):
    @pytest.fixture
    def make_storage(self, tmp_path: Path) -> Iterator[MakeStorage]:
        url = f"memory://{uuid.uuid4().hex}/segments"
        yield lambda: make_remote_storage(context_in(tmp_path), FsspecRemoteStorageSettings(url=url))
        filesystem = fsspec.filesystem("memory")
        if filesystem.exists(url):
            filesystem.rm(url, recursive=True)


class TestS3(RemoteStorageContract):
    @pytest.fixture
    def bucket(self, s3_client: Any) -> str:
        bucket = f"bucket-{uuid.uuid4().hex}"
        s3_client.create_bucket(Bucket=bucket)
        return bucket

    @pytest.fixture
    def make_storage(self, s3_endpoint: str, bucket: str, tmp_path: Path) -> MakeStorage:
        return lambda: make_s3_storage(context_in(tmp_path), s3_endpoint, bucket)

    async def test_no_parts_of_unfinished_uploads_stay(
        self, storage: RemoteStorage, bucket: str, s3_client: Any
    ) -> None:
        segment = make_segment(self.large_log_bytes)
        with pytest.raises(BrokenLogError):
            await storage.copy(segment.metadata, segment.broken_data(len(segment.log)))
        assert s3_client.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []

    async def test_uploads_of_a_process_that_was_killed_go_with_the_segment(
        self, storage: RemoteStorage, bucket: str, s3_client: Any
    ) -> None:
        segment, other = await copied(storage, make_segment()), await copied(storage, make_segment(number=2))
        keys = [found["Key"] for found in s3_client.list_objects_v2(Bucket=bucket)["Contents"]]
        for key in keys:
            if key.endswith(".log"):
                s3_client.create_multipart_upload(Bucket=bucket, Key=key)
        await storage.delete(segment.metadata)
        assert len(s3_client.list_multipart_uploads(Bucket=bucket)["Uploads"]) == 1
        await storage.delete(other.metadata)
        assert s3_client.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []
        assert s3_client.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


class TestAnotherS3(RemoteStorageContract):
    """versitygw, which unlike moto completes no upload whose parts have checksums that it was not told of before."""

    @pytest.fixture
    def make_storage(self, gateway: VersityGateway, tmp_path: Path) -> MakeStorage:
        settings = FsspecRemoteStorageSettings(
            url=f"s3://{gateway.bucket}/{uuid.uuid4().hex}",
            endpoint_url=gateway.url,
            region=versitygw.REGION,
            key=versitygw.ACCESS_KEY,
            secret=versitygw.SECRET_KEY,
        )
        return lambda: make_remote_storage(context_in(tmp_path), settings)


class TestFake(RemoteStorageContract):
    @pytest.fixture
    def make_storage(self) -> MakeStorage:
        storage = MemoryRemoteStorage()
        return lambda: storage


class TestFakeWithCustomMetadata(RemoteStorageContract):
    @pytest.fixture
    def make_storage(self) -> MakeStorage:
        storage = MemoryRemoteStorage(custom_metadata=b"where it is")
        return lambda: storage
