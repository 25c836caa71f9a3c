"""S3 as moto plays it, answering one request at a time.

moto looks whether a condition of a write holds and then writes: of two requests at once both could win.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server


@contextmanager
def moto_s3(note: Callable[[dict[str, Any]], object] = lambda _: None) -> Iterator[int]:
    """The port on loopback at which it listens. `note` is given the WSGI environment of each request."""
    moto = DomainDispatcherApplication(create_backend_app)
    turn = Lock()

    def one_at_a_time(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with turn:
            note(environ)
            return list(moto(environ, start_response))

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True, request_handler=MotoRequestHandler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
