"""What the demo's brokers share: a folder, or a bucket of an S3 server that runs for the demo alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path

SERVER = "diskless_core.cli.cluster_demo.s3_server"
COUNTS_PATH = "/diskless-demo-requests"
"""At which that server tells how many requests it had."""

NOUNS = ("wal_object_store", "remote_storage")

_BUCKET = "diskless-demo"
_ASK_S = 30.0
_NEEDED = ("s3fs", "moto", "flask")


class BucketError(Exception):
    """There is no bucket; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Where all objects are.

    Attributes:
        place: for people.
        properties: what a broker is told.
        requests: how many there have been by HTTP method, where somebody counts.
    """

    place: str
    properties: Mapping[str, str]
    requests: Callable[[], Mapping[str, int]]


def in_folder(folder: Path) -> Bucket:
    """Below a folder."""
    urls = {f"{noun}.fsspec.url": (folder / noun).as_uri() for noun in NOUNS}
    return Bucket(place=str(folder), properties=urls, requests=dict)


@contextmanager
def in_s3(log: Path) -> Iterator[Bucket]:
    """In an S3 server, which ends with the context, and with this process.

    Args:
        log: where it writes what it has to say.

    Raises:
        BucketError: it does not start, or is not installed.
    """
    if any(find_spec(module) is None for module in _NEEDED):
        raise BucketError("--s3 needs an S3 server and a client of it: pip install 'diskless[demo-s3]'")
    with (
        log.open("wb") as errors,
        subprocess.Popen(  # noqa: S603 - our own command line
            [sys.executable, "-m", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        ) as server,
    ):
        try:
            port = _port(server, log)
            _ask(port, "PUT", f"/{_BUCKET}")
            yield Bucket(
                place=f"http://127.0.0.1:{port}/{_BUCKET}",
                properties=dict(_properties(port)),
                requests=lambda: json.loads(_ask(port, "GET", COUNTS_PATH)),
            )
        finally:
            server.kill()


def _port(server: subprocess.Popen[bytes], log: Path) -> int:
    assert server.stdout is not None  # noqa: S101 - a pipe was asked for
    line = server.stdout.readline()
    if not line:
        raise BucketError("the S3 server does not start:\n" + log.read_text(encoding="utf-8", errors="replace"))
    return int(line)


def _properties(port: int) -> Iterator[tuple[str, str]]:
    for noun in NOUNS:
        yield f"{noun}.fsspec.url", f"s3://{_BUCKET}/{noun}"
        yield f"{noun}.fsspec.endpoint.url", f"http://127.0.0.1:{port}"
        yield f"{noun}.fsspec.region", "us-east-1"
        yield f"{noun}.fsspec.key", "demo"
        yield f"{noun}.fsspec.secret", "demo"


def _ask(port: int, method: str, path: str) -> bytes:
    connection = HTTPConnection("127.0.0.1", port, timeout=_ASK_S)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status >= 300:
            raise BucketError(f"the S3 server answers {answer.status} to {method} {path}: {body[:200]!r}")
        return body
    finally:
        connection.close()
