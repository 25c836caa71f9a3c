"""A server between a store and Azurite that can refuse, lose answers, hang, and answer by itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto


class Fault(Enum):
    """What happens to a request instead of what should."""

    LOSE_ANSWER = auto()
    """It is passed on, and the connection is reset in the place of the answer."""

    RESET = auto()
    """It is not passed on, and the connection is reset."""

    HANG = auto()
    """It is not passed on, and never answered."""


@dataclass(frozen=True, slots=True)
class Request:
    """The first line of a request, and its headers as they came."""

    method: str
    target: str
    head: bytes


Rule = Callable[[Request], Fault | bytes | None]
"""What to do with a request: a fault, an answer of one's own, or None to pass it on."""


def answer(status: str, *headers: str, body: str = "") -> bytes:
    """An answer of one's own."""
    data = body.encode()
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(data)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + data


def refusal(status: str, code: str, *headers: str) -> bytes:
    """A refusal as the service writes it, with a text that quotes what it should not."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>It was signed 'sig=hush'.</Message></Error>"
    return answer(status, f"x-ms-error-code: {code}", "Content-Type: application/xml", *headers, body=body)


class FaultyServer:
    """Passes requests on to `127.0.0.1:<target_port>`, unless the rule says otherwise."""

    def __init__(self, target_port: int, account: str) -> None:
        self._target_port = target_port
        self._account = account
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.rule: Rule = lambda request: None
        self.requests: list[Request] = []
        self.hangs = asyncio.Event()

    @property
    def account_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self._account}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FaultyServer]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    @contextmanager
    def running_in_a_thread(self) -> Iterator[FaultyServer]:
        """As `running`, on an event loop of its own."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="faulty server")
        thread.start()
        server = self.running()
        try:
            asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
            yield self
            asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._one(reader, writer)
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, target, _ = first.split(" ")
        request = Request(method, target, head)
        self.requests.append(request)
        match self.rule(request):
            case None:
                writer.write(await self._passed_on(head, body))
            case Fault.LOSE_ANSWER:
                await self._passed_on(head, body)
                writer.transport.abort()
            case Fault.RESET:
                writer.transport.abort()
            case Fault.HANG:
                self.hangs.set()
                await reader.read()
            case bytes() as own:
                writer.write(own)
        with suppress(OSError):
            await writer.drain()

    async def _passed_on(self, head: bytes, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        try:
            writer.write(head[:-2] + b"Connection: close\r\n\r\n" + body)
            return await reader.read()
        finally:
            writer.close()
