"""A chaos run's proxy does to connections what it says."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.chaos.proxy import Kind, Proxies, Proxy, Trouble

_TIMEOUT_S = 60


class _Echo:
    """Answers every piece with the same bytes, and counts what arrived."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.arrived = b""
        self.came = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1000):
                    self.arrived += data
                    self.came.set()
                    connection.sendall(data)
            except OSError:
                pass

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def echo() -> Iterator[_Echo]:
    with closing(_Echo()) as server:
        yield server


@pytest.fixture
def proxies() -> Iterator[Proxies]:
    with Proxies(lambda _: 1, random.Random(1)) as running:
        yield running


@pytest.fixture
def proxy(proxies: Proxies, echo: _Echo) -> Proxy:
    return proxies.before(echo.port)


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), _TIMEOUT_S)


def is_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(100) == b""
    except ConnectionError:
        return True


def test_without_trouble_bytes_go_both_ways(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        connection.sendall(b"hello")
        assert connection.recv(100) == b"hello"


def test_a_cut_ends_connections_and_new_ones_until_it_is_over(proxies: Proxies, proxy: Proxy) -> None:
    cut = Trouble(Kind.CUT)
    with connect(proxy) as before:
        before.sendall(b"a")
        assert before.recv(100) == b"a"
        proxies.begin(proxy, cut)
        assert is_ended(before)
    with connect(proxy) as during:
        assert is_ended(during)
    proxies.end(proxy, cut)
    with connect(proxy) as after:
        after.sendall(b"b")
        assert after.recv(100) == b"b"


def test_what_hangs_arrives_when_it_is_over(proxies: Proxies, proxy: Proxy) -> None:
    hang = Trouble(Kind.HANG)
    with connect(proxy) as connection:
        proxies.begin(proxy, hang)
        connection.sendall(b"late")
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        proxies.end(proxy, hang)
        connection.settimeout(_TIMEOUT_S)
        assert connection.recv(100) == b"late"


def test_a_lost_answer_ends_the_connection_behind_a_request_that_arrived(
    proxies: Proxies, proxy: Proxy, echo: _Echo
) -> None:
    with connect(proxy) as connection:
        proxies.begin(proxy, Trouble(Kind.ANSWERS_LOST))
        connection.sendall(b"put")
        assert is_ended(connection)
    assert echo.came.wait(_TIMEOUT_S)
    assert echo.arrived == b"put"


def test_an_unavailable_service_answers_503_to_whole_requests_that_do_not_arrive(
    proxies: Proxies, proxy: Proxy, echo: _Echo
) -> None:
    proxies.begin(proxy, Trouble(Kind.UNAVAILABLE))
    with connect(proxy) as connection:
        for _ in range(2):
            connection.sendall(b"PUT /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
            answer = b""
            while not answer.endswith(b"</Error>  "):
                answer += connection.recv(1000)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"Content-Length: %d\r\n" % len(answer.partition(b"\r\n\r\n")[2]) in answer
    assert echo.arrived == b""


def test_trouble_concerns_only_whom_it_names(proxies: Proxies, proxy: Proxy) -> None:
    proxies.begin(proxy, Trouble(Kind.CUT, source=2))
    with connect(proxy) as connection:
        connection.sendall(b"mine")
        assert connection.recv(100) == b"mine"
    proxies.begin(proxy, Trouble(Kind.CUT, source=1))
    with connect(proxy) as connection:
        assert is_ended(connection)


@pytest.mark.parametrize(("api_key", "is_garbled"), [(104, True), (3, False)])
def test_what_is_lent_of_objects_is_garbled_and_nothing_else(
    proxies: Proxies, proxy: Proxy, api_key: int, *, is_garbled: bool
) -> None:
    proxies.begin(proxy, Trouble(Kind.GARBLES_OBJECTS))
    request = b"\0\0\0\x60" + api_key.to_bytes(2) + bytes(94)
    wrong_bits = 0
    with closing(connect(proxy)) as client:
        for _ in range(20):
            client.sendall(request)
            answer = _receive(client, len(request))
            wrong_bits += sum((ours ^ theirs).bit_count() for ours, theirs in zip(request, answer, strict=True))
    assert (wrong_bits > 0) is is_garbled


def _receive(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = client.recv(size - len(data))
        assert piece, "the connection is closed"
        data += piece
    return data
