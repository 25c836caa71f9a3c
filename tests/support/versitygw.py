"""A real S3 server over a folder: versitygw, built once by the Go module proxy."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tests.support.apache_kafka import GUARD, free_ports
from tests.support.downloads import filled_once

MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
ACCESS_KEY, SECRET_KEY = "chaos-key", "chaos-secret"
REGION = "us-east-1"
START_TIMEOUT_S = 60.0

_POLL_S = 0.05


def versitygw_binary() -> Path:
    """The server's program; the first call takes minutes.

    Raises:
        subprocess.CalledProcessError: it cannot be built; its output was printed.
        FileNotFoundError: there is no `go` command.
    """
    return filled_once("versitygw", [Path(__file__)], _build) / "versitygw"


def _build(folder: Path) -> None:
    folder.mkdir(parents=True)
    subprocess.run(["go", "install", MODULE], check=True, env={**os.environ, "GOBIN": str(folder)})


class VersityGateway:
    """An S3 server of one bucket, with its data in `folder`, on a port of loopback that stays the same."""

    def __init__(self, folder: Path, bucket: str) -> None:
        (folder / "data" / bucket).mkdir(parents=True, exist_ok=True)
        (folder / "meta").mkdir(exist_ok=True)
        self.bucket = bucket
        [self.port] = free_ports(1)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> VersityGateway:
        """Start it and wait until it answers."""
        environment = {**os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        command = [
            str(versitygw_binary()),
            "--port",
            f"127.0.0.1:{self.port}",
            "--region",
            REGION,
            "--quiet",
            "--keep-alive",
        ]
        with (self._folder / "versitygw.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *GUARD,
                    *command,
                    "--quiet",
                    "--keep-alive",
                    "posix",
                    "--sidecar",
                    str(self._folder / "meta"),
                    str(self._folder / "data"),
                ],
                stdout=log,
                stderr=log,
                env=environment,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "versitygw.log").read_text()
            assert time.monotonic() < deadline, "the S3 server does not answer"
            time.sleep(_POLL_S)
        return self

    def end(self) -> None:
        """Make sure that no process is left; the data stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def properties(self, endpoint_url: str) -> Mapping[str, str]:
        """What makes a broker keep its objects there, reached by `endpoint_url`."""
        return {
            "wal_object_store.fsspec.url": f"s3://{self.bucket}/wal",
            "wal_object_store.fsspec.endpoint.url": endpoint_url,
            "wal_object_store.fsspec.region": REGION,
            "wal_object_store.fsspec.key": ACCESS_KEY,
            "wal_object_store.fsspec.secret": SECRET_KEY,
        }

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.url, timeout=1).close()
        except urllib.error.HTTPError:
            return True  # it asks for a signature
        except OSError:
            return False
        return True
