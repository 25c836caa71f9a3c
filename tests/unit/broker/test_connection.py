"""What becomes of a connection whose requests come to no answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from diskless_core.broker.connection import Answer, Connection, Server
from diskless_core.broker.frames import Frame
from diskless_core.metrics import Metrics
from diskless_core.pages import PagePool


class GivesUp:
    """Every request ends with the wait that it shares with others, as when the broker stops."""

    def dispatch(self, frame: Frame, connection: Connection) -> Any:
        async def answer() -> Answer:
            raise asyncio.CancelledError

        return answer()


def test_a_request_that_is_given_up_ends_its_connection_instead_of_holding_up_what_follows() -> None:
    async def main() -> None:
        memory: Any = SimpleNamespace(end=lambda _: None)
        limit: Any = SimpleNamespace(refuses=lambda *_, **__: False)
        server = Server(
            GivesUp(),
            PagePool(0),
            memory,
            max_frame_bytes=100,
            limit=limit,
            wait_for_room=lambda _: False,
            metrics=Metrics(),
        )
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(lambda: Connection(server, "PLAINTEXT"), "127.0.0.1", 0)
        host, port = listening.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"\0\0\0\1?")
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
        listening.close()

    asyncio.run(main())
