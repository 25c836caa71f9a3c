"""A folder for `file://`: its threads, its files, and what makes a change to it durable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TypeVar

from diskless_core.plugin.folders import sync_folder
from diskless_core.plugin.wal_object_store import ObjectData, ObjectNotFoundError, WalObjectStoreError
from diskless_fsspec.direct_io import DurableFiles
from diskless_fsspec.errors import translated
from diskless_fsspec.keys import require_key
from diskless_fsspec.threads import Threads

T = TypeVar("T")

END_S = 2.0
"""How long `stop` waits for what is under way, which nobody waits for any more."""

logger = logging.getLogger(__name__)


class LocalFolder:
    """Files below `root`. Reads have threads of their own, so that none waits for an fsync."""

    def __init__(self, root: Path, *, threads: int, thread_name: str) -> None:
        self.root = root
        self.files = DurableFiles()
        self._lock = RLock()
        self._durable_folders: set[Path] = set()
        self._readers = Threads(threads, f"{thread_name}-read")
        self._writers = Threads(threads, f"{thread_name}-write")

    async def stop(self) -> None:
        """End the threads. They finish what they do unless the folder hangs: then they are left behind."""
        ended = await asyncio.gather(self._writers.stop(END_S), self._readers.stop(END_S))
        if not all(ended):
            logger.warning("%s does not answer: what is being read or written there is given up", self.root)

    async def when_writing(self, doing: str, work: Callable[[], T]) -> T:
        """Run work that changes files on a thread, and translate its errors."""
        return await self._run(self._writers, doing, work)

    async def when_reading(self, doing: str, work: Callable[[], T]) -> T:
        """Run work that only reads on a thread, and translate its errors."""
        return await self._run(self._readers, doing, work)

    async def read(self, key: str, start: int, end: int) -> ObjectData:
        """A range of a file.

        Raises:
            ObjectNotFoundError: there is no such file.
        """
        return await self.when_reading_file(key, partial(self.files.read, self.root / require_key(key), start, end))

    async def when_reading_file(self, key: str, work: Callable[[], T]) -> T:
        """As `when_reading`, for work that reads one file.

        Raises:
            ObjectNotFoundError: there is no such file.
            WalObjectStoreError: it cannot be read; so it is where a file has taken the place of the root.
        """
        doing = f"cannot read {key!r}"
        try:
            return await self.when_reading(doing, work)
        except WalObjectStoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise ObjectNotFoundError(key) from None
            if not isinstance(error.__cause__, NotADirectoryError):
                raise
        if await self.when_reading(doing, self.root.is_dir):
            raise ObjectNotFoundError(key)
        raise WalObjectStoreError(f"{doing}: {self.root} is no folder")

    def make(self, folder: Path) -> None:
        """Create a folder and those above it, each durable in its parent. Blocks.

        One that exists may be so new that another thread, or a process that was killed, has not synced it.
        """
        with self._lock:
            if folder in self._durable_folders:
                return
            if folder != self.root:
                self.make(folder.parent)
            else:
                folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)
            self._durable_folders.add(folder)

    @contextmanager
    def made(self, *folders: Path, doing: str) -> Iterator[None]:
        """Make folders for what is done there. Blocks.

        Raises:
            WalObjectStoreError: somebody removes them meanwhile. The next time they are made anew.
        """
        try:
            for folder in folders:
                self.make(folder)
            yield
        except FileNotFoundError as error:
            with self._lock:
                self._durable_folders.clear()
            raise WalObjectStoreError(f"{doing}: its folder was removed meanwhile") from error

    async def _run(self, pool: Threads, doing: str, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        except OSError as error:
            raise translated(error, doing) from error
        except RuntimeError as error:
            raise WalObjectStoreError(f"{doing}: the store is stopped") from error


def delete_files(paths: Iterable[Path]) -> list[Path]:
    """Remove files, and return those that are surely gone; an absent one is. Blocks.

    Those whose folder can't be synced may come back after a power loss, and count as not deleted.
    """
    gone: list[Path] = []
    by_folder: dict[Path, list[Path]] = {}
    for path in paths:
        by_folder.setdefault(path.parent, []).append(path)
    for folder, inside in by_folder.items():
        removed = [path for path in inside if _unlinked(path)]
        try:
            sync_folder(folder)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            logger.warning("cannot sync %s: %s", folder, error)
            continue
        gone += removed
    return gone


def _unlinked(path: Path) -> bool:
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        logger.warning("cannot delete %s: %s", path, error)
        return False
    return True
