"""The object stores that come with Diskless keep the contract; moto plays S3, and fake-gcs-server GCS."""

from __future__ import annotations

import errno
import io
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec
import httpx
import pytest
from botocore.exceptions import ClientError
from pydantic import SecretStr

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.wal_object_store import ConditionFailedError, WalObjectStore
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation, access_denied
from diskless_core.testing.power_cut import SyncedFiles
from diskless_core.testing.wal_object_store import WalObjectStoreContract
from diskless_core.testing.wal_object_store_failures import DisturbBackend, MakeObjectStore
from diskless_core.testing.wal_object_store_tools import ObjectBackDoor
from diskless_fsspec.config import FsspecSettings
from diskless_fsspec.factory import make_store
from diskless_fsspec.gcs_store import GcsObjectStore
from diskless_fsspec.local_store import LocalObjectStore
from diskless_fsspec.s3_store import S3ObjectStore
from diskless_fsspec.sync_store import SyncFilesystemStore

CLOCK = SystemClock()
NOBODY = "http://127.0.0.1:1"
SECRET = "hush-hush"


def context_in(folder: Path) -> PluginContext:
    return PluginContext(node_id=1, data_dir=folder / "plugin", log_dir=folder / "log", clock=CLOCK)


@asynccontextmanager
async def running(store: WalObjectStore) -> AsyncIterator[None]:
    await store.start()
    try:
        yield
    finally:
        await store.stop()


@asynccontextmanager
async def broken_disk() -> AsyncIterator[None]:
    """Every call of the operating system that has to do with files fails, other than in a test's own folder."""

    def failing(*_arguments: object, **_options: object) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.MonkeyPatch.context() as patched:
        for name in ("open", "scandir", "listdir", "unlink", "remove", "stat", "rename", "replace", "mkdir"):
            patched.setattr(os, name, failing)
        patched.setattr(io, "open", failing)
        patched.setattr("builtins.open", failing)
        yield


class FolderBackDoor(ObjectBackDoor):
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.monkeypatch = monkeypatch

    def protect(self, key: str) -> None:
        """As a folder without write permission does, which the superuser is not refused by."""
        unlink, kept = os.unlink, self.root / key

        def refusing(path: str | Path, **options: Any) -> None:
            if Path(path) == kept:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            unlink(path, **options)

        self.monkeypatch.setattr(os, "unlink", refusing)
        self.monkeypatch.setattr(os, "remove", refusing)

    def write(self, key: str, data: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def read(self, key: str) -> bytes | None:
        path = self.root / key
        return path.read_bytes() if path.is_file() else None


class FolderContract(WalObjectStoreContract):
    """What stores on a folder have in common."""

    page_objects = 10

    @pytest.fixture
    def make_store_at(self) -> Callable[[Path], WalObjectStore]:
        raise NotImplementedError

    @pytest.fixture
    def make_store(self, make_store_at: Callable[[Path], WalObjectStore], tmp_path: Path) -> MakeObjectStore:
        return partial(make_store_at, tmp_path / "wal")

    @pytest.fixture
    def store(self, make_store: MakeObjectStore) -> WalObjectStore:
        return make_store()

    @pytest.fixture
    def unopenable_store(self, make_store_at: Callable[[Path], WalObjectStore], tmp_path: Path) -> WalObjectStore:
        (tmp_path / "file").touch()
        return make_store_at(tmp_path / "file")

    @pytest.fixture
    def synced_files(self, tmp_path: Path) -> SyncedFiles:
        return SyncedFiles(tmp_path / "wal")

    @pytest.fixture
    def fail_backend(self) -> DisturbBackend:
        return broken_disk

    @pytest.fixture
    def back_door(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectBackDoor:
        return FolderBackDoor(tmp_path / "wal", monkeypatch)


class TestFolder(FolderContract):
    writes_on_condition = True

    @pytest.fixture
    def make_store_at(self) -> Callable[[Path], WalObjectStore]:
        return partial(LocalObjectStore, node_id=1, clock=CLOCK, page_objects=self.page_objects)


class TestFolderByDefaultSettings(WalObjectStoreContract):
    writes_on_condition = True

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeObjectStore:
        return partial(make_store, context_in(tmp_path), FsspecSettings())

    @pytest.fixture
    def store(self, make_store: MakeObjectStore) -> WalObjectStore:
        return make_store()

    @pytest.fixture
    def back_door(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectBackDoor:
        return FolderBackDoor(tmp_path / "log" / "wal-objects", monkeypatch)


class TestFolderThroughFsspec(FolderContract):
    """What any file system gets that can rename: `local://` is another name of fsspec's for `file://`."""

    @pytest.fixture
    def make_store_at(self) -> Callable[[Path], WalObjectStore]:
        def make(root: Path) -> WalObjectStore:
            return SyncFilesystemStore(f"local://{root}", {}, node_id=1, clock=CLOCK, page_objects=self.page_objects)

        return make

    @pytest.fixture
    def synced_files(self) -> None:
        """fsspec syncs nothing."""


class MemoryBackDoor(ObjectBackDoor):
    def __init__(self, root: str) -> None:
        self.root = root
        self.filesystem: Any = fsspec.filesystem("memory")

    def write(self, key: str, data: bytes) -> None:
        self.filesystem.pipe_file(f"{self.root}/{key}", data)

    def read(self, key: str) -> bytes | None:
        path = f"{self.root}/{key}"
        return self.filesystem.cat_file(path) if self.filesystem.isfile(path) else None


class TestMemory(WalObjectStoreContract):
    writes_on_condition = True

    @pytest.fixture
    def url(self) -> Iterator[str]:
        url = f"memory://{uuid.uuid4().hex}/objects"
        yield url
        filesystem = fsspec.filesystem("memory")
        if filesystem.exists(url):
            filesystem.rm(url, recursive=True)

    @pytest.fixture
    def make_store(self, url: str, tmp_path: Path) -> MakeObjectStore:
        return partial(make_store, context_in(tmp_path), FsspecSettings(url=url))

    @pytest.fixture
    def store(self, make_store: MakeObjectStore) -> WalObjectStore:
        return make_store()

    @pytest.fixture
    def back_door(self, url: str) -> ObjectBackDoor:
        return MemoryBackDoor(url)


class S3BackDoor(ObjectBackDoor):
    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self.client = client
        self.bucket = bucket
        self.prefix = prefix

    def write(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=self.prefix + key, Body=data)

    def read(self, key: str) -> bytes | None:
        try:
            return self.client.get_object(Bucket=self.bucket, Key=self.prefix + key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchKey":
                return None
            raise


class TestS3(WalObjectStoreContract):
    """Moto closes an object that is replaced while it is still being answered for: hence no shared keys."""

    writes_on_condition = True
    page_objects = 10
    shares_keys = False
    secrets = (SECRET,)

    @pytest.fixture
    def bucket(self, s3_client: Any) -> str:
        bucket = f"bucket-{uuid.uuid4().hex}"
        s3_client.create_bucket(Bucket=bucket)
        return bucket

    @pytest.fixture
    def back_door(self, s3_client: Any, bucket: str) -> ObjectBackDoor:
        return S3BackDoor(s3_client, bucket, "some/place/")

    @pytest.fixture
    def make_store_at(self, bucket: str, tmp_path: Path) -> Callable[[str], WalObjectStore]:
        def make(endpoint_url: str) -> WalObjectStore:
            settings = FsspecSettings(
                url=f"s3://{bucket}/some/place/",
                endpoint_url=endpoint_url,
                region="us-east-1",
                key="test-key",
                secret=SECRET,
            )
            made = make_store(context_in(tmp_path), settings)
            assert isinstance(made, S3ObjectStore)
            return S3ObjectStore(replace(made.options, page_objects=self.page_objects))

        return make

    @pytest.fixture
    def make_store(self, s3_endpoint: str, make_store_at: Callable[[str], WalObjectStore]) -> MakeObjectStore:
        return partial(make_store_at, s3_endpoint)

    @pytest.fixture
    def store(self, make_store: MakeObjectStore) -> WalObjectStore:
        return make_store()

    @pytest.fixture
    def unopenable_store(self, make_store_at: Callable[[str], WalObjectStore]) -> WalObjectStore:
        return make_store_at(NOBODY)

    async def test_a_bucket_with_versions_asks_for_a_rule_that_removes_them(
        self, store: S3ObjectStore, s3_client: Any, bucket: str
    ) -> None:
        async with running(store):
            assert await store.unbounded_versions("wal-log/") is None
            s3_client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
            advice = await store.unbounded_versions("wal-log/")
            assert advice is not None
            assert "give it a lifecycle rule for the prefix 'some/place/wal-log/'" in advice
            rule = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "some/"}}
            rule |= {"NoncurrentVersionExpiration": {"NoncurrentDays": 1}}
            s3_client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
            assert await store.unbounded_versions("wal-log/") is None

    async def test_the_version_of_a_versioned_bucket_is_the_newest_ones(
        self, store: S3ObjectStore, s3_client: Any, bucket: str
    ) -> None:
        s3_client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        async with running(store):
            first = await store.create("key", b"first")
            await store.replace("key", b"second", first)
            with pytest.raises(ConditionFailedError):
                await store.replace("key", b"third", first)
            assert list(await store.delete(["key"])) == ["key"]
            await store.create("key", b"fourth")


class GcsBackDoor(ObjectBackDoor):
    def __init__(self, endpoint: str, bucket: str, prefix: str) -> None:
        self.endpoint = endpoint
        self.bucket = bucket
        self.prefix = prefix

    def write(self, key: str, data: bytes) -> None:
        name = quote(self.prefix + key, safe="")
        url = f"{self.endpoint}/upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={name}"
        httpx.post(url, content=data).raise_for_status()

    def read(self, key: str) -> bytes | None:
        url = f"{self.endpoint}/storage/v1/b/{self.bucket}/o/{quote(self.prefix + key, safe='')}?alt=media"
        answer = httpx.get(url)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        return answer.raise_for_status().content


class TestGcs(WalObjectStoreContract):
    page_objects = 10
    writes_on_condition = True
    never_a_version = "1234567890"

    @pytest.fixture
    def bucket(self, gcs_endpoint: str) -> str:
        bucket = f"bucket-{uuid.uuid4().hex}"
        httpx.post(f"{gcs_endpoint}/storage/v1/b?project=p", json={"name": bucket}).raise_for_status()
        return bucket

    @pytest.fixture
    def back_door(self, gcs_endpoint: str, bucket: str) -> ObjectBackDoor:
        return GcsBackDoor(gcs_endpoint, bucket, "some/place/")

    @pytest.fixture
    def make_store(self, gcs_endpoint: str, bucket: str, tmp_path: Path) -> MakeObjectStore:
        settings = FsspecSettings(
            url=f"gs://{bucket}/some/place/",
            endpoint_url=gcs_endpoint,
            options=SecretStr('{"token": "anon", "project": "p"}'),
        )
        made = make_store(context_in(tmp_path), settings)
        assert isinstance(made, GcsObjectStore)
        options = replace(made.options, page_objects=self.page_objects)
        return lambda: GcsObjectStore(options, CLOCK)

    @pytest.fixture
    def store(self, make_store: MakeObjectStore) -> WalObjectStore:
        return make_store()


class TestFake(WalObjectStoreContract):
    writes_on_condition = True
    page_objects = 10

    @pytest.fixture
    def store(self) -> WalObjectStore:
        return MemoryWalObjectStore(CLOCK, page_objects=self.page_objects)

    @pytest.fixture
    def make_store(self, store: MemoryWalObjectStore) -> MakeObjectStore:
        return lambda: store

    @pytest.fixture
    def fail_backend(self, store: MemoryWalObjectStore) -> DisturbBackend:
        @asynccontextmanager
        async def fail() -> AsyncIterator[None]:
            with ExitStack() as failing:
                for operation in Operation:
                    failing.enter_context(store.failing(operation))
                yield

        return fail

    @pytest.fixture
    def back_door(self, store: MemoryWalObjectStore) -> ObjectBackDoor:
        return FakeBackDoor(store)


class FakeBackDoor(ObjectBackDoor):
    def __init__(self, store: MemoryWalObjectStore) -> None:
        self.store = store

    def write(self, key: str, data: bytes) -> None:
        self.store.objects[key] = data

    def read(self, key: str) -> bytes | None:
        return self.store.objects.get(key)

    def protect(self, key: str) -> None:
        self.store.objects = GuardedObjects(self.store.objects, key)


class GuardedObjects(dict[str, bytes]):
    """Does not give one of them away."""

    def __init__(self, objects: dict[str, bytes], kept: str) -> None:
        super().__init__(objects)
        self.kept = kept

    def pop(self, key: str, *default: Any) -> Any:
        if key == self.kept:
            raise access_denied()
        return super().pop(key, *default)
