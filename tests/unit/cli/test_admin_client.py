"""How commands find and ask a running broker."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from diskless_core.cli import admin_client
from diskless_core.cli.admin_client import AdminClientError, ask, url_of
from diskless_core.config.listeners import Listener


@contextmanager
def answering(status, body):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_answer_that_takes_too_long_is_not_said_to_be_of_no_broker(monkeypatch):
    monkeypatch.setattr(admin_client, "TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(AdminClientError, match="may be at work still"):
            ask("POST", url, "/orphans/scan")


@pytest.mark.parametrize(
    ("listener", "url"),
    [
        (Listener("http", "10.0.0.1", 9644), "http://10.0.0.1:9644"),
        (Listener("http", "0.0.0.0", 9644), "http://127.0.0.1:9644"),
        (Listener("http", "::1", 9644), "http://[::1]:9644"),
    ],
)
def test_the_broker_is_asked_where_it_listens(listener, url):
    assert url_of(listener) == url


@pytest.mark.parametrize("listener", [None, Listener("http", "127.0.0.1", 0)])
def test_without_a_known_port_the_address_has_to_be_given(listener):
    with pytest.raises(AdminClientError, match="give it with --url"):
        url_of(listener)


def test_an_answer_is_returned_as_it_is():
    with answering(200, b'[{"a": 1}]') as url:
        assert ask("GET", url, "/x") == [{"a": 1}]


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (503, b'{"error_code": 503, "message": "the disk is full"}', "answered 503 to GET /x: the disk is full"),
        (500, b"Internal Server Error", "answered 500 to GET /x: see the log of the broker"),
        (200, b"<html>", "is no broker"),
    ],
)
def test_what_went_wrong_is_told(status, body, message):
    with answering(status, body) as url, pytest.raises(AdminClientError, match=message):
        ask("GET", url, "/x")


def test_nobody_there_is_told():
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]

    with pytest.raises(AdminClientError, match="no broker answers"):
        ask("GET", f"http://127.0.0.1:{port}", "/x")


@pytest.mark.parametrize("url", ["localhost:9644", "ftp://x:1", "http://", "http://a:1,http://b:2"])
def test_an_address_of_another_form_is_refused(url):
    with pytest.raises(AdminClientError, match="is not of the form"):
        ask("GET", url, "/x")
