"""S3 as moto plays it, answering one request at a time. Run as a program it serves until its standard input ends.

moto looks whether a condition of a write holds and then writes: of two requests at once both could win.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from diskless_core.cli.cluster_demo.bucket import COUNTS_PATH


@contextmanager
def moto_s3(
    note: Callable[[dict[str, Any]], object] = lambda _: None, counts: Callable[[], object] | None = None
) -> Iterator[int]:
    """The port on loopback at which it listens.

    Args:
        note: is given the WSGI environment of each request.
        counts: what `COUNTS_PATH` answers.
    """
    moto = DomainDispatcherApplication(create_backend_app)
    turn = Lock()

    def one_at_a_time(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with turn:
            if counts is not None and environ["PATH_INFO"] == COUNTS_PATH:
                start_response("200 OK", [("Content-Type", "application/json")])
                return [json.dumps(counts()).encode()]
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


def main() -> None:
    """Serve, and write the port to standard output."""
    methods = Counter[str]()
    with moto_s3(lambda environ: methods.update([environ["REQUEST_METHOD"]]), lambda: dict(methods)) as port:
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
