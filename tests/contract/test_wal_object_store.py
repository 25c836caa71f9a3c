"""The object stores that come with Diskless keep the contract: folder, memory, S3 (as moto plays it), and the fake."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from botocore.exceptions import ClientError

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, access_denied
from diskless_core.testing.wal_object_store import WalObjectStoreContract
from diskless_core.testing.wal_object_store_tools import ObjectBackDoor
from diskless_fsspec.config import FsspecSettings
from diskless_fsspec.factory import make_store
from diskless_fsspec.local_store import LocalObjectStore
from diskless_fsspec.s3_store import S3ObjectStore
from diskless_fsspec.sync_store import SyncFilesystemStore

CLOCK = SystemClock()


def context_in(folder: Path) -> PluginContext:
    return PluginContext(node_id=1, data_dir=folder / "plugin", log_dir=folder / "log", clock=CLOCK)


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


class TestFolder(WalObjectStoreContract):
    writes_on_condition = True
    page_objects = 10

    @pytest.fixture
    def store(self, tmp_path: Path) -> WalObjectStore:
        return LocalObjectStore(tmp_path / "wal", node_id=1, clock=CLOCK, page_objects=self.page_objects)

    @pytest.fixture
    def back_door(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectBackDoor:
        return FolderBackDoor(tmp_path / "wal", monkeypatch)


class TestFolderByDefaultSettings(WalObjectStoreContract):
    writes_on_condition = True

    @pytest.fixture
    def store(self, tmp_path: Path) -> WalObjectStore:
        return make_store(context_in(tmp_path), FsspecSettings())

    @pytest.fixture
    def back_door(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectBackDoor:
        return FolderBackDoor(tmp_path / "log" / "wal-objects", monkeypatch)


class TestFolderThroughFsspec(WalObjectStoreContract):
    """What any file system gets that can rename: `local://` is another name of fsspec's for `file://`."""

    page_objects = 10

    @pytest.fixture
    def store(self, tmp_path: Path) -> WalObjectStore:
        return SyncFilesystemStore(
            f"local://{tmp_path}/wal", {}, node_id=1, clock=CLOCK, page_objects=self.page_objects
        )

    @pytest.fixture
    def back_door(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectBackDoor:
        return FolderBackDoor(tmp_path / "wal", monkeypatch)


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
    def store(self, url: str, tmp_path: Path) -> WalObjectStore:
        return make_store(context_in(tmp_path), FsspecSettings(url=url))

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

    @pytest.fixture
    def bucket(self, s3_client: Any) -> str:
        bucket = f"bucket-{uuid.uuid4().hex}"
        s3_client.create_bucket(Bucket=bucket)
        return bucket

    @pytest.fixture
    def back_door(self, s3_client: Any, bucket: str) -> ObjectBackDoor:
        return S3BackDoor(s3_client, bucket, "some/place/")

    @pytest.fixture
    def store(self, s3_endpoint: str, bucket: str, tmp_path: Path) -> WalObjectStore:
        settings = FsspecSettings(
            url=f"s3://{bucket}/some/place/",
            endpoint_url=s3_endpoint,
            region="us-east-1",
            key="test-key",
            secret="test-secret",
        )
        made = make_store(context_in(tmp_path), settings)
        assert isinstance(made, S3ObjectStore)
        return S3ObjectStore(replace(made.options, page_objects=self.page_objects))


class TestFake(WalObjectStoreContract):
    writes_on_condition = True
    page_objects = 10

    @pytest.fixture
    def store(self) -> WalObjectStore:
        return MemoryWalObjectStore(CLOCK, page_objects=self.page_objects)

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
