"""A leader that does not answer where its local log begins."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from diskless_core.cli import log_positions
from diskless_core.cli.log_positions import EARLIEST_LOCAL, PositionError
from diskless_core.cli.raw_request import Address

TIMEOUT_S = 60


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "the connection was closed"),
        (struct.pack(">i", -1), "an answer of -1 bytes"),
        (struct.pack(">ii", 100, 1), "the connection was closed"),
    ],
)
def test_an_answer_that_is_none_is_an_error_that_names_the_leader(answer: bytes, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        address = Address(*server.getsockname())
        with pytest.raises(PositionError, match=f"127.0.0.1:{address.port} gives no answer: {said}"):
            log_positions.offsets("topic", {0: address}, EARLIEST_LOCAL, TIMEOUT_S)
        thread.join()


def test_a_leader_that_is_away_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(*server.getsockname())
    with pytest.raises(PositionError, match=f"127.0.0.1:{address.port} gives no answer: .*refused"):
        log_positions.offsets("topic", {0: address}, EARLIEST_LOCAL, TIMEOUT_S)
