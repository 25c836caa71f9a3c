"""The remote storages that come with Diskless keep the contract: folder, memory, S3 (played by moto), and the fake."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pydantic import SecretStr

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage, Operation
from diskless_core.testing.lost_folder import taken_by_a_file
from diskless_core.testing.power_cut import SyncedFiles
from diskless_core.testing.remote_storage import RemoteStorageContract
from diskless_core.testing.remote_storage_failures import BreakStorage
from diskless_core.testing.remote_storage_tools import (
    MEBIBYTE,
    BrokenLogError,
    assert_stored,
    copied,
    make_segment,
)
from diskless_fsspec.bucket_segments import BucketSegmentStore
from diskless_fsspec.bucket_store import BucketStore
from diskless_fsspec.config import FsspecRemoteStorageSettings
from diskless_fsspec.factory import make_remote_storage
from diskless_fsspec.remote_storage import FsspecRemoteStorage
from diskless_fsspec.segments import segment_key
from tests.support import versitygw
from tests.support.s3_storage import make_s3_storage
from tests.support.versitygw import VersityGateway

MakeStorage = Callable[[], RemoteStorage]


def context_in(folder: Path) -> PluginContext:
    return PluginContext(node_id=1, data_dir=folder / "plugin", log_dir=folder / "log", clock=SystemClock())


@asynccontextmanager
async def failing(storage: RemoteStorage) -> AsyncIterator[None]:
    """Every call fails."""
    assert isinstance(storage, MemoryRemoteStorage)
    with ExitStack() as stack:
        for operation in Operation:
            stack.enter_context(storage.failing(operation))
        yield


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    gateway = VersityGateway(tmp_path_factory.mktemp("versitygw"), "segments").start()
    yield gateway
    gateway.end()


class TestFolder(RemoteStorageContract):
    most_copy_memory_bytes = 20 * MEBIBYTE

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "segments"

    @pytest.fixture
    def make_storage(self, tmp_path: Path, folder: Path) -> MakeStorage:
        settings = FsspecRemoteStorageSettings(url=folder.as_uri())
        return lambda: make_remote_storage(context_in(tmp_path), settings)

    @pytest.fixture
    def synced_files(self, folder: Path) -> SyncedFiles:
        (folder / ".incoming").mkdir(parents=True)  # nobody syncs it: what is in it is lost in a power cut
        return SyncedFiles(folder)

    @pytest.fixture
    def make_unreachable_storage(self, tmp_path: Path) -> MakeStorage:
        (tmp_path / "file").touch()
        settings = FsspecRemoteStorageSettings(url=(tmp_path / "file").as_uri())
        return lambda: make_remote_storage(context_in(tmp_path), settings)

    @pytest.fixture
    def break_storage(self, folder: Path) -> BreakStorage:
        return lambda _storage: taken_by_a_file(folder)


class TestFolderThroughFsspec(RemoteStorageContract):
    """What any file system gets that can rename: `local://` is another name of fsspec's for `file://`."""

    most_copy_memory_bytes = 40 * MEBIBYTE

    @pytest.fixture
    def break_storage(self, tmp_path: Path) -> BreakStorage:
        return lambda _storage: taken_by_a_file(tmp_path / "segments")

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
    secrets = ("correct-horse",)

    @pytest.fixture
    def bucket(self, s3_client: Any) -> str:
        bucket = f"bucket-{uuid.uuid4().hex}"
        s3_client.create_bucket(Bucket=bucket)
        return bucket

    @pytest.fixture
    def make_storage(self, s3_endpoint: str, bucket: str, tmp_path: Path) -> MakeStorage:
        return lambda: make_s3_storage(context_in(tmp_path), s3_endpoint, bucket)

    @pytest.fixture
    def make_unreachable_storage(self, tmp_path: Path) -> MakeStorage:
        settings = FsspecRemoteStorageSettings(
            url="s3://bucket/segments",
            endpoint_url="http://127.0.0.1:1",
            region="us-east-1",
            key="someone",
            secret=SecretStr(self.secrets[0]),
        )
        return lambda: make_remote_storage(context_in(tmp_path), settings)

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

    async def test_uploads_of_a_process_that_was_killed_go_when_another_copy_is_complete(
        self, storage: RemoteStorage, bucket: str, s3_client: Any
    ) -> None:
        segment, other = await copied(storage, make_segment()), await copied(storage, make_segment(number=2))
        keys = [found["Key"] for found in s3_client.list_objects_v2(Bucket=bucket)["Contents"]]
        for key in keys:
            if key.endswith(".log"):
                for _ in range(2):
                    s3_client.create_multipart_upload(Bucket=bucket, Key=key)
        await storage.discard_unfinished(segment.metadata)
        left = s3_client.list_multipart_uploads(Bucket=bucket)["Uploads"]
        assert len(left) == 2, "those of another segment may be under way"
        await storage.discard_unfinished(other.metadata)
        assert s3_client.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []
        await assert_stored(storage, segment, other)


@pytest.mark.xdist_group("versitygw")
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

    async def test_uploads_of_a_process_that_was_killed_go_when_another_copy_is_complete(
        self, storage: RemoteStorage, gateway: VersityGateway
    ) -> None:
        segment = await copied(storage, make_segment())
        assert isinstance(storage, FsspecRemoteStorage)
        assert isinstance(storage.store, BucketSegmentStore)
        objects = storage.store.objects
        name = objects.name(segment_key(segment.metadata) + ".log")
        await objects.call("call_s3", "create_multipart_upload", Bucket=gateway.bucket, Key=name)
        assert await unfinished_uploads(objects, name) == [name]
        await storage.discard_unfinished(segment.metadata)
        assert await unfinished_uploads(objects, name) == []
        await assert_stored(storage, segment)


async def unfinished_uploads(objects: BucketStore, name: str) -> list[str]:
    answer = await objects.call("call_s3", "list_multipart_uploads", Bucket=objects.bucket, Prefix=name)
    return [found["Key"] for found in answer.get("Uploads", ())]


class TestFake(RemoteStorageContract):
    @pytest.fixture
    def make_storage(self) -> MakeStorage:
        storage = MemoryRemoteStorage()
        return lambda: storage

    @pytest.fixture
    def break_storage(self) -> BreakStorage:
        return failing


class TestFakeWithCustomMetadata(RemoteStorageContract):
    @pytest.fixture
    def make_storage(self) -> MakeStorage:
        storage = MemoryRemoteStorage(custom_metadata=b"where it is")
        return lambda: storage
