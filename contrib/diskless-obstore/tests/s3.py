"""S3 as moto plays it, one request at a time, with refusals that a test orders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server


class Request(NamedTuple):
    """A request: its method, its path with the query, and its body."""

    method: str
    target: str
    body: bytes


class Answer(NamedTuple):
    """An answer of one's own: a status such as `503 Busy`, and XML. With `late`, moto does the work before."""

    status: str
    body: str
    late: bool = False


Rule = Callable[[Request], Answer | Event | None]
"""What to do with a request: answer it, hold it back until the event is set, or None to pass it on."""


def refusal(status: str, code: str, *, late: bool = False) -> Answer:
    return Answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>hush</Message></Error>", late)


class Gate:
    """Stands before moto, which looks whether a condition of a write holds and then writes: hence one at a time."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._turn = Lock()
        self.rule: Rule = lambda _: None
        self.requests: list[Request] = []
        self.held = Event()
        self.port = 0

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = BytesIO(body)
        query = environ.get("QUERY_STRING", "")
        request = Request(environ["REQUEST_METHOD"], f"{environ['PATH_INFO']}?{query}", body)
        self.requests.append(request)
        what = self.rule(request)
        if isinstance(what, Event):
            self.held.set()
            what.wait()
        if isinstance(what, Answer):
            if what.late:
                with self._turn:
                    list(self._moto(environ, lambda *_: lambda _: None))
            start_response(what.status, [("Content-Type", "application/xml")])
            return [what.body.encode()]
        with self._turn:
            return list(self._moto(environ, start_response))


@contextmanager
def gated_s3() -> Iterator[Gate]:
    gate = Gate()
    server = make_server("127.0.0.1", 0, gate, threaded=True, request_handler=MotoRequestHandler)
    gate.port = server.port
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield gate
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
