"""Starts a remote storage that cannot be reached when the broker starts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from diskless_core.plugin.forwarding import ForwardingRemoteStorage
from diskless_core.plugin.remote_storage import RemoteStorage, RemoteStorageError
from diskless_core.tiering.retrying import Retries

T = TypeVar("T")

_log = structlog.get_logger(__name__)


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
