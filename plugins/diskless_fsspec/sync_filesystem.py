"""Any file system that fsspec knows, through its blocking API on threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import fsspec

from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStoreError
from diskless_fsspec.errors import translated
from diskless_fsspec.keys import require_key
from diskless_fsspec.threads import Threads

T = TypeVar("T")

END_S = 2.0
"""How long `stop` waits for what is under way, which nobody waits for any more."""

logger = logging.getLogger(__name__)


class SyncFilesystem:
    """What lies below the path of `url`. All but the coroutines block."""

    def __init__(self, url: str, options: Mapping[str, Any], *, threads: int, thread_name: str) -> None:
        self.url = url
        self.root = ""
        self._options = options
        self._pool = Threads(threads, thread_name)
        self._connection: fsspec.AbstractFileSystem | None = None

    async def stop(self) -> None:
        """End the threads. They finish what they do unless the place hangs: then they are left behind."""
        if not await self._pool.stop(END_S):
            logger.warning("%s does not answer: what is being read or written there is given up", self.url)

    async def run(self, doing: str, work: Callable[[], T]) -> T:
        """Run work on a thread, and translate its errors."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except WalObjectStoreError:
            raise
        except Exception as error:
            raise translated(error, doing) from error

    async def read(self, key: str, start: int, end: int) -> bytes:
        """A range of a file.

        Raises:
            ObjectNotFoundError: there is no such file.
        """
        try:
            return await self.run(f"cannot read {key!r}", partial(self._read, require_key(key), start, end))
        except WalObjectStoreError as error:
            if isinstance(error.__cause__, (FileNotFoundError, IsADirectoryError)):
                raise ObjectNotFoundError(key) from None
            raise

    def connect(self) -> None:
        """Make the file system, and the root in it."""
        options = {"skip_instance_cache": True, "use_listings_cache": False, **self._options}
        self._connection, root = fsspec.core.url_to_fs(self.url, **options)
        self.root = root.rstrip("/")
        self._connection.makedirs(self.root or "/", exist_ok=True)

    @property
    def filesystem(self) -> fsspec.AbstractFileSystem:
        if self._connection is None:
            raise WalObjectStoreError("the store is not started")
        return self._connection

    @property
    def renames(self) -> bool:
        """Whether it can rename; one that can't is taken for an object store."""
        return type(self.filesystem).mv is not fsspec.AbstractFileSystem.mv

    def path(self, key: str) -> str:
        """Where an object is."""
        return f"{self.root}/{key}"

    def write(self, key: str, growing: str, data: bytes) -> None:
        """Write an object, under the name `growing` first where the file system can rename."""
        if not self.renames:
            self.filesystem.pipe_file(self.path(key), data)
            return
        self.filesystem.pipe_file(self.path(growing), data)
        self.rename(growing, key)

    def rename(self, key: str, target: str) -> None:
        """Give an object another name."""
        path = self.path(target)
        self.filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        self.filesystem.mv(self.path(key), path)

    def found(self, path: str) -> dict[str, dict[str, Any]]:
        """All files at and below a path, with fsspec's description of each. What vanishes meanwhile is left out.

        Not by fsspec's own `find`: to it, a folder that cannot be read is an empty one.
        """
        files: dict[str, dict[str, Any]] = {}
        pending = [path]
        while pending:
            folder = pending.pop()
            try:
                entries = self.filesystem.ls(folder, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in entries:
                name = entry["name"].rstrip("/")
                if entry["type"] != "directory":
                    files[name] = entry
                elif name != folder.rstrip("/"):
                    pending.append(name)
        return files

    def deleted(self, key: str) -> bool:
        """Delete an object, and tell whether it is surely gone; an absent one is."""
        try:
            self.filesystem.rm_file(self.path(key))
        except FileNotFoundError:
            return True
        except Exception as error:
            logger.warning("cannot delete %s: %s", key, error)
            return False
        return True

    def _read(self, key: str, start: int, end: int) -> bytes:
        path, filesystem = self.path(key), self.filesystem
        if start >= end or self.renames:
            # What has files may try to make room for all that is asked for.
            info = filesystem.info(path)
            if info["type"] != "file":
                raise FileNotFoundError(path)
            end = min(end, info["size"])
        if start >= end:
            return b""
        data: bytes = filesystem.cat_file(path, start=start, end=end)
        return data
