"""The HTTP server on `admin.listener`, in the broker's own event loop.

FastAPI and uvicorn are imported in a thread when the first request arrives, or soon after the start: neither the start
nor the first records wait for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
from typing import Any

import structlog

from diskless_core.admin.sources import Sources
from diskless_core.config.listeners import Listener

_log = structlog.get_logger(__name__)

_BACKLOG = 128
_GRACE_S = 1

_IMPORT_DELAY_S = 2
"""So long after the start, the server is imported though nobody has asked, so that no later load is disturbed by it."""


class AdminServer:
    """Serves health, metrics, plugins and coordinators until stopped.

    Args:
        listener: address to listen on; port 0 takes any free one.
        sources: what is answered.
    """

    def __init__(self, listener: Listener, sources: Sources) -> None:
        self._listener = listener
        self._sources = sources
        self._socket: socket.socket | None = None
        self._server: Any = None
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port that was bound."""
        if self._socket is None:
            raise RuntimeError("the admin server has not been bound")
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Where the server can be asked, as `http://host:port`."""
        return str(Listener(self._listener.name, self._listener.host, self.port))

    def bind(self) -> None:
        """Take the address. Requests that come in before `start` wait for it.

        Raises:
            OSError: the address can't be bound.
        """
        family = socket.AF_INET6 if ":" in self._listener.host else socket.AF_INET
        address = (self._listener.host, self._listener.port)
        self._socket = socket.create_server(address, family=family, backlog=_BACKLOG)
        self._socket.setblocking(False)

    def start(self) -> None:
        """Begin to serve at the address that was bound. Requests that come in before the server is imported wait.

        Again, it does nothing.
        """
        if self._socket is None:
            raise RuntimeError("the admin server has not been bound")
        if self._task is None:
            self._task = asyncio.create_task(self._serve(self._socket), name="admin server")

    async def stop(self) -> None:
        """Stop serving and release the port; requests under way get a second. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            if self._server is None:
                task.cancel()
            else:
                self._server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._socket is not None:
            self._socket.close()

    async def _serve(self, bound: socket.socket) -> None:
        try:
            await _readable(bound, _IMPORT_DELAY_S)
            app_module = await asyncio.to_thread(importlib.import_module, "diskless_core.admin.app")
            app = app_module.build_app(self._sources)
            self._server = app_module.build_server(app, grace_s=_GRACE_S)
            await self._server.serve(sockets=[bound])
        except Exception:
            _log.exception("the admin server failed; the broker goes on without it")
            bound.close()


async def _readable(bound: socket.socket, timeout_s: float) -> None:
    """Wait until somebody connects, or until the time is over."""
    loop = asyncio.get_running_loop()
    connected = asyncio.Event()
    loop.add_reader(bound, connected.set)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await connected.wait()
    finally:
        loop.remove_reader(bound)
