"""An address in front of a server, which can be taken away, or hang."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

_PIECE_BYTES = 64 << 10


def _never(_: bytes) -> bool:
    return False


class Relay:
    """Passes bytes on between its clients and `127.0.0.1:<target_port>`, on a thread of its own, as a context manager.

    At first connections are refused: `pass_on` begins. The port stays the same.

    Args:
        answer_delay_s: how much later than it was sent each byte of the server reaches the client.
    """

    def __init__(self, target_port: int, *, answer_delay_s: float = 0.0) -> None:
        self._target_port = target_port
        self._answer_delay_s = answer_delay_s
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay")
        self._server: asyncio.Server | None = None
        self._passing = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._held = threading.Event()
        self._lost_from: Callable[[bytes], bool] = _never
        self._answers_are_lost = False

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def pass_on(self) -> None:
        """Be there, and pass everything on, what was held back too."""
        self._lost_from = _never
        self._answers_are_lost = False
        asyncio.run_coroutine_threadsafe(self._pass_on(), self._loop).result()

    def hang(self) -> None:
        """Accept connections and data, and let no byte through."""
        self._held.clear()
        asyncio.run_coroutine_threadsafe(self._hang(), self._loop).result()

    def wait_until_held(self, timeout_s: float = 60) -> None:
        """Return when somebody has sent something that hangs.

        Raises:
            AssertionError: nobody did, in this time.
        """
        assert self._held.wait(timeout_s), "nothing came that could hang"

    def lose_answers_from(self, is_it: Callable[[bytes], bool]) -> None:
        """From the first piece of a client's data on for which this is true, lose all answers until `pass_on`."""
        self._lost_from = is_it

    def drop(self) -> None:
        """Reset all connections. What is held back is lost; new ones are accepted."""
        asyncio.run_coroutine_threadsafe(self._drop(), self._loop).result()

    async def _drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _pass_on(self) -> None:
        await self._listen()
        self._passing.set()

    async def _hang(self) -> None:
        await self._listen()
        self._passing.clear()

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, sock=self._socket)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(
                self._pump(reader, there_writer, 0.0),
                self._pump(there_reader, writer, self._answer_delay_s, are_answers=True),
            )

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float, *, are_answers: bool = False
    ) -> None:
        self._writers.add(writer)
        late: deque[bytes] = deque()

        def write_oldest() -> None:
            writer.write(late.popleft())

        try:
            while data := await reader.read(_PIECE_BYTES):
                if not self._passing.is_set():
                    self._held.set()
                await self._passing.wait()
                if are_answers and self._answers_are_lost:
                    continue
                if not are_answers and self._lost_from(data):
                    self._answers_are_lost = True
                late.append(data)
                if delay_s:
                    self._loop.call_later(delay_s, write_oldest)
                else:
                    write_oldest()
                await writer.drain()
            await asyncio.sleep(delay_s)  # what is late still goes out before the connection is closed
        except OSError:
            pass  # one side has gone
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        self._socket.close()
        for writer in list(self._writers):
            writer.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
