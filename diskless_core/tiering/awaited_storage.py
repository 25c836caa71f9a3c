"""Starts a remote storage that cannot be reached when the broker starts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from diskless_core.plugin.forwarding import ForwardingRemoteStorage
from diskless_core.plugin.remote_storage import RemoteStorage, RemoteStorageError
from diskless_core.tiering.retrying import Retries

ANSWER_S = 5.0
"""How long a broker that starts waits for the storage's answer."""

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
        first = asyncio.create_task(self._storage.start(), name="first start of remote storage")
        try:
            await asyncio.wait([first], timeout=ANSWER_S)
            if first.done():
                first.result()
                return
            self._obstacle = "remote_storage: it does not answer"
        except asyncio.CancelledError:
            first.cancel()
            raise
        except RemoteStorageError as error:
            self._obstacle = f"remote_storage: {error}"
            if not error.retriable:
                raise RemoteStorageError(self._obstacle, retriable=False) from error
        _log.warning("segments can be neither read nor made yet", error=self._obstacle)
        self._starting = asyncio.create_task(self._start_later(first), name="start of remote storage")

    async def stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await self._storage.stop()

    async def _ask(self, step: Callable[[RemoteStorage], Awaitable[T]]) -> T:
        if self._obstacle is not None:
            raise RemoteStorageError(self._obstacle)
        return await step(self._storage)

    async def _start_later(self, first: asyncio.Task[None]) -> None:
        """Try until it works; the first attempt may still be under way."""
        attempt: Awaitable[None] | None = None if first.done() else first
        failures = 1
        while self._obstacle is not None:
            try:
                if attempt is None:
                    await asyncio.sleep(self._retries.pause_s(failures))
                    attempt = self._storage.start()
                await attempt
                self._obstacle = None
            except Exception as error:
                failures += 1
                attempt = None
                self._obstacle = f"remote_storage: {error}"
                _log.warning("remote storage still cannot be used", error=self._obstacle)
        _log.info("remote storage can be used")
