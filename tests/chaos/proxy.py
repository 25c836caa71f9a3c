"""Proxies in front of a server, which do to connections what networks and services do."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto

from diskless_core.protocol.messages import DisklessReadObjectRequest

_PIECE_BYTES = 64 << 10
_LOOPBACK = "127.0.0.1"
_API_KEY = slice(4, 6)
_READS_OBJECT = DisklessReadObjectRequest.API_KEY.to_bytes(2)
_UNAVAILABLE = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 89\r\n\r\n"
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>  "
)


class Kind(Enum):
    """What is done to a connection."""

    CUT = auto()
    """Connections are reset, and new ones too."""
    HANG = auto()
    """Nothing passes, and nobody is told."""
    SLOW = auto()
    """Every piece takes `delay_s` more, in either direction."""
    RESETS = auto()
    """Now and then a connection is reset, with whatever is under way."""
    ANSWERS_LOST = auto()
    """Requests arrive; the connection is reset when the answer comes."""
    UNAVAILABLE = auto()
    """Every HTTP request is answered 503, and does not arrive."""
    GARBLES_OBJECTS = auto()
    """In what a broker lends another one of objects, a bit is wrong now and then."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Attributes:
    source: whom it concerns, as the proxy's `identify` names them; None is everybody.
    """

    kind: Kind
    source: int | None = None
    delay_s: float = 0.0


class _Link:
    """One connection. Brokers ask each other for objects by connections that serve nothing else."""

    def __init__(self) -> None:
        self.lends_objects = False
        self._is_new = True

    def requested(self, data: bytes) -> None:
        if self._is_new:
            self._is_new = False
            self.lends_objects = data[_API_KEY] == _READS_OBJECT


class Proxy:
    """Passes connections on to `127.0.0.1:<target_port>`, but for what `begin` says. Runs in `Proxies`' thread.

    Args:
        identify: who has a local port of this host, by whatever number the run gives them; asked once a connection.
    """

    def __init__(self, target_port: int, identify: Callable[[int], int | None], source: random.Random) -> None:
        self.port = 0
        self._target_port = target_port
        self._identify = identify
        self._random = source
        self._troubles: list[Trouble] = []
        self._changed = asyncio.Event()
        self._open: set[tuple[int | None, asyncio.StreamWriter]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, _LOOPBACK, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def begin(self, trouble: Trouble) -> None:
        self._troubles.append(trouble)
        self._change()
        if trouble.kind in (Kind.CUT, Kind.UNAVAILABLE):
            for source, writer in list(self._open):
                if trouble.source in (None, source):
                    writer.transport.abort()

    async def end(self, trouble: Trouble) -> None:
        self._troubles.remove(trouble)
        self._change()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for _, writer in list(self._open):
            writer.transport.abort()

    def _change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _trouble(self, source: int | None) -> Trouble | None:
        return next((one for one in self._troubles if one.source in (None, source)), None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            source = await asyncio.to_thread(self._identify, writer.get_extra_info("peername")[1])
        except asyncio.CancelledError:
            writer.transport.abort()
            return  # the run is over, see below
        here = (source, writer)
        self._open.add(here)
        try:
            trouble = self._trouble(source)
            if trouble is not None and trouble.kind is Kind.CUT:
                return
            if trouble is not None and trouble.kind is Kind.UNAVAILABLE:
                await self._refuse_requests(reader, writer, source)
                return
            await self._pass_on(reader, writer, source)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # one side has gone
        except asyncio.CancelledError:
            pass  # the run is over; asyncio's streams of 3.11 would report a task that ends as cancelled
        finally:
            self._open.discard(here)
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: int | None) -> None:
        there_reader, there_writer = await asyncio.open_connection(_LOOPBACK, self._target_port)
        link = _Link()
        pumps = [
            asyncio.create_task(self._pump(reader, there_writer, source, link, is_answer=False)),
            asyncio.create_task(self._pump(there_reader, writer, source, link, is_answer=True)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            with suppress(OSError):
                await asyncio.gather(*pumps, return_exceptions=True)
            there_writer.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: int | None,
        link: _Link,
        *,
        is_answer: bool,
    ) -> None:
        while data := await reader.read(_PIECE_BYTES):
            if not is_answer:
                link.requested(data)
            if await self._is_lost(source, is_answer=is_answer):
                return
            if is_answer and link.lends_objects:
                data = self._garbled(data, source)
            writer.write(data)
            await writer.drain()

    def _garbled(self, data: bytes, source: int | None) -> bytes:
        trouble = self._trouble(source)
        if trouble is None or trouble.kind is not Kind.GARBLES_OBJECTS or self._random.random() < 0.5:
            return data
        wrong = bytearray(data)
        wrong[self._random.randrange(len(wrong))] ^= 1 << self._random.randrange(8)
        return bytes(wrong)

    async def _is_lost(self, source: int | None, *, is_answer: bool) -> bool:
        """Do what the trouble of this moment does to a piece of data; whether it ends the connection."""
        while (trouble := self._trouble(source)) is not None:
            match trouble.kind:
                case Kind.CUT | Kind.UNAVAILABLE:
                    return True
                case Kind.HANG:
                    await self._changed.wait()
                    continue
                case Kind.SLOW:
                    await asyncio.sleep(trouble.delay_s)
                case Kind.RESETS:
                    return self._random.random() < 0.05
                case Kind.ANSWERS_LOST:
                    return is_answer
            return False
        return False

    async def _refuse_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: int | None
    ) -> None:
        while (trouble := self._trouble(source)) is not None and trouble.kind is Kind.UNAVAILABLE:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if b"expect: 100-continue" not in head:
                _, found, rest = head.partition(b"content-length:")
                await reader.readexactly(int(rest.split(b"\r\n", 1)[0]) if found else 0)
            writer.write(_UNAVAILABLE)
            await writer.drain()


class Proxies:
    """All proxies of a run, on one event loop in a thread of their own; a context manager."""

    def __init__(self, identify: Callable[[int], int | None], source: random.Random) -> None:
        self._identify = identify
        self._random = source
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies")
        self._proxies: list[Proxy] = []

    def __enter__(self) -> Proxies:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def before(self, target_port: int) -> Proxy:
        """A new proxy in front of a port, already listening."""
        proxy = Proxy(target_port, self._identify, self._random)
        asyncio.run_coroutine_threadsafe(proxy.listen(), self._loop).result()
        self._proxies.append(proxy)
        return proxy

    def begin(self, proxy: Proxy, trouble: Trouble) -> None:
        asyncio.run_coroutine_threadsafe(proxy.begin(trouble), self._loop).result()

    def end(self, proxy: Proxy, trouble: Trouble) -> None:
        asyncio.run_coroutine_threadsafe(proxy.end(trouble), self._loop).result()

    async def _close(self) -> None:
        for proxy in self._proxies:
            await proxy.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
