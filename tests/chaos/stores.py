"""Where the brokers of a run keep their objects: something that all of them reach, each through a proxy of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from tests.support.apache_kafka import GUARD, free_ports
from tests.support.versitygw import ACCESS_KEY, REGION, SECRET_KEY, VersityGateway

BUCKET = "chaos"

_MOTO_START_S = 60.0
_POLL_S = 0.1


class Store(Protocol):
    """Attributes:
    port: where it answers on loopback; None if it is no server, so that nothing can come between.
    """

    @property
    def port(self) -> int | None: ...

    def start(self) -> None:
        """Start it and wait until it answers."""

    def end(self) -> None:
        """Make sure that no process is left."""

    def properties(self, port: int | None) -> Mapping[str, str]:
        """What a broker has to be told that reaches it by a port of loopback, its own or a proxy's."""


class FolderStore:
    """A folder of this host."""

    port = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "objects"

    def start(self) -> None:
        self._folder.mkdir(parents=True)

    def end(self) -> None:
        pass

    def properties(self, port: int | None) -> Mapping[str, str]:
        del port
        return {"wal_object_store.fsspec.url": f"file://{self._folder}"}


class S3Store:
    """A real S3 server."""

    def __init__(self, folder: Path) -> None:
        self._server = VersityGateway(folder, BUCKET)
        self.port = self._server.port

    def start(self) -> None:
        self._server.start()

    def end(self) -> None:
        self._server.end()

    def properties(self, port: int | None) -> Mapping[str, str]:
        return self._server.properties(f"http://127.0.0.1:{port}")


class MotoStore:
    """S3 as moto plays it, in memory: it needs nothing that is not installed already."""

    def __init__(self, folder: Path) -> None:
        [self.port] = free_ports(1)
        self._log = folder / "moto.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = [*GUARD, sys.executable, "-m", "moto.server", "--port", str(self.port)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
        client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{self.port}", region_name=REGION, **keys)
        deadline = time.monotonic() + _MOTO_START_S
        while True:
            try:
                client.create_bucket(Bucket=BUCKET)
                break
            except (BotoCoreError, ClientError):
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, "moto does not answer"
                time.sleep(_POLL_S)
        client.close()

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def properties(self, port: int | None) -> Mapping[str, str]:
        return {
            "wal_object_store.fsspec.url": f"s3://{BUCKET}/wal",
            "wal_object_store.fsspec.endpoint.url": f"http://127.0.0.1:{port}",
            "wal_object_store.fsspec.region": REGION,
            "wal_object_store.fsspec.key": ACCESS_KEY,
            "wal_object_store.fsspec.secret": SECRET_KEY,
        }
