"""Segments on file systems that fsspec reaches with its blocking API: nothing is left of a copy that failed."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
import pytest

from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import RemoteStorage, RemoteStorageError
from diskless_core.testing.remote_storage_tools import BrokenLogError, assert_stored, copied, make_segment
from diskless_fsspec.config import FsspecRemoteStorageSettings
from diskless_fsspec.factory import make_remote_storage
from tests.support.open_files import open_below

SIZE = 20 << 20


@pytest.fixture(params=["memory", "local"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An object store, as fsspec sees it, and a file system that can rename."""
    url = f"{request.param}://{tmp_path / uuid.uuid4().hex}"
    yield url
    filesystem = fsspec.filesystem(request.param)
    if filesystem.exists(url):
        filesystem.rm(url, recursive=True)


@pytest.fixture
async def storage(url: str, tmp_path: Path) -> AsyncIterator[RemoteStorage]:
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    storage = make_remote_storage(context, FsspecRemoteStorageSettings(url=url))
    await storage.start()
    yield storage
    await storage.stop()


def files(url: str) -> set[str]:
    """The names of all files, without their folders."""
    filesystem, root = fsspec.core.url_to_fs(url)
    return {Path(path).name for path in filesystem.find(root)}


async def test_a_copy_that_breaks_off_leaves_no_file_and_keeps_none_open(storage: RemoteStorage, url: str) -> None:
    segment = make_segment(SIZE)
    with pytest.raises(BrokenLogError):
        await storage.copy(segment.metadata, segment.broken_data(SIZE))
    assert files(url) == set()
    assert open_below(urlsplit(url).path) == []


async def test_a_part_that_cannot_be_written_ends_the_copy_retriably(
    storage: RemoteStorage, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem_class = type(fsspec.core.url_to_fs(url)[0])
    opened = filesystem_class._open

    def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
        file = opened(self, *args, **kwargs)
        if kwargs.get("mode", args[1] if len(args) > 1 else "") == "wb":
            monkeypatch.setattr(file, "write", refuse, raising=False)
        return file

    def refuse(data: bytes) -> int:
        raise ConnectionResetError("gone")

    segment = make_segment(SIZE)
    with monkeypatch.context() as patched:
        patched.setattr(filesystem_class, "_open", broken)
        with pytest.raises(RemoteStorageError, match="gone") as caught:
            await copied(storage, segment)
    assert caught.value.retriable
    assert files(url) == set()
    await assert_stored(storage, await copied(storage, segment))


async def test_no_folder_of_a_copy_stays(storage: RemoteStorage, url: str) -> None:
    await copied(storage, make_segment(SIZE))
    filesystem, root = fsspec.core.url_to_fs(url)
    folders = {path.removeprefix(root) for path in filesystem.find(root, withdirs=True) if not filesystem.isfile(path)}
    assert not [folder for folder in folders if folder.startswith("/.incoming/")]
    assert len(files(url)) == 5


@pytest.mark.parametrize("url", ["local"], indirect=True)
async def test_what_a_killed_copy_left_goes_when_another_one_is_complete(storage: RemoteStorage, url: str) -> None:
    segment = await copied(storage, make_segment())
    filesystem, root = fsspec.core.url_to_fs(url)
    log = next(path for path in filesystem.find(root) if path.endswith(".log"))
    folder = f"{root}/.incoming/{Path(log).name.removesuffix('.log')}"
    filesystem.makedirs(folder, exist_ok=True)
    filesystem.pipe_file(f"{folder}/half", b"half a log")
    await storage.discard_unfinished(segment.metadata)
    assert not filesystem.exists(folder)
    await assert_stored(storage, segment)
