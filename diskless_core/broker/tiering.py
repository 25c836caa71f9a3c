"""Makes the parts of tiered storage (KIP-405) from a broker's configuration, starts and stops them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeVar

import structlog

from diskless_core.clock import Clock
from diskless_core.config.load import LoadedConfig
from diskless_core.config.tiering import TieringConfig
from diskless_core.plugin.context import ContextFactory
from diskless_core.plugin.forwarding import ForwardingRemoteStorage
from diskless_core.plugin.hookspecs import REMOTE_LOG_METADATA, REMOTE_STORAGE
from diskless_core.plugin.manager import PluginManager
from diskless_core.plugin.remote_log_metadata import RemoteLogLedger, RemoteLogMetadata, RemoteLogMetadataServices
from diskless_core.plugin.remote_storage import RemoteStorage, RemoteStorageError
from diskless_core.tiering.retrying import Retries

T = TypeVar("T")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringServices:
    """What the parts of tiered storage share. The metadata is started, and so is the storage, or it will be."""

    remote_storage: RemoteStorage
    metadata: RemoteLogMetadata
    settings: TieringConfig


async def start_backends(
    loaded: LoadedConfig,
    plugins: PluginManager,
    context: ContextFactory,
    *,
    cluster_id: str,
    ledger: RemoteLogLedger,
    clock: Clock,
    stack: AsyncExitStack,
) -> TieringServices:
    """Make and start the chosen backends; `stack` stops them.

    Raises:
        RemoteStorageError, RemoteLogMetadataError, PluginFactoryError: one of them cannot start.
    """
    chosen = plugins.create(REMOTE_STORAGE, loaded.plugins, context)
    remote_storage = AwaitedRemoteStorage(chosen, Retries(loaded.broker, clock))
    stack.push_async_callback(remote_storage.stop)
    await remote_storage.start()
    metadata = plugins.create(REMOTE_LOG_METADATA, loaded.plugins, context)
    await metadata.start(RemoteLogMetadataServices(cluster_id=cluster_id, ledger=ledger))
    stack.push_async_callback(metadata.stop)
    return TieringServices(remote_storage=remote_storage, metadata=metadata, settings=loaded.broker)


class AwaitedRemoteStorage(ForwardingRemoteStorage):
    """A storage that cannot be reached when the broker starts is started as soon as it can; until then, calls fail."""

    def __init__(self, storage: RemoteStorage, retries: Retries) -> None:
        super().__init__(storage)
        self._retries = retries
        self._obstacle: str | None = None
        self._starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the storage, or go on trying in the background where that can succeed later.

        Raises:
            RemoteStorageError: it cannot, whatever happens.
        """
        try:
            await self._storage.start()
        except RemoteStorageError as error:
            self._obstacle = f"remote_storage: {error}"
            if not error.retriable:
                raise RemoteStorageError(self._obstacle, retriable=False) from error
            _log.warning("segments can be neither read nor made yet", error=self._obstacle)
            self._starting = asyncio.create_task(self._start_later(), name="start of remote storage")

    async def stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await self._storage.stop()

    async def _ask(self, step: Callable[[RemoteStorage], Awaitable[T]]) -> T:
        if self._obstacle is not None:
            raise RemoteStorageError(self._obstacle)
        return await step(self._storage)

    async def _start_later(self) -> None:
        failures = 1
        while self._obstacle is not None:
            await asyncio.sleep(self._retries.pause_s(failures))
            try:
                await self._storage.start()
                self._obstacle = None
            except Exception as error:
                failures += 1
                self._obstacle = f"remote_storage: {error}"
                _log.warning("remote storage still cannot be used", error=self._obstacle)
        _log.info("remote storage can be used")
