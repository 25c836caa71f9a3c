"""Object stores in a folder, with one fault each. They have no place of their own to offer: keys are all they know."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from pydantic import Field, SecretStr

from diskless_core.clock import SystemClock
from diskless_core.plugin.config import PluginSettings
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.hookspecs import hookimpl
from diskless_core.plugin.wal_object_store import (
    ObjectInfo,
    ObjectNotFoundError,
    WalObjectStore,
    WalObjectStoreError,
    WalObjectStorePlugin,
)


class FolderSettings(PluginSettings):
    """`wal_object_store.<name>.*`"""

    folder: str = Field(description="Where objects are.")
    password: SecretStr = Field(default=SecretStr("hunter2"), description="Of no use.")


class FolderStore(WalObjectStore):
    """It keeps all promises, as far as it can do so simply."""

    is_node_local = True
    is_process_local = False
    requests_are_billed = False

    def __init__(self, _context: PluginContext, settings: FolderSettings) -> None:
        self.root = Path(settings.folder)
        self.password = settings.password.get_secret_value()

    async def start(self) -> None:
        self.root.mkdir(exist_ok=True)

    async def stop(self) -> None:
        """Nothing to do."""

    async def put(self, key, data):
        await asyncio.to_thread(self._write, key, bytes(data))

    def _write(self, key, data):
        path = self.root / key.replace("/", "|")
        growing = path.with_name(f".{SystemClock().new_uuid().hex}")
        growing.write_bytes(data)
        growing.replace(path)

    async def get(self, key, start, end):
        try:
            return (await asyncio.to_thread((self.root / key.replace("/", "|")).read_bytes))[start:end]
        except FileNotFoundError:
            raise ObjectNotFoundError(key) from None

    async def list(self, prefix=""):
        for path in await asyncio.to_thread(lambda: list(self.root.iterdir())):
            key = path.name.replace("|", "/")
            if key.startswith(prefix) and not path.name.startswith("."):
                yield [ObjectInfo(key, path.stat().st_size, path.stat().st_mtime_ns // 1_000_000)]

    async def delete(self, keys):
        for key in keys:
            (self.root / key.replace("/", "|")).unlink(missing_ok=True)
        return keys


class LosesAPut(FolderStore):
    """Of the objects called `seen/…` every tenth is not stored."""

    async def put(self, key, data):
        if not key.endswith("seen/9"):
            await super().put(key, data)


class TellsItsPassword(FolderStore):
    async def get(self, key, start, end):
        if start == 5 and end == 2**40:
            raise WalObjectStoreError(f"refused for the password {self.password}")
        return await super().get(key, start, end)


class Hangs(FolderStore):
    """A read of nothing never ends."""

    async def get(self, key, start, end):
        if start == end:
            await asyncio.Event().wait()
        return await super().get(key, start, end)


class BlocksForEver(FolderStore):
    """The same, and the event loop with it."""

    async def get(self, key, start, end):
        if start == end:
            threading.Event().wait()
        return await super().get(key, start, end)


class CannotStart(FolderStore):
    async def start(self):
        raise WalObjectStoreError(f"{self.password} is no password: set another one")


class BlocksAtStart(FolderStore):
    async def start(self):
        threading.Event().wait()


class NeverDeletes(FolderStore):
    async def delete(self, keys):
        return keys


@hookimpl
def diskless_wal_object_stores() -> list[WalObjectStorePlugin]:
    stores = [FolderStore, LosesAPut, TellsItsPassword, Hangs, BlocksForEver, CannotStart, BlocksAtStart, NeverDeletes]
    return [
        WalObjectStorePlugin(
            name=store.__name__.lower(),
            factory=store,
            settings=FolderSettings,
            api_version="1.0",
            help="Keeps objects in a folder.",
        )
        for store in stores
    ]
